"""Runs of `alibi train`: settings from files, plans, signals, resuming, full disks, early stop."""

import json
import math
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from cli_case import COMMAND, CliTest, METHODS, TINY_TRAINING, run

# Settings of the preset, and settings that most texts never need, are stored only if they were given.
WRITTEN_IF_GIVEN = ("field", "layers", "d-model", "heads", "embedding-scale", "no-causal", "bidirectional",
                    "alibi-bias-max", "alibi-slopes", "slope-training", "tolerance", "sliding-window", "t5-buckets", "t5-max-distance",
                    "t5-init", "t5-rate-factor", "kerple-rate-factor", "power-rate-factor", "partial-rotary-factor", "gate-slopes", "gate-tokens", "sinks", "ssmax",
                    "canon-kernel", "nope-layer-interval", "nope-heads", "full-attention-interval", "output-gate", "activation", "norm", "qk-norm", "qk-norm-per-head", "revision")


class TrainingConfig(CliTest):
    def write(self, settings):
        file = self.folder / "config.json"
        file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
        return file

    def test_held_out_text_that_is_trained_on_is_warned_of(self):
        both, out = self.folder / "both.txt", self.folder / "seen"
        both.write_text(self.text.read_text() + self.valid.read_text() + "the end\n")
        for command in (("train", both, "--valid", self.valid, "-o", out, *TINY_TRAINING),
                        ("compare", both, "--valid", self.valid, "-o", self.folder / "compared", "--positions", "alibi",
                         "--train-tokens", "1k", "--train-length", "16", "--batch-tokens", "512", "--layers", "1", "--d-model",
                         "16", "--heads", "2", "--lengths", "16,32", "--eval-tokens", "256", "--timing-rounds", "0",
                         "--sample-tokens", "0")):
            result = run(*command)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stderr, r"^alibi: warning: (9\d|100) % of the held-out text is in the training text")
            self.assertEqual(result.stderr.count("\n"), 1)
        self.assertIn("of the held-out text is in the training text", (self.folder / "compared/report.html").read_text())

    def test_every_setting_is_written_and_read_again(self):
        written = json.loads((self.model / "train.json").read_text())
        text = self.succeeds("train", "--help", "all")
        options = {name[2:] for name in re.findall(r"^ +(?:-o,)?(--[a-z0-9-]+)", text, re.MULTILINE)}
        # How to compute, not what; of two ways to say a thing the one that was taken; what the preset says.
        left_out = {"help", "from", "resume", "overwrite", "config", "plan", "ranks", "link", "update-seconds", "json", "threads", "epochs", "warmup-steps", "vocab-size",
                    "like", "download", *WRITTEN_IF_GIVEN}
        self.assertIn('\n  "train-length": 32,\n', (self.model / "train.json").read_text(), "a file that people can edit")
        self.assertEqual(options - left_out | {"text"}, set(written))
        again = self.folder / "again"
        self.succeeds("train", "--config", self.model / "train.json", "-o", again)
        self.assertEqual(json.loads((again / "train.json").read_text()), {**written, "out": str(again)})
        self.assertTrue((again / "model.safetensors").read_bytes() == (self.model / "model.safetensors").read_bytes())

    def test_the_command_line_wins(self):
        config = self.write({"text": [str(self.text)], "valid": str(self.valid), "train-length": 32, "train-tokens": "2k",
                             "batch-tokens": 512, "clip": 0.25, "warmup-fraction": 0.5, "optimizer": "nag"})
        out = self.folder / "wins"
        self.succeeds("train", "--config", config, "-o", out, "--clip", "0.75", "--warmup-steps", "1", "--epochs",
                      "0.1")
        used = json.loads((out / "train.json").read_text())
        self.assertEqual((used["clip"], used["warmup-steps"], used["optimizer"]), (0.75, 1, "nag"))
        self.assertNotIn("warmup-fraction", used)
        self.assertEqual(used["train-tokens"], math.ceil(0.1 * (self.text.stat().st_size + 1)))

    def test_every_option_reaches_the_run(self):
        default = json.loads((self.model / "train.json").read_text())
        names = ("alibi", "none"), ("f32", "bf16"), ("adamw", "nag"), ("cosine", "linear")
        fitting = {"train-length": 16, "train-tokens": 512, "batch-tokens": 256, "eval-steps": 1, "learning-rate": 0.125}
        untested = {"text", "valid", "out", "preset", "tokenizer", "min-count", "sequence-ranks"}

        def other(value):
            if isinstance(value, bool):
                return not value
            if isinstance(value, str):
                return next(b if value == a else a for a, b in names if value in (a, b))
            return value + 1 if isinstance(value, int) else value / 2 + 0.125

        given = {name: fitting.get(name, other(value)) for name, value in default.items() if name not in untested}
        out = self.folder / "all"
        options = [word for name, value in given.items() for word in
                   ([f"--{name}"] if value is True else [f"--{name}", str(value)])]
        self.succeeds("train", self.text, "--valid", self.valid, "-o", out, *options)
        used = json.loads((out / "train.json").read_text())
        self.assertEqual({name: used[name] for name in given}, given)
        self.assertEqual([name for name in given if used[name] == default[name]], [], "a value that shows nothing")
        self.assertEqual(set(used), set(given) | untested)

    def test_the_shape_and_the_slopes_are_the_users(self):
        out, again = self.folder / "shaped", self.folder / "shaped-again"
        given = {"layers": 1, "d-model": 32, "heads": 2, "alibi-slopes": [0.5, 0.125], "slope-training": "learned",
                 "tolerance": 0, "sliding-window": 16, "embedding-scale": 2}
        words = [word for name, value in given.items() for word in
                 (f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value))]
        self.succeeds("train", self.text, "--valid", self.valid, "-o", out, *TINY_TRAINING, *words)
        used = json.loads((out / "train.json").read_text())
        self.assertEqual({name: used[name] for name in given}, given)
        self.succeeds("train", "--config", out / "train.json", "-o", again)
        self.assertEqual((again / "model.safetensors").read_bytes(), (out / "model.safetensors").read_bytes())
        self.assertIn("training is complete", self.succeeds("train", "--resume", out))
        self.succeeds("info", out, "--json", self.folder / "info.json")
        info = self.json_of("info.json")
        self.assertEqual([info[key] for key in ("layers", "d_model", "heads", "embedding_scale", "slope_training",
                                                "sliding_window")], [1, 32, 2, 2, "learned", 16])
        (slopes,) = info["alibi_slopes"]
        for start, slope in zip((0.5, 0.125), slopes):
            self.assertNotEqual(slope, start, "learned")
            self.assertAlmostEqual(slope / start, 1, delta=0.2)
        self.assertIn("slope_training learned", info["differences"])
        self.assertIn("sliding_window 16", info["differences"])
        self.assertEqual(json.loads((out / "config.json").read_text())["architectures"], ["AlibiForCausalLM"])
        self.succeeds("train", self.text, "--valid", self.valid, "-o", self.folder / "fixed", *TINY_TRAINING, "--alibi-slopes",
                      "0.25")
        self.assertRegex(self.succeeds("info", self.folder / "fixed"), r"\nalibi_slopes +0.25 0.25 0.25 0.25\n")
        for wrong, mentions in (("0.5,steep", "steep"), ("-1", "-1"), ("0.5,0.5", "expected 4 for 4 heads"), ("", "")):
            self.fails(2, mentions, "train", self.text, "-o", self.folder / "unused", "--alibi-slopes", wrong)

    def test_causal_of_a_file_of_options(self):
        for causal, words in ((True, ()), (True, ("--no-causal",)), (False, ())):
            is_causal, out = causal and not words, self.folder / f"{causal}{len(words)}"
            self.succeeds("train", self.text, "--valid", self.valid, "-o", out, *TINY_TRAINING, *words,
                          "--config", self.write({"causal": causal}))
            self.assertEqual(json.loads((out / "train.json").read_text())["causal"], is_causal)
            self.assertEqual("AlibiForMaskedLM" in (out / "config.json").read_text(), not is_causal)

    def test_errors_name_the_key(self):
        out = self.folder / "unused"
        for settings, code, mentions in (
                ({"learning_rate": 1}, 2, "did you mean 'learning-rate'"), ({"cilp": 1}, 2, "did you mean 'clip'"),
                ({"clip": "wide"}, 2, "'clip'"), ({"clip": -1}, 2, "'clip'"), ({"train-length": 1.5}, 2, "'train-length'"),
                ({"train-length": {}}, 2, "'train-length'"), ({"valid": [[]]}, 2, "'valid'"), ({"config": "x"}, 2, "'config'"),
                ({"train-tokens": 5, "epochs": 1}, 2, "exclude"), ("{", 1, "config.json"), ("[]", 1, "config.json"),
                ({"preset": "huge"}, 2, "huge"), ({"schedule": "steep"}, 2, "fairseq")):
            self.fails(code, mentions, "train", self.text, "-o", out, "--config", self.write(settings))
        self.fails(1, "nowhere.json", "train", self.text, "-o", out, "--config", "nowhere.json")
        self.assertFalse(out.exists())


class TrainingDefaults(CliTest):
    def test_help_shows_the_numbers_that_a_run_takes(self):
        entries = re.split(r"\n(?=  -)", self.succeeds("train", "--help", "all"))  # long names have their text on another line
        shown = []
        for entry in entries:
            name = re.match(r"  --([a-z0-9-]+)[ ,]", entry)
            default = re.search(r"\[([^\]\s]+)( for tiny)?\]$", entry.split("\n\n")[0].rstrip())
            if name and default:
                shown.append((name[1], *default.groups()))
        self.succeeds("train", self.text, "-o", self.folder / "defaults", "--train-tokens", "5k")
        taken = json.loads((self.folder / "defaults" / "train.json").read_text())
        compared = 0
        for name, value, _ in shown:
            if name in ("train-tokens", "precision", "threads", "ranks", "link", *WRITTEN_IF_GIVEN):
                continue
            with self.subTest(name):
                self.assertEqual(str(taken[name]), str(type(taken[name])(value)))
                compared += 1
        self.assertGreater(compared, 20, shown)
        # What the presets do not share is not shown as if it were everybody's.
        for name in ("train-length", "batch-tokens", "learning-rate", "optimizer", "schedule", "warmup-fraction", "clip", "weight-decay",
                     "micro-batch-tokens", "period"):
            self.assertIn(name, [shown_name for shown_name, _, of_tiny in shown if of_tiny])
        text = self.succeeds("compare", "--help", "all")
        self.assertRegex(text, r"--train-length N [^\[]*Number of tokens in a training sequence \[128 for tiny\]")
        self.assertNotIn("the preset's", text)


class TrainingPlan(CliTest):
    def test_tells_before_it_starts(self):
        file = self.folder / "plan.json"
        text = self.succeeds("train", "--preset", "tiny", "--plan", "--train-tokens", "100k", "--json", file)
        self.assertIn("820,480 parameters", text)
        plan = json.loads(file.read_text())
        self.assertEqual(plan["parameters"], 820480)
        self.assertEqual(plan["updates"], 48)
        self.assertEqual(plan["bytes"]["gradients"], 4 * 820480)
        self.assertEqual(sum(v for k, v in plan["bytes"].items() if k != "all"), plan["bytes"]["all"])
        self.assertGreater(plan["seconds"], 0)
        self.fails(2, "--train-tokens", "train", "--plan", "--epochs", "2")
        self.succeeds("train", "--plan", "--batch-tokens", "8192", "--train-tokens", "81920", "--ranks", "4", "--shards", "4",
                      "--link", "1Gbit,1ms", "--update-seconds", "0.5", "--json", file)
        planned = self.json_of(file.name)
        self.assertEqual(planned["seconds"], 5)
        self.assertEqual(planned["ranks"]["seconds_per_update"]["compute"], 0.125)
        self.fails(2, "belong to --plan", "train", self.text, "--update-seconds", "1")

    def test_every_position_method_has_one(self):
        for position in METHODS:
            self.assertIn("on this machine", self.succeeds("train", "--plan", "--position", position, "--train-length", "48"))

    def test_memory_is_told_at_once(self):
        """The time takes a while to find out: it comes after what is known before."""
        with subprocess.Popen([COMMAND, "train", "--preset", "wikitext103", "--plan"], stdout=subprocess.PIPE,
                              text=True) as process:
            started = time.monotonic()
            lines = []
            while not lines or "FLOPs per token" not in lines[-1]:
                lines.append(process.stdout.readline())
                self.assertNotEqual(lines[-1], "", lines)
            at_once = time.monotonic() - started
            self.assertTrue(any("in all" in line for line in lines), lines)
            self.assertIsNone(process.poll(), "the time is not known yet")
            self.assertIn("on this machine", process.stdout.read())
            self.assertLess(at_once, (time.monotonic() - started) / 2)


class TrainingGoesOn(CliTest):
    LONG = ("--train-length", "32", "--train-tokens", "200k", "--batch-tokens", "256", "--checkpoint-minutes", "0")

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
        for name, number, code in (("int", signal.SIGINT, 130), ("term", signal.SIGTERM, 75),
                                   ("usr1", signal.SIGUSR1, 75), ("usr2", signal.SIGUSR2, 75)):
            out = self.folder / f"stopped-{name}"
            process = self.start(out, *self.LONG)
            process.send_signal(number)
            output, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code, errors)
            self.assertIn(f"alibi train --resume {out}", output)
            self.assertIn("a second signal", errors)
            done = self.updates(out)
            self.assertLess(done, 781)
            self.assertEqual([path.name for path in (out / "checkpoints").iterdir()], [f"step-{done:06}"])
            self.assertFalse((out / "model.safetensors").exists())
            self.fails(1, "resume it", "train", self.text, "-o", out, *self.LONG)
            self.fails(1, "learning_rate", "train", "--resume", out, "--learning-rate", "0.001")

    def test_a_second_signal_ends_at_once(self):
        out = self.folder / "stopped-twice"
        process = self.start(out, "--batch-tokens", "2M", "--train-tokens", "2M")  # one update, of minutes
        process.send_signal(signal.SIGINT)
        process.stderr.readline()
        self.assertIn("a second signal", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        self.assertEqual(list((out / "checkpoints").iterdir()), [])

    def test_a_run_keeps_its_precision(self):
        """With AVX2, auto chooses f32. A run that was started in bf16 continues in bf16."""
        avx2 = {"ALIBI_ISA": "avx2"}
        if run("info", "--cpu", environment=avx2).returncode != 0:
            self.skipTest("this CPU has no AVX2")
        out, compared = self.folder / "kept", self.folder / "kept-comparison"
        options = ("--valid", self.valid, *TINY_TRAINING)
        compare = ("compare", self.text, "--valid", self.valid, "--positions", "none", "--timing-rounds", "0",
                   "--sample-tokens", "0", "--lengths", "32", "--out", compared, *TINY_TRAINING)
        for words, why in ((("train", self.text, "-o", self.folder / "chosen", *options), "f32 (auto: the instruction set avx2"),
                           (("train", self.text, "-o", out, "--precision", "bf16", *options), "bf16 (as given)"),
                           (("train", "--resume", out), "bf16 (as before)"),
                           (("train", "--resume", out, "--precision", "auto"), "bf16 (as before)"),
                           ((*compare, "--precision", "bf16"), "bf16 (as given)"),
                           (compare, "bf16 (as before)"),
                           (("compare", "--resume", compared, "--precision", "auto"), "bf16 (as before)"),
                           ((*compare, "--overwrite"), "f32 (auto: the instruction set avx2")):
            result = run(*words, environment=avx2)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"Precision {why}", result.stdout)
        self.fails(1, "precision is", "train", "--resume", out, "--precision", "f32")
        self.fails(2, "precision is", *compare, "--precision", "bf16")

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
        refused = run("train", "--resume", self.model, "--learning-rate", "0.5")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("learning_rate is 0.5", refused.stderr)
        self.assertNotIn("complete", refused.stdout, "nothing is said of a run that does not continue")

    def test_progress_is_written_to_standard_error(self):
        process = self.start(self.folder / "long", "--train-length", "32", "--train-tokens", "500M", "--batch-tokens", "256",
                             "--eval-steps", "5", "--eval-tokens", "32", "--threads", "1")
        self.assertRegex(process.stderr.readline(), r"^update [\d,]+ of [\d,]+  loss \d")  # after ten seconds
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        self.assertRegex(output, r"\nupdate 5: held-out loss ")
        self.assertNotRegex(output, r"update [\d,]+ of ")

    def test_an_unfinished_run_names_its_checkpoint(self):
        whole = self.folder / "whole"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", whole, *TINY_TRAINING)
        out = self.folder / "unfinished"
        shutil.copytree(whole, out)
        for name in ("config.json", "model.safetensors"):
            (out / name).unlink()
        checkpoint = out / "checkpoints" / "step-000007"
        for command in ("eval", "info", "generate", "embed"):
            texts = (self.valid,) if command in ("eval", "embed") else ()
            self.fails(1, f"use its newest checkpoint, {checkpoint}, or finish it with `alibi train --resume {out}`", command, out,
                       *texts)
        expected = self.succeeds("eval", whole, "--held-out", "--lengths", "32").splitlines()[1].split()[:4]
        for name in (checkpoint, f"{checkpoint}/"):
            self.assertEqual(self.succeeds("eval", name, "--held-out", "--lengths", "32").splitlines()[1].split()[:4], expected)
        warned = run("eval", checkpoint, self.text, "--lengths", "32")
        self.assertIn("of this text was in the training text", warned.stderr)
        shutil.rmtree(checkpoint)
        self.fails(1, "has no checkpoint yet", "eval", out, self.valid)

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
        self.assertIn(f"update {int(saved[-1][5:])} is intact", failed.stderr)
        self.assertEqual(sorted(path.name for path in (out / "checkpoints").iterdir()), saved)
        self.succeeds("train", "--resume", out)
        self.assertTrue((out / "model.safetensors").read_bytes() == (self.model / "model.safetensors").read_bytes())

    def test_a_folder_that_is_removed_is_written_again(self):
        for gone in (".", "train.json", "metrics.jsonl", "trained_on.json", "checkpoints", "moved"):
            out = self.folder / "removed"
            process = self.start(out, "--train-length", "32", "--train-tokens", "60k", "--batch-tokens", "256", "--checkpoint-steps",
                                 "100", "--layers", "1", "--d-model", "64", "--heads", "2")
            while self.updates(out) < 2:
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            if gone == "moved":
                out.rename(self.folder / "removed-to")
            elif (out / gone).is_dir():
                shutil.rmtree(out / gone)
            else:
                (out / gone).unlink()
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, errors)
            self.assertIn("warning: ", errors)
            self.assertIn("written again", errors)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["step"] for line in lines], list(range(1, 235)), gone)
            self.assertIn("complete since update 234", self.succeeds("train", "--resume", out))
            self.succeeds("eval", out, "--held-out")
            shutil.rmtree(out)

    def test_early_stop_metrics_and_figure(self):
        out = self.folder / "early"
        other = self.folder / "other.txt"
        other.write_text("".join(f"{i} ZYX WVU TSR QPO NML\n" for i in range(300)))
        text = self.succeeds("train", self.text, "--valid", other, "-o", out, "--train-length", "32", "--train-tokens", "100k",
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


if __name__ == "__main__":
    unittest.main(verbosity=1)
