"""scripts/measure-amx: what it says where there is no AMX, and how it judges what the benchmarks write."""

import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

COMMAND = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/alibi"
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/measure-amx"
sys.dont_write_bytecode = True  # no scripts/__pycache__
loader = importlib.machinery.SourceFileLoader("measure_amx", str(SCRIPT))
measure = importlib.util.module_from_spec(importlib.util.spec_from_loader("measure_amx", loader))
loader.exec_module(measure)


def judged(figures):
    return {what: (measured, verdict) for what, measured, _, verdict in figures}


class MeasureAmxTest(unittest.TestCase):
    def test_refuses_machines_without_amx(self):
        done = subprocess.run([SCRIPT, "--alibi", COMMAND], env=dict(os.environ, ALIBI_ISA="avx2"), text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn("its best instruction set is avx2", done.stderr)

    def test_attention(self):
        points = []
        for length in measure.LENGTHS:
            for tolerance in (0, 0.5):
                points += [{"pass": "forward", "length": length, "tolerance": tolerance, "flops": 6e9, "seconds": 0.01},
                           {"pass": "backward", "length": length, "tolerance": tolerance, "seconds": 0.04,
                            "forward_seconds": 0.01}]
        points[0]["seconds"] = 0.011
        points[1]["seconds"] = 0.036
        del points[-1]["seconds"]
        for context in measure.CONTEXTS:
            points.append({"pass": "decode", "length": context, "tolerance": 0, "bytes_read": 4e9, "seconds": 0.05})
        found = judged(measure.attention_figures({"ceilings": {"bfloat16": {"matmul": 1e12}}, "points": points,
                                                  "bandwidth": {"bfloat16": 1e11}}))
        self.assertEqual(len(found), 3 + 6 + 2)
        self.assertEqual(found["forward, every key, 2048: rate, of oneDNN's best"], ("55 %", "**missed**"))
        self.assertEqual(found["forward, every key, 8192: rate, of oneDNN's best"], ("60 %", "met"))
        self.assertEqual(found["forward and backward, every key, 2048: time, of forward"], ("3.60", "met"))
        self.assertEqual(found["forward and backward, skipping, 2048: time, of forward"], ("4.00", "**missed**"))
        self.assertEqual(found["forward and backward, skipping, 16384: time, of forward"], ("left out", "not measured"))
        self.assertEqual(found["decode, every key, 4096: rate of reading, of memory's best"], ("80 %", "met"))

    def test_training(self):
        points = [{"model": "base", "seconds": 2, "matmul_seconds": 1, "matmul_flops": 9e11},
                  {"model": "small", "seconds": 2, "matmul_seconds": 1, "matmul_flops": 5e11}]
        found = judged(measure.training_figures({"ceilings": {"matmul": 1e12}, "points": points}))
        self.assertEqual(found["training, base, 1024: step, of its products"], ("2.00", "**missed**"))
        self.assertEqual(found["training, small, 1024: step, of its products"], ("2.00", "met"))
        self.assertEqual(found["training, base, 1024: products, of oneDNN's best"], ("90 %", ""))

    def test_peers(self):
        eager, best = "PyTorch's step, eager, of ours", "PyTorch's best step, of ours"
        prefix = "training, small, 1024: "
        point = {"alibi": {"seconds": 1}, "peers": {"eager, sdpa": {"seconds": 3.5}, "compiled, sdpa": {"seconds": 1.5}}}
        found = judged(measure.peer_figures({"points": [point]}))
        self.assertEqual(found[prefix + eager], ("3.50", "met"))
        self.assertEqual(found[prefix + best], ("1.50", "**missed**"))
        point["peers"] = {way: {"note": "failed: no compiler"} for way in measure.WAYS}
        found = judged(measure.peer_figures({"points": [point]}))
        self.assertEqual(found[prefix + eager][1], "not measured")
        self.assertIn("no compiler", found[prefix + best][0])
        self.assertEqual(judged(measure.peer_figures("PyTorch is not installed"))[prefix + best],
                         ("PyTorch is not installed", "not measured"))


if __name__ == "__main__":
    unittest.main()
