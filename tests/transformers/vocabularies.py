"""Tokenizers of GGUF files: those of llama.cpp's source with the ids that it has for them, and every pre-tokenizer
against llama.cpp itself. Called by scripts/test/transformers:

    vocabularies.py ALIBI_FOR_TRANSFORMERS FOLDER

FOLDER has the vocabularies of the source distribution of llama-cpp-python: ggml-vocab-*.gguf, and for most of them
texts (.inp) and ids (.out).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unicodedata
import unittest

import gguf
import numpy
import tokenizers

try:
    import llama_cpp
except ImportError:
    llama_cpp = None

HELPER, FOLDER = os.path.abspath(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1)).resolve()
REFUSED = {"gemma-4": "gemma4"}
"""Vocabularies that are not read, and what the error names."""
ASCII = {"falcon", "gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie", "tekken"}
"""Pre-tokenizers that split as their tokenizer.json, and as llama.cpp only if the text is ASCII."""
OTHER = {"jina-v2-code"}
"""Splits digits, as its tokenizer.json; llama.cpp does not."""
SEPARATOR = "\n__ggml_vocab_test__\n"
MORE = ["I'LL won't WE'RE it's y'all", "camelCase HTTPServer getURL2x snake_case", "1 12 123 1234 12345 1,234.56 ٣٤٥",
        "a\n\n b\r\n\r\n\tc  \n d   ", "x" * 40 + " " * 70 + "y", "naïve Œuvre ÆON ёлка ЁЛКА ΣΊΣΥΦΟΣ", "価格は1234円です。한국어 ไทย",
        "(a+b)*c=={d}!?... «e» “f”", " leading and trailing "]


def ids_here(model, texts):
    """The ids of each text, or the error."""
    with tempfile.TemporaryDirectory() as scratch:
        texts_file, ids_file = pathlib.Path(scratch, "texts"), pathlib.Path(scratch, "ids")
        texts_file.write_bytes(b"".join(text.encode() + b"\0" for text in texts))
        done = subprocess.run([HELPER, "encode", model, texts_file, ids_file], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr
        ids = numpy.fromfile(ids_file, numpy.int32)
    ends = numpy.flatnonzero(ids == -1)
    return [part[part >= 0].tolist() for part in numpy.split(ids, ends)[:len(texts)]]


def ids_there(model, texts):
    vocabulary = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    return [vocabulary.tokenize(text.encode(), add_bos=False, special=False) for text in texts]


def texts_of(name):
    return (FOLDER / f"ggml-vocab-{name}.gguf.inp").read_text(encoding="utf-8").split(SEPARATOR)


def learned_vocabulary(texts):
    """Tokens and merges that cross every border of words, so that the ids show where a pre-tokenizer splits."""
    learned = tokenizers.Tokenizer(tokenizers.models.BPE())
    learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=4000, min_frequency=1, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    learned.train_from_iterator(texts, trainer)
    model = json.loads(learned.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(merge) for merge in model["merges"]]


def write_vocabulary(path, name, tokens, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list([*tokens, "<|endoftext|>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens))
    writer.add_eos_token_id(len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


class Vocabularies(unittest.TestCase):
    def check(self, name, found, texts, expected):
        self.assertIsInstance(found, list, f"{name}: {found}")
        for text, here, there in zip(texts, found, expected, strict=True):
            self.assertEqual(here, there, f"{name}: {text!r}")

    def test_ids_of_the_source(self):
        count = {}
        for file in sorted(FOLDER.glob("ggml-vocab-*.gguf.out")):
            name = file.name.removeprefix("ggml-vocab-").removesuffix(".gguf.out")
            texts = texts_of(name)
            lines = file.read_text().split("\n")[:len(texts)]
            found = ids_here(FOLDER / f"ggml-vocab-{name}.gguf", texts)
            if name in REFUSED:
                self.assertIn(f"'{REFUSED[name]}'", found)
                continue
            with self.subTest(name):
                self.check(name, found, texts, [[int(number) for number in line.split()] for line in lines])
                count[name] = len(texts)
        print(f"{sum(count.values())} texts of {len(count)} vocabularies: {', '.join(count)}")
        self.assertGreaterEqual(len(count), 14)

    @unittest.skipIf(llama_cpp is None, "SKIPPED: there is no module llama_cpp")
    def test_vocabularies_without_ids(self):
        for file in sorted(FOLDER.glob("ggml-vocab-*.gguf")):
            if not file.with_name(file.name + ".out").exists():
                with self.subTest(file.name):
                    texts = texts_of("gpt-2") + MORE
                    self.check(file.name, ids_here(file, texts), texts, ids_there(file, texts))

    @unittest.skipIf(llama_cpp is None, "SKIPPED: there is no module llama_cpp")
    def test_every_pre_tokenizer(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "model.gguf"
            texts = [unicodedata.normalize("NFC", text) for text in texts_of("gpt-2") + texts_of("qwen35") + MORE]
            vocabulary = learned_vocabulary(texts)
            write_vocabulary(path, "unknown-to-all", *vocabulary)
            names = re.search(r"expected one of (.*)", ids_here(path, [""]))[1].strip().split(", ")
            self.assertGreaterEqual(len(names), 70)
            for name in sorted({*names} - OTHER):
                compared = [text for text in texts if text.isascii()] if name in ASCII else texts
                with self.subTest(name):
                    write_vocabulary(path, name, *vocabulary)
                    self.check(name, ids_here(path, compared), compared, ids_there(path, compared))
        print(f"{len(names) - len(OTHER)} pre-tokenizers, {len(texts)} texts each")


if __name__ == "__main__":
    unittest.main()
