"""Attention over tiles of a slide: attention_positions beside PyTorch's SDPA with the mask of distances.

    venv/bin/pip install torch . && venv/bin/python bench/peers/spatial.py --json spatial.json --markdown spatial.md

2-D Euclidean distances on a grid with holes, 12 heads of 64, float32. Each measurement has a process of its own, so that
its peak of memory is its own; ways take turns for --rounds rounds, and the least time counts. A way whose mask does not
fit the machine's memory is reported with the memory that it would need. The first rows of both are compared. At last,
positions 0 .. n - 1 in one dimension are timed beside the operator for counted distances.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

HEADS, HEAD_DIM = 12, 64


def inputs(tiles, line):
    """(coordinates, q, k, v) in NumPy; the points are a line or a slide."""
    import numpy as np

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"))
    from slide import slide

    coords = np.arange(tiles)[:, None] if line else slide(tiles)
    q, k, v = np.random.default_rng(1).standard_normal((3, 1, tiles, HEADS, HEAD_DIM), np.float32)
    return coords, q, k, v


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(way, tiles, backward):
    """One call in this process: seconds, growth of the peak, and the first rows of the result."""
    import numpy as np
    import torch

    import alibi_attention as alibi

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    coords, *arrays = inputs(tiles, way in ("line", "counted"))
    q, k, v = (torch.from_numpy(x).requires_grad_(backward) for x in arrays)
    slopes = torch.from_numpy(alibi.slopes(HEADS))
    tolerance = 0.0 if way == "positions, all keys" else 2**-24
    warm = torch.randn(1, 64, HEADS, HEAD_DIM)
    alibi.attention_positions(warm, warm, warm, coords[:64], alibi_slopes=slopes)  # the threads start
    before = peak()
    bias = 0.0
    if way == "sdpa with mask":
        start = time.perf_counter()
        points = torch.from_numpy(coords).float()
        mask = torch.cdist(points, points)[None] * -slopes[:, None, None]
        bias = time.perf_counter() - start
    start = time.perf_counter()
    if way == "sdpa with mask":
        heads = [x.transpose(1, 2) for x in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[None]).transpose(1, 2)
    elif way == "counted":
        out = alibi.attention(q, k, v, alibi_slopes=slopes, causal=False, tolerance=tolerance)
    else:
        out = alibi.attention_positions(q, k, v, coords, alibi_slopes=slopes, tolerance=tolerance)
    forward = time.perf_counter() - start
    result = {"forward": forward, "bias": bias}
    if backward:
        start = time.perf_counter()
        out.backward(torch.ones_like(out))
        result["backward"] = time.perf_counter() - start
    memory = peak() - before
    if way == "positions":
        result["visited"] = share_of_blocks(alibi, coords, arrays, tolerance)
    rows = np.ascontiguousarray(out.detach()[0, :3].numpy())
    return {**result, "memory": memory, "rows": rows.ravel().tolist()}


def share_of_blocks(alibi, coords, arrays, tolerance):
    """The share of the pairs of blocks that are visited."""
    import numpy as np

    out, lse = np.empty_like(arrays[0]), np.empty((1, HEADS, len(coords)), np.float32)
    options = (alibi.slopes(HEADS), "euclidean", 0, 0.0, tolerance, None, None, None, None)
    points = np.ascontiguousarray(coords[None], np.int32)
    visited, total = alibi._core.attention_positions(*arrays, points, None, out, lse, None, None, options, False)
    return visited / total


def run(way, tiles, backward):
    command = [sys.executable, __file__, "--measure", way, str(tiles)] + (["--backward"] if backward else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"spatial.py: {way} at {tiles} tiles failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def memory_of_machine():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def mask_bytes(tiles, backward):
    """The mask, and the distances that it is made of. PyTorch's backward pass also needs the weights of all rows."""
    return (HEADS + 1 + (2 * HEADS if backward else 0)) * 4 * tiles * tiles


def best(results):
    merged = dict(results[0])
    for key in ("forward", "backward", "bias", "memory"):
        if key in merged:
            merged[key] = min(result[key] for result in results)
    return merged


def table(results):
    lines = ["| tiles | way | forward s | backward s | mask s | memory GiB | us per tile | blocks visited |",
             "|---|---|---|---|---|---|---|---|"]
    for r in results:
        if "needs" in r:
            lines.append(f"| {r['tiles']} | {r['way']} | does not fit | | | {r['needs'] / 2**30:.1f} for masks alone | | |")
            continue
        backward = f"{r['backward']:.2f}" if "backward" in r else ""
        bias = f"{r['bias']:.2f}" if r["bias"] else ""
        visited = f"{100 * r['visited']:.0f} %" if "visited" in r else ""
        lines.append(f"| {r['tiles']} | {r['way']} | {r['forward']:.2f} | {backward} | {bias} | {r['memory'] / 2**30:.2f} | "
                     f"{1e6 * r['forward'] / r['tiles']:.1f} | {visited} |")  # fmt: skip
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiles", default="5000,20000,100000")
    parser.add_argument("--line", type=int, default=16384, help="tokens in one dimension; 0 disables it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--most-seconds", type=float, default=600, help="one round only for ways that take longer")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "TILES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure[0], int(given.measure[1]), given.backward)))
        return
    results = []
    plan = [(int(n), ["positions", "positions, all keys", "sdpa with mask"]) for n in given.tiles.split(",") if n]
    plan += [(given.line, ["line", "counted"])] if given.line else []
    for tiles, ways in plan:
        found = {}
        for turn in range(given.rounds):
            for way in ways:
                needs = mask_bytes(tiles, given.backward)
                if way == "sdpa with mask" and needs > 0.9 * memory_of_machine():
                    found[way] = [{"needs": needs}]
                elif turn == 0 or found[way][0]["forward"] * given.rounds <= given.most_seconds:
                    found.setdefault(way, []).append(run(way, tiles, given.backward))
        reference = found[ways[0]][0]["rows"]
        for way in ways:
            result = {"tiles": tiles, "way": way, **(found[way][0] if "needs" in found[way][0] else best(found[way]))}
            if "rows" in result:
                worst = max(abs(a - b) for a, b in zip(result.pop("rows"), reference, strict=True))
                if not worst <= 1e-4:
                    raise SystemExit(f"spatial.py: {way} at {tiles} tiles differs by {worst}")
            results.append(result)
        print(table(results[-len(ways):]), flush=True)
    text = table(results)
    if given.line:
        times = {r["way"]: r["forward"] for r in results if r["tiles"] == given.line and r["way"] in ("line", "counted")}
        text += f"\n\nOne dimension against counted distances: {times['line'] / times['counted']:.2f} times the time."
        print(text.splitlines()[-1])
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        pathlib.Path(given.markdown).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
