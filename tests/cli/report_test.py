"""alibi report: results.json files that are damaged, or hold numbers that no chart can show."""

import json
import pathlib
import subprocess
import sys
import unittest

from cli_case import CliTest, run


class ReportTest(CliTest):
    def test_damaged_results_are_refused_before_anything_is_written(self):
        run_of = {"method": "alibi", "train_length": 16, "seed": 1, "context": [{"context": 16, "nll": 4.0}],
                  "eval": [{"length": 16, "nll": 4.0, "perplexity": 54.6}]}
        results, out = self.folder / "results.json", self.folder / "drawn"
        whole = {"train_length": 16, "runs": [run_of]}
        texts = ["", "{", json.dumps(whole)[:-9], json.dumps(whole).replace("54.6", "1e999")]
        for remove in (("eval", "nll"), ("context", "context"), ("context", "nll"), ("eval", "length")):
            damaged = json.loads(json.dumps(whole))
            del damaged["runs"][0][remove[0]][0][remove[1]]
            texts.append(json.dumps(damaged))
        for text in texts:
            results.write_text(text)
            self.fails(1, results, "report", results, "-o", out)
            self.assertNotIn("exception", run("report", results, "-o", out).stderr)
            self.assertFalse(out.exists())
        for value in ("1e300", "1e308", "1e-320"):
            results.write_text(json.dumps(whole).replace("54.6", value))
            self.succeeds("report", results, "-o", out)
            self.assertIn("Not drawn: alibi at 16", (out / "report.html").read_text())

    def compared(self, name, *options):
        """The results and the page of a comparison of small models."""
        out = self.folder / name
        self.succeeds("compare", self.text, "--valid", self.valid, "-o", out, "--train-length", "16", "--batch-tokens", "512",
                      "--layers", "1", "--d-model", "16", "--heads", "2", "--sample-tokens", "0", *options)
        return json.loads((out / "results.json").read_text()), (out / "report.html").read_text()

    def test_after_little_training_no_sentence_claims_what_the_numbers_do_not_say(self):
        results, page = self.compared("little", "--positions", "alibi,t5", "--train-tokens", "1k", "--lengths", "16,64",
                                      "--eval-tokens", "512", "--timing-rounds", "0")
        self.assertEqual(results["advised_tokens"], 1000000)
        self.assertIn("Trained on 512 of the advised 1,000,000 tokens, so the order", page)
        self.assertIn("No method has learned enough to be compared.", page)
        note = "The position weights of t5 have 64 times the learning rate of the other weights."
        self.assertEqual(results["notes"], [note])
        self.assertIn(f"longer, with more --train-tokens. {note} ", page)
        settings = results["settings"].values()
        self.assertTrue(any(each.endswith(f"may suit some methods better than others. {note[:-1]}") for each in settings))
        self.assertTrue(any(each.startswith("512 tokens in 1 update of 512,") for each in settings))
        for claim in ("is marked", "okens per second"):
            self.assertNotIn(claim, page.split("<script")[0])
        self.assertNotIn("speed", results["report"]["tables"])
        self.assertTrue(all(method["has_not_learned"] for method in results["methods"]))
        results, page = self.compared("one-rate", "--positions", "t5", "--train-tokens", "1k", "--lengths", "16", "--eval-tokens",
                                "256", "--timing-rounds", "1", "--t5-rate-factor", "1")
        self.assertIn("speed", results["report"]["tables"])
        self.assertNotIn("times the learning rate", page)
        self.assertNotIn("longer than anything a model saw", page)

    def test_tasks_without_a_text(self):
        out = self.folder / "tasks"
        options = ("compare", "--tasks", "repeat,parity", "--positions", "alibi,none", "--train-length", "16", "--batch-tokens", "512",
                   "--task-tokens", "30k", "--task-questions", "40", "--learning-rate", "0.02", "--layers", "1", "--d-model", "16",
                   "--heads", "2", "-o", out)
        printed = self.succeeds(*options)
        self.assertIn("alibi and none answer up to distance 1 and in texts of up to 256 tokens", printed)
        self.assertRegex(printed, r"(?m)^repeat +6.2 % +1\* \(256\) +1\* \(256\)$")
        check = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check" / "results"
        subprocess.run([sys.executable, check, out / "results.json"], check=True, capture_output=True)
        results = json.loads((out / "results.json").read_text())
        self.assertEqual([task["name"] for task in results["tasks"]], ["repeat", "parity"])
        self.assertEqual((results["methods"], len(results["runs"])), ([], 4))
        page = (out / "report.html").read_text()
        self.assertIn("Trained at 16 tokens, tested at 256", page)
        # Another task is added, and the report is rebuilt from the results.
        self.succeeds("compare", "--resume", out, "--tasks", "repeat,parity,copy")
        self.assertEqual(self.succeeds("report", out, "-o", self.folder / "again").count("Copy, "), 1)
        self.assertIn("there is no task 'recalled'", run("compare", "--tasks", "recalled").stderr)

    def test_eval_tokens_mean_the_same_to_every_command(self):
        """Blocks that are spread evenly over the text: compare, eval and train score the same tokens."""
        lengths = ("--lengths", "16,64", "--eval-tokens", "320")
        results, _ = self.compared("scored", "--positions", "alibi", "--train-tokens", "1k", "--timing-rounds", "0", *lengths)
        model, out = self.folder / "scored/models/alibi-16-seed0", self.folder / "scored.json"
        self.succeeds("eval", model, self.valid, *lengths, "--json", out)
        for one, other in zip(results["methods"][0]["eval"], self.json_of("scored.json")["eval"], strict=True):
            for key in ("length", "tokens", "nll", "bits_per_byte"):
                self.assertEqual(one[key], other[key], key)
        self.assertEqual(other["tokens"], 320)
        self.succeeds("eval", model, self.valid, "--one-pass", "--eval-tokens", "320", "--json", out)
        self.assertEqual(self.json_of("scored.json")["stream"]["tokens"], 320)

        trained = self.folder / "trained"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", trained, "--train-length", "16", "--train-tokens", "1k",
                      "--batch-tokens", "512", "--layers", "1", "--d-model", "16", "--heads", "2", "--eval-tokens", "160",
                      "--eval-steps", "2", "--precision", "f32", "--json", out)
        train = self.json_of("scored.json")
        self.succeeds("eval", trained, "--held-out", "--lengths", "16", "--eval-tokens", "160", "--json", out)
        scored = self.json_of("scored.json")["eval"][0]
        self.assertEqual(train["eval"][0], {**scored, "tokens_per_second": train["eval"][0]["tokens_per_second"]})
        self.assertAlmostEqual(train["train"]["held_out"][0]["nll"], scored["nll"], places=6)
        first = self.folder / "first.txt"
        first.write_text(self.valid.read_text()[:160])
        self.succeeds("eval", trained, first, "--lengths", "16", "--json", out)
        self.assertNotAlmostEqual(self.json_of("scored.json")["eval"][0]["nll"], scored["nll"], places=4)
        self.fails(2, "--eval-tokens is 63, expected at least the longest length, 64", "eval", model, self.valid, "--lengths", "16,64",
                   "--eval-tokens", "63")
        self.fails(2, "--eval-tokens", "eval", model, self.valid, "--scoring", "harness", "--eval-tokens", "64")

    def test_damaged_notes_of_a_comparison_are_named(self):
        out = self.folder / "compared"
        command = ("compare", self.text, "--valid", self.valid, "-o", out, "--positions", "alibi", "--train-tokens", "1k",
                   "--train-length", "16", "--batch-tokens", "512", "--layers", "1", "--d-model", "16", "--heads", "2",
                   "--lengths", "16", "--eval-tokens", "256", "--timing-rounds", "1", "--sample-tokens", "0", "--tune",
                   "0.001,0.002")
        self.succeeds(*command)
        notes = sorted(out.glob("note-*.json"))
        self.assertGreaterEqual(len(notes), 2)
        for note in notes:
            whole = json.loads(note.read_text())
            names = whole["note"].get("names")
            of_speed = ({"names": 3}, {"names": names}, {"names": names, "speed": 3}, {"names": names, "speed": [{}]})
            for damaged in ({}, *(of_speed if names else ({"nll": 3}, {"nll": [{}]}, {"nll": [1, 2, 3]}))):
                note.write_text(json.dumps({**whole, "note": damaged}))
                self.fails(1, note, *command)
            note.write_text(json.dumps(whole))
        self.succeeds(*command)


if __name__ == "__main__":
    unittest.main()
