"""Former names of options: accepted as before, by the command line and by files of options, and shown nowhere."""

import json
import unittest

from cli_case import TINY_TRAINING, CliTest, run

# command: {former name: (name, value)}; the value None is that of a flag.
FORMER = {
    "train": {"length": ("train-length", "32"), "tokens": ("train-tokens", "4k"), "warmup": ("warmup-fraction", "0.1"),
              "window": ("sliding-window", "16"), "bias-max": ("alibi-bias-max", "4"), "slopes": ("alibi-slopes", "0.25")},
    "compare": {"methods": ("positions", "alibi,none"), "tokens": ("train-tokens", "512"), "stream": ("one-pass", None),
                "speed-turns": ("timing-rounds", "0"), "fresh": ("overwrite", None)},
    "eval": {"stream": ("one-pass", None), "tolerance": ("eviction-tolerance", "1e-6")},
    "generate": {"tokens": ("max-tokens", "8"), "tolerance": ("eviction-tolerance", "1e-6")},
    "score": {"length": ("context-length", "16"), "tokens": ("per-token", None), "tolerance": ("eviction-tolerance", "1e-6")},
}


class FormerNames(CliTest):
    def test_help_does_not_show_them(self):
        for command, names in FORMER.items():
            text = self.succeeds(command, "--help", "all")
            for former, (name, _) in names.items():
                self.assertRegex(text, rf"\n  (-\w,)?--{name}\b")
                self.assertNotRegex(text, rf"--{former}[ ,\n]", command)
        self.assertNotRegex(self.succeeds("train", "--help", "all"), r"--causal\b")

    def test_completion_does_not_show_them(self):
        text = self.succeeds("completion", "bash")
        self.assertIn("--sliding-window", text)
        self.assertNotIn("--window", text)
        self.assertNotIn("--bias-max", text.replace("--alibi-bias-max", ""))

    def test_a_misspelled_one_leads_to_the_name_of_today(self):
        self.fails(2, "there is no option '--lenght' of 'alibi train'; did you mean '--train-length'?", "train", self.text,
                   "--lenght", "32")

    def test_both_names_are_refused(self):
        self.fails(2, "expected once", "generate", self.model, "--tokens", "3", "--max-tokens", "3")

    def test_train(self):
        given = {former: value for former, (_, value) in FORMER["train"].items() if former != "slopes"}
        words = [word for former, value in given.items() for word in (f"--{former}", value)]
        out, again, file = self.folder / "trained", self.folder / "again", self.folder / "options.json"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", out, "--batch-tokens", "512", *words)
        settings = json.loads((out / "train.json").read_text())
        for former, (name, value) in FORMER["train"].items():
            self.assertNotIn(former, settings)
        self.assertEqual([settings[name] for name in ("train-length", "train-tokens", "sliding-window", "alibi-bias-max")],
                         [32, 4000, 16, 4])
        file.write_text(json.dumps({"batch-tokens": 512, **given}))
        self.succeeds("train", self.text, "--valid", self.valid, "-o", again, "--config", file)
        self.assertEqual((again / "model.safetensors").read_bytes(), (out / "model.safetensors").read_bytes())

    def test_an_encoder(self):
        for folder, words in (("former", ("--causal", "false")), ("today", ("--no-causal",)), ("usual", ("--causal", "true"))):
            self.succeeds("train", self.text, "--valid", self.valid, "-o", self.folder / folder, *TINY_TRAINING, *words)
            used = json.loads((self.folder / folder / "train.json").read_text())
            self.assertEqual(used["causal"], folder == "usual")
        self.succeeds("train", "--config", self.folder / "usual/train.json", "-o", self.folder / "wins", "--no-causal")
        self.assertEqual(json.loads((self.folder / "wins/train.json").read_text())["causal"], False)

    def test_generate_eval_and_score(self):
        for words in (("generate", "--prompt", "the quick"), ("eval", self.valid), ("score", self.valid)):
            command, *arguments = words
            former, today = [], []
            for name, (now, value) in FORMER[command].items():
                former += [f"--{name}"] + [value] * (value is not None)
                today += [f"--{now}"] + [value] * (value is not None)
            results = [run(command, self.model, *arguments, *options) for options in (former, today)]
            self.assertEqual([result.returncode for result in results], [0, 0], results[0].stderr)
            if command != "eval":  # which prints its speed
                self.assertEqual(results[0].stdout, results[1].stdout)

    def test_compare(self):
        out = self.folder / "compared"
        words = [word for former, (_, value) in FORMER["compare"].items() for word in (f"--{former}", value) if word]
        self.succeeds("compare", self.text, "--valid", self.valid, "-o", out, "--train-length", "8", "--lengths", "8,32",
                      "--batch-tokens", "64", "--layers", "1", "--d-model", "16", "--heads", "2", "--eval-tokens", "256", *words)
        settings = json.loads((out / "settings.json").read_text())
        self.assertEqual({name: settings[name] for name in ("positions", "train-tokens", "one-pass")},
                         {"positions": ["alibi", "none"], "train-tokens": "512", "one-pass": True})


if __name__ == "__main__":
    unittest.main()
