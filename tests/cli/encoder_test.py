"""Encoders and fine-tuning: trained, evaluated, embedded and continued by the command."""

import json
import math
import pathlib
import struct
import unittest

from cli_case import CliTest, TINY_TRAINING, run


class Encoder(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.encoder = cls.folder / "encoder"
        trained = run("train", cls.text, "--valid", cls.valid, "-o", cls.encoder, *TINY_TRAINING, "--no-causal")
        assert trained.returncode == 0, trained.stderr

    def test_it_is_one(self):
        self.succeeds("info", self.encoder, "--json", self.folder / "info.json")
        info = self.json_of("info.json")
        self.assertEqual([info[key] for key in ("causal", "bidirectional", "mask_token", "vocab_size", "opened_as")],
                         [False, "symmetric", 257, 258, "alibi"])
        self.assertEqual(json.loads((self.encoder / "train.json").read_text())["causal"], False)
        again = self.folder / "again"
        self.succeeds("train", "--config", self.encoder / "train.json", "-o", again)
        self.assertEqual((again / "model.safetensors").read_bytes(), (self.encoder / "model.safetensors").read_bytes())
        for command, mentions in (("generate", "expected a causal"), ("score", "needs a causal")):
            self.fails(1, mentions, command, self.encoder)
        self.fails(1, "encoder", "eval", self.encoder, self.valid, "--one-pass")
        self.fails(2, "causal", "compare", self.text, "--no-causal", "--out", self.folder / "unused")
        self.fails(2, "true, false", "train", self.text, "-o", self.folder / "unused", "--causal", "maybe")

    def test_longer_texts_are_scored_on_the_same_tokens(self):
        self.succeeds("eval", self.encoder, self.valid, "--lengths", "16,64,100000", "--per-position", "--json",
                      self.folder / "eval.json")
        found = self.json_of("eval.json")
        (count,) = {entry["tokens"] for entry in found["eval"]}
        tokens = self.valid.stat().st_size + 1
        self.assertLess(abs(count / tokens - 0.15), 0.05)
        for entry in found["eval"]:
            bits = entry["nll"] * count / math.log(2)
            self.assertAlmostEqual(entry["bits_per_byte"], bits / (found["bytes"] * count / tokens), delta=0.02)  # bytes are whole
        self.succeeds("eval", self.encoder, "--held-out")

    def test_vectors(self):
        lines = self.valid.read_text().splitlines()
        said = [json.loads(line) for line in self.succeeds("embed", self.encoder, self.valid).splitlines()]
        self.assertEqual([entry["text"] for entry in said], lines)
        arrays = {}
        for name in ("x.npy", "x.safetensors"):
            self.succeeds("embed", self.encoder, self.valid, "-o", self.folder / name, "--normalize", "--json",
                          self.folder / "embed.json")
            arrays[name] = (self.folder / name).read_bytes()
        width = self.json_of("embed.json")["width"]
        header = arrays["x.npy"]
        self.assertEqual(header[:8], b"\x93NUMPY\x01\x00")
        begin = 10 + struct.unpack("<H", header[8:10])[0]
        self.assertEqual(begin % 64, 0)
        about = eval(header[10:begin].decode())  # a Python dictionary by the format's definition
        self.assertEqual(about, {"descr": "<f4", "fortran_order": False, "shape": (len(lines), width)})
        values = struct.unpack(f"<{len(lines) * width}f", header[begin:])
        self.assertTrue(arrays["x.safetensors"].endswith(header[begin:]))
        for i, entry in enumerate(said):
            vector = values[i * width:(i + 1) * width]
            norm = math.sqrt(sum(x * x for x in entry["embedding"]))
            self.assertAlmostEqual(sum(a * b / norm for a, b in zip(vector, entry["embedding"])), 1, places=4)
        whole = json.loads(self.succeeds("embed", self.encoder, "--whole-files", self.valid, "--pooling", "first"))
        self.assertEqual(pathlib.Path(whole["file"]).name, "valid.txt")
        piped = json.loads(self.succeeds("embed", self.model, "--pooling", "last", stdin="a line"))
        self.assertEqual((piped["text"], len(piped["embedding"])), ("a line", width))
        self.fails(2, "sees nothing", "embed", self.model, self.valid, "--pooling", "first")
        self.fails(2, "'.txt'", "embed", self.model, self.valid, "-o", self.folder / "x.txt")


class FineTuning(CliTest):
    def test_it_begins_with_the_weights_of_another(self):
        other = self.folder / "other.txt"
        other.write_text("".join(f"{i} sheep sleep in the deep blue steep\n" for i in range(400)))
        begun, tuned = self.folder / "begun", self.folder / "tuned"
        train = ("train", other, "--valid", self.valid, *TINY_TRAINING, "--from", self.model)
        # A rate of almost nothing leaves them as they were.
        self.succeeds(*train, "-o", begun, "--learning-rate", "1e-12", "--weight-decay", "0")
        self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--json", self.folder / "a.json")
        self.succeeds("eval", begun, self.valid, "--lengths", "32", "--json", self.folder / "b.json")
        nll = [self.json_of(name)["eval"][0]["nll"] for name in ("a.json", "b.json")]
        self.assertAlmostEqual(nll[0], nll[1], places=4)
        self.succeeds(*train, "-o", tuned)
        settings = json.loads((tuned / "train.json").read_text())
        self.assertEqual(settings["from"], str(self.model))
        self.assertNotIn("position", settings)
        # It is resumed without the model that it began with.
        settings["from"] = str(self.folder / "gone")
        (tuned / "train.json").write_text(json.dumps(settings))
        self.assertIn("training is complete", self.succeeds("train", "--resume", tuned))
        for wrong in (("--position", "none"), ("--heads", "2"), ("--tokenizer", "bpe")):
            self.fails(2, "--from", *train, "-o", self.folder / "unused", *wrong)
        self.fails(1, "no such folder", "train", other, "-o", self.folder / "unused", "--from", self.folder / "gone")


if __name__ == "__main__":
    unittest.main()
