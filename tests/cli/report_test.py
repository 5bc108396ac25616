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


if __name__ == "__main__":
    unittest.main()
