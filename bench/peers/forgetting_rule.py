"""Counts the blocks that attention with forget gates visits, beside those of the Forgetting Transformer's own rule
(adaptive computation pruning, arXiv 2504.06949) on the same inputs at the same tolerance t: a block of queries i and keys
j is skipped if 2 scale max|q| max|k| + (the sum of log f over (j, i], of its nearest corner) < ln t - ln(keys), with the
largest norms of the head. With ln(keys), as its authors have it, it bounds the sum of the weights that are left out, as
alibi's rule does. Without, it would bound each of them. Both are printed.

    alibi bench capture model/ novels/valid --length 8192 --out qkv.safetensors
    python bench/peers/forgetting_rule.py --alibi build/alibi --tensors qkv.safetensors
    python bench/peers/forgetting_rule.py --alibi build/alibi --length 8192      # random inputs
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

KEYS = 64  # of a block


def random_layer(length, heads, head_dim):
    """N(0, 1), and gates of -|N(0, 1)| whose means are the published slopes."""
    draw = np.random.default_rng(0).standard_normal
    q, k, v = (draw((1, length, heads, head_dim), np.float32) for _ in range(3))
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    gates = -np.abs(draw((1, length, heads), np.float32)) * math.sqrt(math.pi / 2) * slopes.astype(np.float32)
    return {"layers.0.q": q, "layers.0.k": k, "layers.0.v": v, "layers.0.log_decay": gates}


def their_share(tensors, rows, threshold):
    """The share of the blocks on and below the diagonal that their rule visits."""
    visited = total = 0
    layer = 0
    while f"layers.{layer}.q" in tensors:
        q, k, gates = (tensors[f"layers.{layer}.{name}"][0].astype(np.float64) for name in ("q", "k", "log_decay"))
        length, heads, head_dim = q.shape
        norms = [np.linalg.norm(x, axis=-1).max(0) for x in (q, k)]  # [heads]
        sums = gates.cumsum(0)
        first = np.arange(0, length, rows)                          # query of a block
        last_key = np.minimum(np.arange(0, length, KEYS) + KEYS - 1, length - 1)
        seen = np.arange(0, length, KEYS)[None] <= np.minimum(first + rows - 1, length - 1)[:, None]
        for head in range(heads):
            bound = 2 * norms[0][head] * norms[1][head // (heads // k.shape[1])] / math.sqrt(head_dim)
            decay = sums[first, head][:, None] - sums[last_key, head][None]
            decay[last_key[None] >= first[:, None]] = 0  # on the diagonal
            visited += int((seen & (bound + decay >= threshold)).sum())
            total += int(seen.sum())
        layer += 1
    return visited / total, total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alibi", required=True, help="path of the alibi command")
    parser.add_argument("--tensors", help="a file of `alibi bench capture` [random inputs]")
    parser.add_argument("--length", type=int, default=8192, help="of random inputs")
    parser.add_argument("--heads", type=int, default=8, help="of random inputs")
    parser.add_argument("--head-dim", type=int, default=64, help="of random inputs")
    parser.add_argument("--rows", type=int, default=48, help="queries of a block")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = options.tensors or pathlib.Path(folder) / "random.safetensors"
        if not options.tensors:
            save_file(random_layer(options.length, options.heads, options.head_dim), file, {"causal": "true"})
        tensors = load_file(file)
        if "layers.0.log_decay" not in tensors:
            raise SystemExit(f"forgetting_rule.py: {file} has no layers.0.log_decay; capture a model with --position gates")
        length = tensors["layers.0.q"].shape[1]
        result = subprocess.run([options.alibi, "bench", "attention", "--tensors", file, "--dtype", "f32", "--pass", "forward",
                                 "--lengths", str(length), "--tolerance", f"{2**-24},{2**-11}", "--seconds", "0.01",
                                 "--longest", "600", "--json", "-"], check=True, stdout=subprocess.PIPE)
    for point in json.loads(result.stdout)["points"]:
        threshold = math.log(point["tolerance"])
        weights, blocks = their_share(tensors, options.rows, threshold)
        sums, _ = their_share(tensors, options.rows, threshold - math.log(length))
        print(f"{length} tokens, tolerance {point['tolerance']:.2g}, about {blocks} blocks: alibi {point['visited']:.4f}, "
              f"theirs {weights:.4f} (each weight; ratio {point['visited'] / weights:.2f}), {sums:.4f} (their sum; "
              f"ratio {point['visited'] / sums:.2f})")


if __name__ == "__main__":
    main()
