"""scripts/measure-peers: how it judges what the benchmarks write, and what it says where something is missing."""

import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

COMMAND = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/alibi"
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/measure-peers"
sys.dont_write_bytecode = True  # no scripts/__pycache__
loader = importlib.machinery.SourceFileLoader("measure_peers", str(SCRIPT))
measure = importlib.util.module_from_spec(importlib.util.spec_from_loader("measure_peers", loader))
loader.exec_module(measure)


def run(*arguments):
    return subprocess.run([SCRIPT, "--alibi", COMMAND, *arguments], text=True, capture_output=True, check=False)


class MeasurePeersTest(unittest.TestCase):
    def test_limits_on_both_sides(self):
        self.assertEqual(measure.judged("a", 0.5, 0.8, 0.8, "%"), ("a", "50 %", "80 %", ">= 80 %", "met"))
        self.assertEqual(measure.judged("a", None, 1.6, 1.5, "us", True), ("a", "-", "1.60 us", "<= 1.50 us", "**missed**"))
        self.assertEqual(measure.judged("a", None, "no peer", 2.0)[2:], ("no peer", ">= 2.00", "not measured"))
        self.assertEqual(measure.judged("a", None, 3.0)[2:], ("3.00", "", ""))

    def test_attention_takes_the_fastest_peer(self):
        point = {"pass": "forward", "dtype": "float32", "length": 2048, "alibi_dense": {"seconds": 2.0}, "alibi": {"seconds": 1.0}}
        points = [dict(point, peer="slow", seconds=9.0), dict(point, peer="fast", seconds=5.0), dict(point, peer="none", seconds=None)]
        rows = list(measure.attention_rows(points))
        self.assertEqual([row[2] for row in rows], ["2.50", "5.00"])
        self.assertIn("(fast), of ours (every key)", rows[0][0])
        self.assertEqual(next(measure.attention_rows(points[2:]))[2], "left out")

    def test_servers(self):
        results = [{"type": "q8_0", "what": "generated, 1 client", "server": server, "tokens_per_second": rate}
                   for server, rate in (("alibi", 110.0), ("llama.cpp", 100.0))]
        (row,) = measure.served_rows(results, rounded=True)
        self.assertEqual(row[2:], ("1.10", ">= 1.10", "met"))
        (row,) = measure.served_rows(results, rounded=False)
        self.assertEqual(row[2:], ("1.10", "", ""))

    def test_embeddings_take_the_best_round(self):
        results = [{"way": way, "job": "512", "tokens_per_second": rate}
                   for way, rate in (("alibi", 1.0), ("alibi", 3.0), ("onnxruntime", 1.0), ("llama.cpp", 2.0))]
        (row,) = measure.embedding_rows(results, "f32")
        self.assertEqual(row[2:], ("1.50", ">= 2.00", "**missed**"))
        (row,) = measure.embedding_rows(results[:2], "f32")
        self.assertEqual(row[2:], ("no peer is installed", ">= 2.00", "not measured"))

    def test_wrong_options(self):
        for arguments, message in ((["--points", "speed"], "speed is not known, expected some of amx,"),
                                   (["--llama-server", "nothing/there"], "nothing/there is not a program")):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(message, done.stderr)

    def test_a_run_without_peers(self):
        done = run("--points", "served,step,calls", "--quick", "--seconds", "0", "--python", sys.executable, "--before", COMMAND)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
        self.assertIn("--llama-server was not given", rows[0])
        self.assertRegex(rows[1][0], "^training, tiny")
        self.assertRegex(rows[1][1], r"^\d+ %$")  # before
        self.assertRegex(rows[1][2], r"^\d+ %$")


if __name__ == "__main__":
    unittest.main()
