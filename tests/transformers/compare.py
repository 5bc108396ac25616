"""Model folders that alibi wrote, opened by Hugging Face's transformers. Called by scripts/test-transformers:

    compare.py ALIBI ALIBI_FOR_TRANSFORMERS

Logits may differ by 1e-4, perplexities by 1e-4 of their value.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
import transformers

transformers.logging.disable_progress_bar()

ALIBI, HELPER = (os.path.abspath(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
TOLERANCE = 1e-4
TRAINED_AT = 64
SENTENCE = "The {} naïve fox, aged {}, jumps over {} lazy dogs;\t“why?” asks the   owl. 雪\r\n\n"
WORDS = "quick brown old small white red clever silent hungry tired".split()
TEXT = "".join(SENTENCE.format(WORDS[i * i % 10], i * 7 % 31, WORDS[(i + 3) * i % 9]) for i in range(400))
HELD_OUT = "".join(SENTENCE.format(WORDS[i * 7 % 10], i * 5 % 29, WORDS[i % 8]) for i in range(30))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


def train(folder, *options):
    run(ALIBI, "train", folder.parent / "text.txt", "--valid", folder.parent / "held-out.txt", "--out", folder,
        "--train-length", TRAINED_AT, "--train-tokens", "60k", "--batch-tokens", "512", *options)


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits_there(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def logits_here(folder, ids):
    ids_file, logits_file = folder.parent / "ids", folder.parent / "logits"
    numpy.array(ids, numpy.int32).tofile(ids_file)
    run(HELPER, "logits", folder, ids_file, logits_file)
    return numpy.fromfile(logits_file, numpy.float32).reshape(len(ids), -1)


def perplexity_there(model, ids, length, first):
    """Over windows that do not overlap, as `alibi eval` has them: the input of a target is the token before it."""
    inputs = [first, *ids[:-1]]
    loss = 0.0
    with torch.no_grad():
        for begin in range(0, len(ids), length):
            logits = model(torch.tensor([inputs[begin:begin + length]])).logits[0].double()
            targets = torch.tensor(ids[begin:begin + length])
            loss += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    return math.exp(loss / len(ids))


class TransformersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="alibi-transformers-")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        (cls.scratch / "text.txt").write_bytes(TEXT.encode())
        (cls.scratch / "held-out.txt").write_bytes(HELD_OUT.encode())

    def same_logits(self, name, folder, model, ids):
        there, here = logits_there(model, ids), logits_here(folder, ids)
        self.assertEqual(there.shape, here.shape)
        self.assertGreater(numpy.abs(here).max(), 1)
        difference = float(numpy.abs(there - here).max())
        print(f"{name}: length {len(ids)}: largest difference of logits {difference:.2g}")
        self.assertTrue(difference <= TOLERANCE, difference)

    def same_perplexities(self, name, folder, model, stream):
        lengths = [TRAINED_AT, 4 * TRAINED_AT, 8 * TRAINED_AT]
        run(ALIBI, "eval", folder, self.scratch / "held-out.txt", "--lengths", ",".join(map(str, lengths)),
            "--json", self.scratch / "eval.json")
        measured = json.loads((self.scratch / "eval.json").read_text())["eval"]
        for length, point in zip(lengths, measured, strict=True):
            self.assertEqual(point["tokens"], len(stream))
            here, there = point["perplexity"], perplexity_there(model, stream, length, model.config.bos_token_id)
            print(f"{name}: length {length} ({length // TRAINED_AT}x): perplexity {here:.6f} here, {there:.6f} there, "
                  f"relative difference {abs(here - there) / here:.2g}")
            self.assertTrue(abs(here - there) <= TOLERANCE * here, (length, here, there))

    def trained(self, name, *options, is_words=False):
        folder = self.scratch / name
        train(folder, *options)
        model = opened(folder)
        self.assertEqual(type(model).__name__, "MptForCausalLM")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(HELD_OUT)["input_ids"]
        self.assertEqual(ids, self.ids_here(folder, HELD_OUT), "the two read the same tokens")
        if not is_words:  # these keep words alone, not what was between them
            self.assertEqual(tokenizer.decode(ids), HELD_OUT)
            ids.append(tokenizer.eos_token_id)  # of the document; lines of words end with it already
        self.same_logits(name, folder, model, ids[:8 * TRAINED_AT])
        self.same_perplexities(name, folder, model, ids)
        return model, tokenizer

    def ids_here(self, folder, text):
        (self.scratch / "to-encode").write_bytes(text.encode())
        run(HELPER, "encode", folder, self.scratch / "to-encode", self.scratch / "ids")
        return numpy.fromfile(self.scratch / "ids", numpy.int32).tolist()

    def test_bytes(self):
        model, tokenizer = self.trained("bytes")
        # The key/value cache, and a text longer than any window.
        prompt = tokenizer("The quick", return_tensors="pt")["input_ids"]
        text = [model.generate(prompt, max_new_tokens=2 * TRAINED_AT, do_sample=False, use_cache=cached,
                               eos_token_id=None, pad_token_id=0) for cached in (True, False)]
        self.assertTrue(torch.equal(*text))

    def test_bpe(self):
        self.trained("bpe", "--tokenizer", "bpe", "--vocab-size", "400")

    def test_unigram(self):
        self.trained("unigram", "--tokenizer", "unigram", "--vocab-size", "400")

    def test_words(self):
        self.trained("words", "--tokenizer", "words", is_words=True)

    def test_sizes_that_no_preset_has(self):
        folder = self.scratch / "made"
        run(HELPER, "make", folder)
        model = opened(folder)
        self.same_logits("12 heads", folder, model, list(HELD_OUT.encode()[:700]))

    def test_what_is_no_mpt_is_refused(self):
        for position in ("rotary", "sinusoidal"):
            folder = self.scratch / position
            train(folder, "--position", position)
            with self.assertRaisesRegex(ValueError, "model type `?alibi"):
                opened(folder)


if __name__ == "__main__":
    unittest.main(verbosity=0)
