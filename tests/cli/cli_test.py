"""Runs the command as a user does: results, messages, exit codes.   cli_test.py PATH-OF-ALIBI [unittest options]

Exit codes: 0 done, 1 failed, 2 called wrongly.
"""

import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/alibi"
COMMANDS = ("compare", "tokenize", "train", "eval", "generate", "info", "bench attention", "bench train",
            "bench capture")
METHODS = ("alibi", "sinusoidal", "rotary", "t5", "learned", "none")
SENTENCE = "the quick brown fox jumps over the lazy dog and runs away from number {}\n"
TINY_TRAINING = ("--length", "32", "--tokens", "4k", "--batch-tokens", "512")


def run(*arguments, stdin=""):
    words = [COMMAND, *map(str, arguments)]
    # What a model writes need not be valid UTF-8.
    return subprocess.run(words, input=stdin, capture_output=True, encoding="utf-8", errors="surrogateescape",
                          timeout=300, check=False)


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

    def succeeds(self, *arguments, stdin=""):
        result = run(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "", "progress is for terminals only")
        return result.stdout

    def fails(self, code, mentions, *arguments, stdin=""):
        """The exit code is right, and the message is one for people: what is wrong, where, and nothing else."""
        result = run(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stderr}{result.stdout}")
        self.assertTrue(result.stderr.startswith("alibi: error: "), result.stderr)
        self.assertIn(str(mentions), result.stderr)
        self.assertEqual(result.stderr.count("alibi: error: "), 1, result.stderr)

    def json_of(self, name):
        return json.loads((self.folder / name).read_text())

    def copy_of_model(self, name):
        copy = self.folder / name
        shutil.copytree(self.model, copy)
        self.addCleanup(shutil.rmtree, copy)
        return copy


class Help(CliTest):
    def test_every_command_has_help_with_examples_and_common_options(self):
        for command in COMMANDS:
            text = self.succeeds(*command.split(), "--help")
            for expected in ("Examples:", f"alibi {command}", "--json", "--threads", "--seed"):
                self.assertIn(expected, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 160)

    def test_the_command_lists_its_subcommands(self):
        text = self.succeeds("--help")
        for command in COMMANDS:
            self.assertIn(command.split()[0], text)

    def test_version(self):
        self.assertRegex(self.succeeds("--version"), r"^alibi \d+\.\d+\.\d+\n$")


class CalledWrongly(CliTest):
    def test_no_command_or_an_unknown_one(self):
        self.fails(2, "subcommand")
        self.fails(2, "sing", "sing")

    def test_missing_and_unknown_arguments(self):
        self.fails(2, "MODEL", "info")
        self.fails(2, "TEXT", "eval", self.model)
        self.fails(2, "--out", "train", self.text)
        self.fails(2, "--loud", "info", self.model, "--loud")

    def test_bench(self):
        for wrong in (("--dtype", "f64"), ("--position", "rotary"), ("--pass", "sideways"), ("--isa", "mmx"),
                      ("--tolerance", "2"), ("--tolerance", "x"), ("--kv-heads", "3")):
            self.fails(2, wrong[0], "bench", "attention", *wrong)
        for wrong in (("--presets", "huge"), ("--presets", "wikitext103"), ("--positions", "polar"),
                      ("--precision", "f64"), ("--lengths", "0"), ("--vocab-size", "0")):
            self.fails(2, wrong[1], "bench", "train", *wrong)
        self.fails(1, self.valid, "bench", "attention", "--tensors", self.valid)
        self.fails(1, "tokens", "bench", "capture", self.model, self.valid, "--length", "5M", "--out", "unused")

    def test_numbers(self):
        out = self.folder / "unused"
        for option in ("--length", "--tokens", "--batch-tokens"):
            for value in ("0", "-1", "many", "1.5", "9999999999999999999", "1K"):
                self.fails(2, value, "train", self.text, "-o", out, f"{option}={value}")
        for value in ("0", "128,0", "128;256", "a"):
            self.fails(2, "--lengths", "eval", self.model, self.valid, "--lengths", value)
        for value in ("nan", "-1", "inf", "x"):
            self.fails(2, "--temperature", "generate", self.model, f"--temperature={value}")
        for value in ("0", "-2", "x", "100000"):
            self.fails(2, "--threads", "info", self.model, f"--threads={value}")
        for value in ("-1", "x", "99999999999999999999"):
            self.fails(2, "--seed", "info", self.model, f"--seed={value}")
        self.assertFalse(out.exists())

    def test_the_library_refuses(self):
        out = self.folder / "unused"
        self.fails(2, "epic", "train", self.text, "-o", out, "--position", "epic")
        self.fails(2, "huge", "train", self.text, "-o", out, "--preset", "huge")
        self.fails(2, "epic", "compare", self.text, "--methods", "alibi,epic", "--out", out)
        self.fails(2, "top_p", "generate", self.model, "--top-p", "1.5")
        self.fails(2, "stride", "eval", self.model, self.valid, "--lengths", "64", "--stride", "65")
        self.assertFalse(out.exists())

    def test_tokens_and_epochs_exclude_each_other(self):
        self.fails(2, "--epochs", "train", self.text, "-o", self.folder / "unused", "--tokens", "5k", "--epochs", "2")


class TrainingConfig(CliTest):
    def write(self, settings):
        file = self.folder / "config.json"
        file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
        return file

    def test_every_setting_is_written_and_read_again(self):
        written = json.loads((self.model / "train.json").read_text())
        text = self.succeeds("train", "--help")
        options = {name[2:] for name in re.findall(r"^ +(?:-o,)?(--[a-z0-9-]+)", text, re.MULTILINE)}
        # How to compute, not what; and of two ways to say a thing the one that was taken.
        left_out = {"help", "resume", "config", "plan", "json", "threads", "epochs", "warmup-steps", "vocab-size", "like"}
        self.assertEqual(options - left_out | {"text"}, set(written))
        again = self.folder / "again"
        self.succeeds("train", "--config", self.model / "train.json", "-o", again)
        self.assertEqual(json.loads((again / "train.json").read_text()), {**written, "out": str(again)})
        self.assertTrue((again / "model.safetensors").read_bytes() == (self.model / "model.safetensors").read_bytes())

    def test_the_command_line_wins(self):
        config = self.write({"text": [str(self.text)], "valid": str(self.valid), "length": 32, "tokens": "2k",
                             "batch-tokens": 512, "clip": 0.25, "warmup": 0.5, "optimizer": "nag"})
        out = self.folder / "wins"
        self.succeeds("train", "--config", config, "-o", out, "--clip", "0.75", "--warmup-steps", "1", "--epochs", "0.1")
        used = json.loads((out / "train.json").read_text())
        self.assertEqual((used["clip"], used["warmup-steps"], used["optimizer"]), (0.75, 1, "nag"))
        self.assertNotIn("warmup", used)
        self.assertEqual(used["tokens"], math.ceil(0.1 * (self.text.stat().st_size + 1)))

    def test_errors_name_the_key(self):
        out = self.folder / "unused"
        for settings, code, mentions in (
                ({"learning_rate": 1}, 2, "did you mean 'learning-rate'"), ({"cilp": 1}, 2, "did you mean 'clip'"),
                ({"clip": "wide"}, 2, "'clip'"), ({"clip": -1}, 2, "'clip'"), ({"length": 1.5}, 2, "'length'"),
                ({"length": {}}, 2, "'length'"), ({"valid": [[]]}, 2, "'valid'"), ({"config": "x"}, 2, "'config'"),
                ({"tokens": 5, "epochs": 1}, 2, "exclude"), ("{", 1, "config.json"), ("[]", 1, "config.json"),
                ({"preset": "huge"}, 2, "huge"), ({"schedule": "steep"}, 2, "fairseq")):
            self.fails(code, mentions, "train", self.text, "-o", out, "--config", self.write(settings))
        self.fails(1, "nowhere.json", "train", self.text, "-o", out, "--config", "nowhere.json")
        self.assertFalse(out.exists())


class TrainingPlan(CliTest):
    def test_tells_before_it_starts(self):
        file = self.folder / "plan.json"
        text = self.succeeds("train", "--preset", "tiny", "--plan", "--tokens", "100k", "--json", file)
        self.assertIn("820,480 parameters", text)
        plan = json.loads(file.read_text())
        self.assertEqual(plan["parameters"], 820480)
        self.assertEqual(plan["updates"], 48)
        self.assertEqual(plan["bytes"]["gradients"], 4 * 820480)
        self.assertEqual(sum(v for k, v in plan["bytes"].items() if k != "all"), plan["bytes"]["all"])
        self.assertGreater(plan["seconds"], 0)
        self.fails(2, "--tokens", "train", "--plan", "--epochs", "2")


class TrainingGoesOn(CliTest):
    LONG = ("--length", "32", "--tokens", "200k", "--batch-tokens", "256", "--checkpoint-minutes", "0")

    def start(self, out, *options):
        """A process that has begun to train."""
        process = subprocess.Popen([COMMAND, "train", str(self.text), "-o", str(out), *options],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        for stop in (process.stderr.close, process.stdout.close, process.wait, process.kill):
            self.addCleanup(stop)
        while not (out / "train.json").exists():
            self.assertIsNone(process.poll(), "it ended before it had begun")
            time.sleep(0.01)
        return process

    def updates(self, out):
        metrics = out / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def test_a_signal_saves_and_says_how_to_go_on(self):
        for name, number in (("int", signal.SIGINT), ("term", signal.SIGTERM)):
            out = self.folder / f"stopped-{name}"
            process = self.start(out, *self.LONG)
            process.send_signal(number)
            output, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertIn(f"alibi train --resume {out}", output)
            self.assertIn("once more", errors)
            done = self.updates(out)
            self.assertLess(done, 781)
            self.assertEqual([path.name for path in (out / "checkpoints").iterdir()], [f"step-{done:06}"])
            self.assertFalse((out / "model.safetensors").exists())
            self.fails(1, "resume it", "train", self.text, "-o", out, *self.LONG)
            self.fails(1, "learning_rate", "train", "--resume", out, "--learning-rate", "0.001")

    def test_a_second_signal_ends_at_once(self):
        out = self.folder / "stopped-twice"
        process = self.start(out, "--batch-tokens", "2M", "--tokens", "2M")  # one update, of minutes
        process.send_signal(signal.SIGINT)
        process.stderr.readline()
        self.assertIn("once more", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        self.assertEqual(list((out / "checkpoints").iterdir()), [])

    def test_resume_by_folder_alone_and_a_complete_run(self):
        out = self.folder / "resumed"
        options = ("--valid", self.valid, *TINY_TRAINING)
        self.succeeds("train", self.text, "-o", out, *options)
        before = (out / "model.safetensors").read_bytes()
        text = self.succeeds("train", "--resume", out, "--json", self.folder / "resumed.json")
        self.assertIn("complete since update 7", text)
        self.assertEqual(self.json_of("resumed.json")["train"]["resumed_step"], 7)
        self.assertEqual(self.json_of("resumed.json")["train"]["loss"], self.json_of("train.json")["train"]["loss"])
        self.assertTrue(before == (out / "model.safetensors").read_bytes())
        # A folder that was moved, by the other spelling.
        moved = self.folder / "moved"
        out.rename(moved)
        self.assertIn("complete", self.succeeds("train", "-o", moved, "--resume"))
        self.assertTrue(before == (moved / "model.safetensors").read_bytes())

    def test_resume_errors(self):
        self.fails(1, "train.json", "train", "--resume", self.folder / "nowhere")
        self.fails(2, "one of them", "train", self.text, "-o", "a", "--resume", "b")
        self.fails(2, "--out", "train", self.text, "--resume")
        other = self.folder / "longer.txt"
        other.write_text(self.text.read_text() + "and one more line\n")
        self.fails(1, "text_fingerprint", "train", other, "-o", self.model, "--resume")

    def test_a_full_disk_loses_nothing(self):
        out = self.folder / "full"

        def limited():  # no file can grow past 1 MB: the weights have 3
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

        words = [COMMAND, "train", str(self.text), "--valid", str(self.valid), "-o", str(out), *TINY_TRAINING,
                 "--checkpoint-steps", "1"]
        failed = subprocess.run(words, preexec_fn=limited, capture_output=True, encoding="utf-8", check=False)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn("File too large", failed.stderr)
        self.assertIn("no checkpoint yet", failed.stderr)
        self.assertEqual(list((out / "checkpoints").iterdir()), [])
        # With a checkpoint to fall back to.
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        while not list((out / "checkpoints").glob("step-*3")) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
        saved = sorted(path.name for path in (out / "checkpoints").glob("step-??????"))
        self.assertIn("step-000003", saved)
        failed = subprocess.run([*words, "--resume"], preexec_fn=limited, capture_output=True, encoding="utf-8",
                                check=False)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn(f"update {int(saved[-1][5:])} is whole", failed.stderr)
        self.assertEqual(sorted(path.name for path in (out / "checkpoints").iterdir()), saved)
        self.succeeds("train", "--resume", out)
        self.assertTrue((out / "model.safetensors").read_bytes() == (self.model / "model.safetensors").read_bytes())

    def test_early_stop_metrics_and_figure(self):
        out = self.folder / "early"
        other = self.folder / "other.txt"
        other.write_text("".join(f"{i} ZYX WVU TSR QPO NML\n" for i in range(300)))
        text = self.succeeds("train", self.text, "--valid", other, "-o", out, "--length", "32", "--tokens", "100k",
                             "--batch-tokens", "512", "--eval-steps", "2", "--eval-tokens", "1k", "--patience", "4",
                             "--keep", "1", "--json", self.folder / "early.json")
        results = self.json_of("early.json")["train"]
        self.assertIn("the best so far", text)
        self.assertIn("no longer fell", text)
        best = min(results["held_out"], key=lambda evaluation: evaluation["nll"])
        self.assertEqual(results["weights_step"], best["step"])
        self.assertEqual(results["steps"], best["step"] + 8)
        kept = out / "checkpoints" / f"step-{best['step']:06}" / "model.safetensors"
        self.assertTrue((out / "model.safetensors").read_bytes() == kept.read_bytes())
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], list(range(1, results["steps"] + 1)))
        self.assertEqual([{"step": line["step"], "nll": line["valid_loss"]} for line in lines if "valid_loss" in line],
                         results["held_out"])
        self.assertIn("held-out", (out / "loss.svg").read_text())
        self.assertEqual(len(list((out / "tensorboard").iterdir())), 1)


class BadFiles(CliTest):
    def each_text_command(self, code, mentions, text, stdin=""):
        self.fails(code, mentions, "eval", self.model, text, stdin=stdin)
        self.fails(code, mentions, "train", text, "-o", self.folder / "out", *TINY_TRAINING, stdin=stdin)
        self.fails(code, mentions, "compare", text, "--out", self.folder / "out", stdin=stdin)

    def test_missing_file(self):
        self.each_text_command(1, "nowhere.txt", self.folder / "nowhere.txt")

    def test_empty_text(self):
        empty = self.folder / "empty.txt"
        empty.write_text("")
        self.each_text_command(1, "empty", empty)
        self.each_text_command(1, "empty", "-", stdin="")

    def test_folder_without_text(self):
        (self.folder / "hollow").mkdir(exist_ok=True)
        self.each_text_command(1, "hollow", self.folder / "hollow")

    def test_binary_file(self):
        binary = self.folder / "binary.txt"
        binary.write_bytes(bytes(range(256)) * 20)
        self.each_text_command(1, "binary.txt", binary)

    def test_unwritable_folder(self):
        # Below a file no folder can be made, not even by root.
        out = self.text / "out"
        self.fails(1, out, "train", self.text, "-o", out, *TINY_TRAINING)
        self.fails(1, out, "compare", self.text, "--out", out)
        self.fails(1, out, "info", self.model, "--json", out / "info.json")
        self.fails(1, self.folder, "info", self.model, "--json", self.folder)


class DamagedModels(CliTest):
    def each_model_command(self, mentions, model):
        self.fails(1, mentions, "info", model)
        self.fails(1, mentions, "generate", model)
        self.fails(1, mentions, "eval", model, self.valid)

    def test_missing(self):
        self.each_model_command("nowhere", self.folder / "nowhere")
        self.each_model_command(self.text, self.text)
        for name in ("config.json", "model.safetensors"):
            model = self.copy_of_model("missing-" + name)
            (model / name).unlink()
            self.each_model_command(name, model)

    def test_truncated_weights(self):
        model = self.copy_of_model("truncated")
        weights = model / "model.safetensors"
        whole = weights.read_bytes()
        for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
            weights.write_bytes(whole[:size])
            self.each_model_command("model.safetensors", model)

    def test_header_that_promises_too_much(self):
        model = self.copy_of_model("promises")
        weights = model / "model.safetensors"
        weights.write_bytes(b"\xff" * 8 + weights.read_bytes()[8:])
        self.each_model_command("model.safetensors", model)

    def test_broken_config(self):
        model = self.copy_of_model("broken")
        config = model / "config.json"
        whole = config.read_text()
        values = json.loads(whole)
        key = next(k for k in ("d_model", "n_embd", "hidden_size") if k in values)
        for text in ("", "{", "[]", whole[: len(whole) // 2], whole.replace(f'"{key}"', '"unheard_of"'),
                     json.dumps({**values, key: "wide"}), json.dumps({**values, key: -1}),
                     json.dumps({**values, key: 2 * values[key]})):
            config.write_text(text)
            result = run("info", model)
            self.assertIn(result.returncode, (1, 2), text)
            self.assertTrue(result.stderr.startswith("alibi: error: "), result.stderr)


class EndToEnd(CliTest):
    def check_points(self, points, lengths):
        self.assertEqual([point["length"] for point in points], lengths)
        for point in points:
            self.assertEqual(point["tokens"], self.valid.stat().st_size + 1)  # and the end of the text
            self.assertTrue(math.isclose(point["perplexity"], math.exp(point["nll"]), rel_tol=1e-9), point)
            bits = point["nll"] * point["tokens"] / math.log(2) / self.valid.stat().st_size
            self.assertTrue(math.isclose(point["bits_per_byte"], bits, rel_tol=1e-9), point)

    def test_train(self):
        results = self.json_of("train.json")
        self.assertEqual(results["position"], "alibi")
        self.assertEqual(results["train_length"], 32)
        self.assertEqual(results["train"]["tokens"], 4000 // 512 * 512)
        self.assertEqual(results["corpus"], {"train_bytes": self.text.stat().st_size,
                                             "valid_bytes": self.valid.stat().st_size})
        loss = results["train"]["loss"]
        self.assertEqual(len(loss), 4000 // 512)
        self.assertLess(loss[-1], loss[0])
        self.check_points(results["eval"], [32])

    def test_eval_agrees_with_train(self):
        out = self.folder / "eval.json"
        self.succeeds("eval", self.model, self.valid, "--lengths", "32,33,5k", "--json", out)
        points = json.loads(out.read_text())["eval"]
        self.check_points(points, [32, 33, 5000])
        trained = self.json_of("train.json")["eval"][0]
        self.assertEqual(points[0]["nll"], trained["nll"], "a model read from disk is the model that was written")

    def test_eval_stride_and_positions(self):
        out = self.folder / "stride.json"
        text = self.succeeds("eval", self.model, self.valid, "--lengths", "32,64", "--stride", "8", "--per-position",
                             "--json", out)
        self.assertIn("position", text)
        results = json.loads(out.read_text())
        self.check_points(results["eval"], [32, 64])
        self.assertEqual([point["stride"] for point in results["eval"]], [8, 8])
        self.assertEqual([len(entry["nll"]) for entry in results["per_position"]], [32, 64])

    def test_eval_reads_standard_input(self):
        piped, named = self.folder / "piped.json", self.folder / "named.json"
        self.succeeds("eval", self.model, "-", "--json", piped, stdin=self.valid.read_text())
        self.succeeds("eval", self.model, self.valid, "--json", named)
        nll = [[point["nll"] for point in json.loads(file.read_text())["eval"]] for file in (piped, named)]
        self.assertEqual(*nll)

    def test_generate_follows_the_seed(self):
        def generate(*more):
            return self.succeeds("generate", self.model, "--prompt", "the quick", "--tokens", "100", *more)

        first = generate("--seed", "1")
        self.assertTrue(first.startswith("the quick"))
        self.assertEqual(first, generate("--seed", "1", "--threads", "1"))
        self.assertNotEqual(first, generate("--seed", "2"))

    def test_generate_goes_past_the_training_length(self):
        arguments = ("generate", self.model, "--prompt", "the quick", "--tokens", "200", "--temperature", "0")
        text = self.succeeds(*arguments, "--json", self.folder / "generate.json")
        results = self.json_of("generate.json")
        self.assertEqual(len(results["text"].encode()), 200)
        self.assertEqual(text, "the quick" + results["text"] + "\n")

    def test_info(self):
        text = self.succeeds("info", self.model, "--json", self.folder / "info.json")
        self.assertIn("alibi", text)
        results = self.json_of("info.json")
        self.assertEqual(results["train_length"], 32)
        self.assertEqual(results["parameters"], self.json_of("train.json")["parameters"])
        self.assertEqual(sum(math.prod(t["shape"]) for t in results["tensors"]), results["parameters"])
        self.assertEqual(len(results["slopes"]), results["heads"])

    def test_info_of_the_cpu(self):
        text = self.succeeds("info", "--cpu", "--json", self.folder / "cpu.json")
        results = self.json_of("cpu.json")
        self.assertIn(results["isa"], text)
        self.assertIn(results["isa"], results["isas"])
        self.assertIn("isa", self.succeeds("info", "--cpu", self.model))

    def test_bench_attention(self):
        text = self.succeeds("bench", "attention", "--lengths", "96,64", "--contexts", "200", "--heads", "4",
                             "--kv-heads", "2", "--head-dim", "16", "--seconds", "0", "--json", self.folder / "b.json")
        results = self.json_of("b.json")
        self.assertIn(results["isa"], text)
        points = [(p["dtype"], p["pass"], p["length"]) for p in results["points"] if p["tolerance"] == 0]
        of_a_type = [("forward", 64), ("forward", 96), ("backward", 64), ("backward", 96), ("decode", 200)]
        self.assertEqual(points, [(t, *point) for t in ("float32", "bfloat16") for point in of_a_type])
        self.assertEqual(len(results["points"]), 2 * len(points))
        for point in results["points"]:
            self.assertGreater(point["seconds"], 0)
            self.assertLessEqual(point["visited"], 1)

    def test_bench_train(self):
        text = self.succeeds("bench", "train", "--presets", "tiny", "--lengths", "64,32", "--positions",
                             "t5,none", "--batch-tokens", "128", "--vocab-size", "300", "--seconds", "0",
                             "--precision", "f32", "--recompute", "--json", self.folder / "b.json")
        left_out = self.succeeds("bench", "train", "--presets", "tiny", "--lengths", "64", "--longest", "0")
        self.assertIn("left out", left_out)
        points = self.json_of("b.json")["points"]
        self.assertEqual([(p["length"], p["position"]) for p in points],
                         [(n, p) for n in (64, 32) for p in ("t5", "none")])
        self.assertIn("vocabulary 300", text)
        for point in points:
            self.assertEqual((point["tokens"], point["recompute"]), (128, True))
            self.assertAlmostEqual(point["tokens_per_second"], 128 / point["seconds"])
            self.assertGreater(point["matmul_share"], 0)
            self.assertGreater(point["peak_bytes"], 16 * point["parameters"])

    def test_bench_on_what_a_model_computes(self):
        tensors = self.folder / "qkv.safetensors"
        self.succeeds("bench", "capture", self.model, self.valid, "--length", "300", "--out", tensors)
        text = self.succeeds("bench", "attention", "--tensors", tensors, "--dtype", "f32", "--pass", "forward",
                             "--tolerance", "2^-20", "--seconds", "0", "--json", self.folder / "b.json")
        results = self.json_of("b.json")
        self.assertIn("layer", text)
        self.assertEqual([(p["length"], p["tolerance"]) for p in results["points"]], [(300, 2**-20)])
        layers = results["points"][0]["visited_by_layer"]
        self.assertEqual(len(results["visited_by_head"]["float32"]), len(layers))

    def test_every_tokenizer_from_text_to_generation(self):
        for kind, size in (("byte", ()), ("bpe", ("--vocab-size", "320")), ("unigram", ("--vocab-size", "320")),
                           ("words", ("--min-count", "2"))):
            with self.subTest(kind):
                data, model, direct = (self.folder / f"{name}-{kind}" for name in ("data", "model", "direct"))
                out = self.folder / "tokenize.json"
                self.succeeds("tokenize", self.text, "--valid", self.valid, "-o", data, "--tokenizer", kind, *size,
                              "--json", out)
                written = json.loads(out.read_text())
                self.assertEqual(written["tokenizer"]["kind"], kind)
                self.assertEqual(written["valid"]["bytes"], self.valid.stat().st_size)
                self.assertIn("as they were written", self.succeeds("tokenize", "--check", data))
                self.succeeds("train", data, "-o", model, *TINY_TRAINING, "--json", self.folder / "t.json")
                self.succeeds("train", self.text, "--valid", self.valid, "-o", direct, "--tokenizer", kind, *size,
                              *TINY_TRAINING)
                self.assertTrue((model / "model.safetensors").read_bytes() ==
                                (direct / "model.safetensors").read_bytes(), "tokens or text, the model is the same")
                self.assertIn(kind, self.succeeds("info", model))
                config = json.loads((model / "config.json").read_text())
                self.assertEqual(config["vocab_size"], written["tokenizer"]["vocab_size"])
                ends = {"byte": 256, "bpe": 1, "unigram": 1, "words": 2}
                self.assertEqual(config["bos_token_id"], ends[kind])
                self.assertEqual(config.get("eos_token_id"), None if kind == "words" else ends[kind])
                for text in (data, self.valid):
                    self.succeeds("eval", model, text, "--lengths", "32", "--json", out)
                    point = json.loads(out.read_text())["eval"][0]
                    self.assertEqual(point["tokens"], written["valid"]["tokens"])
                    self.assertEqual(point["bits_per_byte"], self.json_of("t.json")["eval"][0]["bits_per_byte"])
                text = self.succeeds("generate", model, "--prompt", "the quick", "--tokens", "40", "--json", out)
                self.assertTrue(text.startswith("the quick"))
                self.assertGreater(len(text), len("the quick\n"))
                if kind == "words":  # the others may write bytes that are no character
                    self.assertEqual(text, "the quick" + json.loads(out.read_text())["text"] + "\n")

    def test_tokens_of_another_tokenizer(self):
        data = self.folder / "data-other"
        self.succeeds("tokenize", self.text, "-o", data, "--tokenizer", "words")
        self.fails(1, "another tokenizer", "eval", self.model, data)
        self.fails(2, "tokenizer of its own", "train", data, "-o", self.folder / "none", "--tokenizer", "bpe")
        self.succeeds("tokenize", self.text, "-o", data, "--like", self.model)
        self.succeeds("eval", self.model, data)

    def test_damaged_tokens(self):
        data = self.folder / "data-damaged"
        self.succeeds("tokenize", self.text, "-o", data)
        tokens = data / "train.tokens"
        whole = tokens.read_bytes()
        tokens.write_bytes(whole[:-4])
        self.fails(1, tokens, "train", data, "-o", self.folder / "none")
        tokens.write_bytes(whole[:-4] + b"\0\0\0\0")
        self.fails(1, "checksum", "tokenize", "--check", data)
        self.fails(1, self.text, "tokenize", "--check", self.text)
        self.fails(2, "TEXT is required", "tokenize", "-o", data)
        self.fails(2, "-o DATA is required", "tokenize", self.text)
        self.fails(2, "leave out TEXT", "tokenize", self.text, "--check", data)
        self.fails(2, "expected byte", "tokenize", self.text, "-o", data, "--tokenizer", "letters")
        self.fails(2, "expected at least", "tokenize", self.text, "-o", data, "--tokenizer", "bpe", "--vocab-size", "9")

    def test_learned_positions_end(self):
        model = self.folder / "learned"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", model, "--position", "learned", *TINY_TRAINING)
        self.succeeds("eval", model, self.valid)
        self.fails(1, "32", "eval", model, self.valid, "--lengths", "33")

    def test_same_seed_same_model_at_any_number_of_threads(self):
        weights = []
        for threads in (1, 2):
            model = self.folder / f"threads-{threads}"
            self.succeeds("train", self.text, "--valid", self.valid, "-o", model, "--threads", threads, *TINY_TRAINING)
            weights.append((model / "model.safetensors").read_bytes())
        self.assertTrue(weights[0] == weights[1])
        self.assertTrue(weights[0] == (self.model / "model.safetensors").read_bytes())

    def test_compare(self):
        out = self.folder / "compare"
        text = self.succeeds("compare", self.text, "--valid", self.valid, "--methods", ",".join(METHODS),
                             "--train-length", "16", "--lengths", "16,24,128", "--tokens", "2k", "--batch-tokens", "256",
                             "--sample-tokens", "40", "--out", out, "--json", self.folder / "copy.json", "--seed", "5")
        self.assertIn("report.html", text)
        results = json.loads((out / "results.json").read_text())
        self.assertEqual(results, self.json_of("copy.json"))
        self.assertEqual((results["train_length"], results["seed"]), (16, 5))
        self.assertEqual([method["name"] for method in results["methods"]], list(METHODS))
        for method in results["methods"]:
            points = method["eval"]
            if method["name"] == "learned":
                self.assertTrue(all(point["perplexity"] is None for point in points if point["length"] > 16))
                points = [point for point in points if point["length"] <= 16]
                self.check_points(points, [16])
            else:
                self.check_points(points, [16, 24, 128])
            self.succeeds("info", out / method["model_folder"])
        for name in ("report.html", "figure.svg"):
            self.assertGreater((out / name).stat().st_size, 1000)


if __name__ == "__main__":
    unittest.main(verbosity=1)
