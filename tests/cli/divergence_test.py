"""Trainings that diverge, and models whose numbers overflow: an error that names the place, and nothing of value lost."""

import json
import struct
import unittest

from cli_case import CliTest, run

SMALL = ("--train-length", "16", "--batch-tokens", "100", "--layers", "1", "--d-model", "16", "--heads", "2", "--precision",
         "f32")
LAST_UPDATE = ("--train-tokens", "100", "--learning-rate", "1e19", *SMALL)  # the only one, after which no loss is computed
HUGE = 3e38


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Divergence(CliTest):
    def train(self, out, *options):
        return ("train", self.text, "--valid", self.valid, "-o", out, *options)

    def test_the_last_update_keeps_what_was_there(self):
        out = self.folder / "good"
        self.succeeds(*self.train(out, "--train-tokens", "3000", *SMALL))
        before = files_of(out)
        self.fails(1, "[train] step 1", *self.train(out, "--overwrite", *LAST_UPDATE))
        self.assertEqual(files_of(out), before)
        self.succeeds("eval", out, self.valid)
        self.assertIn("complete since update 30", self.succeeds("train", "--resume", out))

    def test_the_last_update_of_a_new_folder(self):
        for clip in ("1", "0"):
            out = self.folder / f"new-{clip}"
            self.fails(1, "[train] step 1", *self.train(out, "--clip", clip, *LAST_UPDATE))
            self.assertFalse((out / "model.safetensors").exists())
            self.assertEqual(list((out / "checkpoints").iterdir()), [])

    def test_a_checkpoint_is_never_of_a_broken_model(self):
        """Each update is followed by one, so the error names the update that broke the model, not the next one."""
        out = self.folder / "each"
        result = run(*self.train(out, "--train-tokens", "2000", "--learning-rate", "1e19", "--checkpoint-steps", "1", *SMALL))
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\[train\] step 1: .*(is not finite|overflows).*There is no checkpoint yet")
        self.assertEqual(list((out / "checkpoints").iterdir()), [])

    def test_weights_that_overflow_without_a_gradient(self):
        """The loss was ln 257 and the gradient 0, update after update."""
        result = run(*self.train(self.folder / "flat", "--train-tokens", "2000", "--learning-rate", "1e25", *SMALL))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stderr, r"\[train\] step \d+: ")

    def test_compare_goes_on_with_the_other_runs(self):
        out = self.folder / "compared"
        words = ("compare", self.text, "--valid", self.valid, "--out", out, "--positions", "alibi,none", "--train-tokens", "100",
                 "--train-length", "16", *SMALL[2:], "--lengths", "16,32", "--eval-tokens", "128", "--sample-tokens",
                 "8", "--timing-rounds", "1", "--learning-rate", "1e19")
        for _ in range(2):  # the second call draws what the first one did
            result = run(*words)
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertRegex(result.stderr, r"\[compare\] 2 of 2 runs diverged, expected none: alibi from seed 0: \[train\] step 1: ")
            self.assertIn("none from seed 0", result.stderr)
            self.assertIn("the training diverged", result.stdout)
        results = json.loads((out / "results.json").read_text())
        self.assertEqual([method["eval"][0]["error"] for method in results["methods"]], ["the training diverged"] * 2)
        self.assertTrue((out / "report.html").exists())
        # One rate that is too high among those to try is no error.
        tuned = ("compare", *words[1:5], self.folder / "tuned", *words[6:-2], "--tune", "0.001,1e19")
        self.assertIn("Report: ", self.succeeds(*tuned))


class Overflow(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.huge = cls.folder / "huge"
        trained = run("train", cls.text, "--valid", cls.valid, "-o", cls.huge, "--train-tokens", "300", *SMALL)
        assert trained.returncode == 0, trained.stderr
        file = cls.huge / "model.safetensors"
        content = bytearray(file.read_bytes())
        start = 8 + int.from_bytes(content[:8], "little")
        value = struct.pack("<f", HUGE)
        content[start:] = value * ((len(content) - start) // 4)
        file.write_bytes(content)

    def test_every_command_that_computes(self):
        line = self.folder / "line.txt"
        line.write_text("a line\n")
        for mentions, words in (("[evaluate] the loss of token 0", ("eval", self.huge, self.valid)),
                                ("[evaluate] the loss of token 0", ("eval", self.huge, self.valid, "--one-pass")),
                                ("[score] the loss of token 0", ("score", self.huge, line)),
                                ("[embed] the vector of text 0", ("embed", self.huge, line)),
                                ("[generate] the logit of token 0", ("generate", self.huge, "--temperature", "0")),
                                ("[generate] the logit of token 0", ("generate", self.huge, "--samples", "2"))):
            self.fails(1, mentions, *words)
            self.assertIn("overflows", run(*words).stderr)
            self.assertNotIn("nan", run(*words).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
