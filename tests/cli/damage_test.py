"""Damaged files: what the command reports, and that it never uses their content.

Exit code 1 and one message that names the file; no results.
"""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
import unittest

from cli_case import COMMAND, TINY_TRAINING, CliTest, run


def tensors_of(file):
    """The header of a safetensors file, and where its numbers begin."""
    content = file.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8:8 + size]), 8 + size


def write_float(file, tensor, element, value):
    header, begin = tensors_of(file)
    content = bytearray(file.read_bytes())
    at = begin + header[tensor]["data_offsets"][0] + 4 * element
    content[at:at + 4] = struct.pack("<f", value)
    file.write_bytes(content)


def flip_bit(file, byte):
    content = bytearray(file.read_bytes())
    content[byte] ^= 1
    file.write_bytes(content)


def peak_mebibytes(*arguments):
    """The most memory that a run of the command had."""
    process = subprocess.Popen([COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # it has been waited for
    return usage.ru_maxrss / 1024


class DamagedModels(CliTest):
    def each_command(self, mentions, model):
        self.fails(1, mentions, "info", model)
        self.each_that_computes(mentions, model)

    def each_that_computes(self, mentions, model):
        self.fails(1, mentions, "generate", model, "--max-tokens", "5")
        self.fails(1, mentions, "eval", model, self.valid)

    def test_values_of_the_configuration(self):
        model = self.copy_of_model("values")
        config = model / "config.json"
        good = json.loads(config.read_text())
        rate = "expected at least 0 and below 1"
        for edits, says in (
                ({"d_model": 127}, "d_model is 127, expected a multiple of n_heads, 4"),
                ({"d_model": 2048}, "d_model / n_heads is 512, expected a head_dim of 1 to 256"),
                ({"n_heads": 3}, "d_model is 128, expected a multiple of n_heads, 3"),
                ({"resid_pdrop": 1}, "resid_pdrop is 1, " + rate),
                ({"emb_pdrop": 1}, "emb_pdrop is 1, " + rate),
                ({"alibi.attention_dropout": 1}, "alibi.attention_dropout is 1, " + rate),
                ({"alibi.activation_dropout": 1}, "alibi.activation_dropout is 1, " + rate),
                ({"norm_eps": 0}, "norm_eps is 0, expected above 0 and below 1"),
                ({"norm_eps": 1}, "norm_eps is 1, expected above 0 and below 1"),
                ({"attn_config.alibi_bias_max": 0}, "attn_config.alibi_bias_max is 0, expected above 0"),
                ({"alibi.embedding_scale": 0}, "alibi.embedding_scale is 0, expected above 0"),
                ({"alibi.position": "polar"}, "there is no position method called 'polar'"),
                ({"alibi.activation": "sine"}, "there is no activation called 'sine'"),
                ({"alibi.adaptive": {"cutoffs": [9, 8], "factor": 4}}, "alibi.adaptive.cutoffs are 9, 8, expected"),
                ({"alibi.adaptive": {"cutoffs": [9], "factor": 999}}, "alibi.adaptive.factor 999 leave no width")):
            values = json.loads(json.dumps(good))
            for path, value in edits.items():
                *above, key = path.split(".")
                place = values
                for name in above:
                    place = place[name]
                place[key] = value
            config.write_text(json.dumps(values))
            result = run("info", model)
            self.assertEqual(result.returncode, 1, f"{edits}: {result.stderr}")
            self.assertTrue(result.stderr.startswith("alibi: error: [config] "), result.stderr)
            self.assertIn(str(config), result.stderr)
            self.assertIn(says, result.stderr)

    def test_weights_that_are_no_numbers(self):
        model = self.copy_of_model("no-numbers")
        weights = model / "model.safetensors"
        for tensor, element, value, says in (
                ("transformer.wte.weight", 128 * 2 + 3, float("nan"), "\"transformer.wte.weight\" [2, 3] is nan"),
                ("transformer.blocks.3.ffn.down_proj.weight", 0, float("-inf"),
                 "\"transformer.blocks.3.ffn.down_proj.weight\" [0, 0] is -inf")):
            good = weights.read_bytes()
            write_float(weights, tensor, element, value)
            self.each_that_computes(f"{weights}: {says}", model)  # info reads no weights
            weights.write_bytes(good)

    def test_a_tokenizer_of_other_weights(self):
        other = self.folder / "other-tokenizer"
        self.succeeds("tokenize", self.text, "-o", other, "--tokenizer", "words", "--vocab-size", "200")
        model = self.copy_of_model("two-tokenizers")
        shutil.copy(other / "dict.txt", model)  # as a killed save once left it
        self.each_command(model / "config.json", model)
        self.each_command(model / "dict.txt", model)

    def test_claims_that_the_files_do_not_keep(self):
        model = self.copy_of_model("claims")
        config, weights = model / "config.json", model / "model.safetensors"
        good = json.loads(config.read_text())
        wide = {**good, "d_model": 8192, "n_heads": 64}
        config.write_text(json.dumps(wide))
        self.each_command("has the shape", model)
        self.assertLess(peak_mebibytes("info", model), 200)
        header = json.dumps({"x": {"dtype": "F4", "shape": [1 << 20, 1 << 20], "data_offsets": [0, 4]}}).encode()
        weights.write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
        self.each_command("data_offsets", model)
        self.assertLess(peak_mebibytes("info", model), 200)
        config.write_text('{"model_type": "mpt", "x": [' + "[]," * (1 << 20) + "0]}")  # 3 MiB
        self.each_command("config.json", model)
        self.assertLess(peak_mebibytes("info", model), 200)


class KilledSaves(CliTest):
    """A folder with a model of bytes, in which a complete run of words saves its own, is killed while it does so."""

    def test_there_is_the_old_model_or_the_new_one(self):
        words = self.folder / "words"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", words, "--tokenizer", "words", *TINY_TRAINING)
        self.succeeds("train", "--resume", words)  # a complete run saves its model again

        def perplexities(model):
            result = run("eval", model, self.valid, "--lengths", "32", "--json", self.folder / "eval.json")
            self.assertEqual(result.returncode, 0, result.stderr)
            return self.json_of("eval.json")["eval"][0]["perplexity"]

        expected = {"old": perplexities(self.model), "new": perplexities(words)}
        self.assertNotEqual(expected["old"], expected["new"])
        dice = random.Random(3)
        found = []
        for i in range(8):
            model = self.copy_of_model("killed")
            for name in ("checkpoints", "train.json", "metrics.jsonl", "tensorboard"):
                path = model / name
                shutil.rmtree(path, ignore_errors=True)
                if (words / name).is_dir():
                    shutil.copytree(words / name, path)
                else:
                    shutil.copy(words / name, path)
            process = subprocess.Popen([COMMAND, "train", "--resume", str(model)], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            weights = (model / "model.safetensors").stat().st_ino
            while process.poll() is None:  # until it begins to save, or to put its files in place
                begun = any(name.startswith(".saving.") for name in os.listdir(model))
                if (begun and i % 2 == 0) or (model / "model.safetensors").stat().st_ino != weights:
                    break
            time.sleep(dice.uniform(0, 0.01))
            process.send_signal(signal.SIGKILL)
            process.wait()
            here = perplexities(model)
            self.assertIn(here, expected.values())
            found.append("old" if here == expected["old"] else "new")
            self.succeeds("train", "--resume", model)
            self.assertEqual(perplexities(model), expected["new"])
            self.assertEqual([name for name in os.listdir(model) if name.startswith(".") or name.endswith(".part")], [])
            self.doCleanups()
        print(f"{found.count('old')} times the old model, {found.count('new')} times the new one")


class DamagedCheckpoints(CliTest):
    def setUp(self):
        self.run = self.folder / "run"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", self.run, "--checkpoint-steps", "3",
                      *TINY_TRAINING)
        self.addCleanup(shutil.rmtree, self.run)
        self.newest = self.run / "checkpoints" / "step-000007"

    def test_an_older_one_is_taken_with_a_warning(self):
        weights = (self.run / "model.safetensors").read_bytes()
        for name in ("model.safetensors", "training.safetensors", "training.json"):
            flip_bit(self.newest / name, (self.newest / name).stat().st_size // 2)
            result = run("train", "--resume", self.run)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("Resuming after 6 updates", result.stdout)
            self.assertTrue(result.stderr.startswith("alibi: warning: "), result.stderr)
            self.assertIn(str(self.newest / name), result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1)
            self.assertEqual((self.run / "model.safetensors").read_bytes(), weights)
        self.assertIn("complete since update 7", self.succeeds("train", "--resume", self.run))

    def test_none_is_whole(self):
        for checkpoint in (self.run / "checkpoints").iterdir():
            flip_bit(checkpoint / "training.safetensors", 5000)
        for arguments in (("--resume", self.run), (self.text, "-o", self.run, *TINY_TRAINING)):
            self.fails(1, "contains no complete checkpoint", "train", *arguments)
            self.fails(1, self.newest / "training.safetensors", "train", *arguments)


class DamagedTokens(CliTest):
    def test_ids_out_of_range_and_other_ids(self):
        data = self.folder / "data"
        self.succeeds("tokenize", self.text, "-o", data)
        out = self.folder / "unused"
        tokens = data / "train.tokens"
        content = bytearray(tokens.read_bytes())
        content[64 + 4 * 777 + 3] = 0x10
        tokens.write_bytes(content)
        self.fails(1, f"{tokens}: token 777 is 2684", "train", data, "-o", out, *TINY_TRAINING)
        self.fails(1, f"{tokens}: token 777 is 2684", "compare", data, "--out", out, "--train-tokens", "4k")
        content[64 + 4 * 777 + 3] = 0
        content[64 + 4 * 777] ^= 1
        tokens.write_bytes(content)
        self.fails(1, f"{tokens}: the checksum is", "train", data, "-o", out, *TINY_TRAINING)
        result = run("eval", self.model, data)  # reads what is held out alone (and knows it: the model has seen it)
        self.assertEqual(result.returncode, 0, result.stderr)
        flip_bit(data / "valid.tokens", 64 + 400)
        self.fails(1, f"{data / 'valid.tokens'}: the checksum is", "eval", self.model, data)


if __name__ == "__main__":
    unittest.main(verbosity=1)
