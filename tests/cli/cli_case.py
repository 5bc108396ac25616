"""What the tests of the command share: it is run as a user does, with a small text and a small trained model.

Each test is called as   NAME_test.py PATH-OF-ALIBI [unittest options]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

COMMAND = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/alibi"
COMMANDS = ("compare", "report", "tokenize", "train", "eval", "generate", "score", "embed", "rerank", "serve", "info", "convert",
            "verify", "positions", "bench attention", "bench sequence", "bench train", "bench capture")
METHODS = ("alibi", "sinusoidal", "rotary", "t5", "learned", "none", "rotary+alibi")
SENTENCE = "the quick brown fox jumps over the lazy dog and runs away from number {}\n"
# A line of a command that takes more than ten seconds, as on a busy machine.
PROGRESS = re.compile(r"^(update [\d,]+ of [\d,]+  .*|\S.* +\d+%(  .*)?)\n", re.MULTILINE)
TINY_TRAINING = ("--train-length", "32", "--train-tokens", "4k", "--batch-tokens", "512")

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the quick brown fox jumps over lazy dog a line and another".split()
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": WORDS[i], "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for i in range(5)],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                   "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
}


def run(*arguments, stdin="", environment=None):
    words = [COMMAND, *map(str, arguments)]
    # What a model writes need not be valid UTF-8.
    return subprocess.run(words, input=stdin, capture_output=True, encoding="utf-8", errors="surrogateescape",
                          timeout=300, check=False, env={**os.environ, **(environment or {})})


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="alibi-cli-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("".join(SENTENCE.format(i) for i in range(400)))
        cls.valid = cls.folder / "valid.txt"
        cls.valid.write_text("".join(SENTENCE.format(i) for i in range(1000, 1030)))
        cls.model = cls.folder / "model"
        trained = run("train", cls.text, "--valid", cls.valid, "-o", cls.model, "--json", cls.folder / "train.json",
                      *TINY_TRAINING)
        assert trained.returncode == 0, trained.stderr

    @classmethod
    def train_encoder(cls):
        cls.encoder = cls.folder / "encoder"
        trained = run("train", cls.text, "--valid", cls.valid, "-o", cls.encoder, *TINY_TRAINING, "--no-causal")
        assert trained.returncode == 0, trained.stderr

    @classmethod
    def make_jina(cls, name, labels):
        """An encoder in the format of Jina embeddings v2 or, with a label, of jina-reranker-v1, with random weights."""
        folder = cls.folder / name
        script = pathlib.Path(__file__).resolve().parents[2] / "bench" / "random_model.py"
        subprocess.run([sys.executable, script, folder, "--family", "jina", "--layers", "2", "--d-model", "32", "--heads", "2",
                        "--vocab", str(len(WORDS)), "--labels", str(labels)], check=True, stdout=subprocess.DEVNULL)
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        return folder

    def succeeds(self, *arguments, stdin=""):
        result = run(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(PROGRESS.sub("", result.stderr), "")
        return result.stdout

    def fails(self, code, mentions, *arguments, stdin=""):
        """The exit code is right, and the message is one for people: what is wrong, where, and nothing else."""
        result = run(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}{result.stdout}")
        self.assertTrue(result.stderr.startswith("alibi: error: "), result.stderr)
        self.assertIn(str(mentions), result.stderr)
        self.assertEqual(result.stderr.count("alibi: error: "), 1, result.stderr)
        if code == 1:
            self.assertRegex(result.stderr, r"^alibi: error: \[[a-z ]+\] ", "an error begins with the operation")

    def json_of(self, name):
        return json.loads((self.folder / name).read_text())

    def copy_of_model(self, name):
        copy = self.folder / name
        shutil.copytree(self.model, copy)
        self.addCleanup(shutil.rmtree, copy)
        return copy
