"""alibi report: results.json files that are damaged, or hold numbers that no chart can show."""

import json
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
