"""Turns the JSON files of the benchmarks into the tables of docs/explanation/benchmarks.md.

    build/alibi bench attention --json attention.json && python bench/tables.py attention.json
    python bench/peers/attention.py --alibi build/alibi --json peers.json && python bench/tables.py peers.json

and likewise those of `alibi bench train` and bench/peers/train.py.
"""

import json
import pathlib
import sys


def time_text(seconds):
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} us"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(titles, rows):
    return "\n".join([row(titles), "|" + "---|" * len(titles), *map(row, rows)]) + "\n"


def by_length(points, dtype, which):
    """length -> (point at tolerance 0, point at the least other tolerance); None if there is none."""
    found = {}
    for point in points:
        if (point["dtype"], point["pass"]) == (dtype, which):
            pair = found.setdefault(point["length"], [None, None])
            if "seconds" in point:
                pair[point["tolerance"] > 0] = point
    return found


def attention_rows(pairs, which, ceiling):
    for length, (dense, skipping) in sorted(pairs.items()):
        cells = [f"{length}", time_text(dense["seconds"]) if dense else "left out"]
        cells.append(f"{100 * dense['flops'] / dense['seconds'] / ceiling:.0f} %" if dense else "")
        if skipping:
            cells += [time_text(skipping["seconds"]), time_text(skipping["seconds"] / length),
                      f"{100 * skipping['visited']:.3g} %"]
        else:
            cells += ["left out", "", ""]
        cells.append(f"{dense['seconds'] / skipping['seconds']:.2f}" if dense and skipping else "")
        if which == "backward":
            cells += [f"{p['seconds'] / p['forward_seconds']:.2f}" if p else "" for p in (dense, skipping)]
        yield cells


def decode_rows(pairs, bandwidth):
    for context, (dense, skipping) in sorted(pairs.items()):
        cells = [f"{context}"]
        for point in (dense, skipping):
            share = point["bytes_read"] / point["seconds"] / bandwidth if point else 0
            cells += [time_text(point["seconds"]), f"{100 * share:.0f} %"] if point else ["", ""]
        cells += [f"{100 * skipping['visited']:.3g} %", f"{dense['seconds'] / skipping['seconds']:.1f}"] \
            if dense and skipping else ["", ""]
        yield cells


def attention(results):
    print(f"{results['cpu']}, {results['threads']} threads, `{results['isa']}`, alibi {results['version']}; "
          f"{results['heads']} heads, head_dim {results['head_dim']}, {results['position']}\n\n    {results['command']}\n")
    for dtype in ("float32", "bfloat16"):
        for which in ("forward", "backward"):
            pairs = by_length(results["points"], dtype, which)
            if not pairs:
                continue
            ceiling = results["ceilings"][dtype]["matmul"]
            title = "forward" if which == "forward" else "forward and backward"
            print(f"**{title}, {dtype}** (best oneDNN product: {ceiling / 1e9:.0f} GFLOP/s)\n")
            titles = ["length", "every key", "of peak", "skipping", "per token", "visited", "times faster"]
            if which == "backward":
                titles += ["ratio to forward, every key", "ratio to forward, skipping"]
            print(table(titles, attention_rows(pairs, which, ceiling)))
        pairs = by_length(results["points"], dtype, "decode")
        if pairs:
            bandwidth = results["bandwidth"][dtype]
            print(f"**decode, {dtype}** (memory is read at {bandwidth / 1e9:.1f} GB/s)\n")
            print(table(["context", "every key", "of peak", "skipping", "of peak", "visited", "times faster"],
                        decode_rows(pairs, bandwidth)))


def peers(results):
    print(f"PyTorch {results['torch']}; the peer's time over ours, which visits every key / skips at the default "
          "tolerance\n")
    names = list(dict.fromkeys(p["peer"] for p in results["points"]))
    groups = dict.fromkeys((p["pass"], p["dtype"]) for p in results["points"])
    for which, dtype in groups:
        points = [p for p in results["points"] if (p["pass"], p["dtype"]) == (which, dtype)]
        rows = []
        for length in sorted({p["length"] for p in points}):
            cells = [f"{length}"]
            for name in names:
                point = next((p for p in points if (p["length"], p["peer"]) == (length, name)), None)
                ratios = [f"{point['seconds'] / ours['seconds']:.1f}" if ours else "-"
                          for ours in (point["alibi_dense"], point["alibi"])] if point and point["seconds"] else []
                cells.append(" / ".join(ratios) if ratios else (point["note"].split(":")[0] if point else ""))
            rows.append(cells)
        print(f"**{which}, {dtype}**\n")
        print(table(["length", *names], rows))


def train(results):
    print(f"{results['cpu']}, {results['threads']} threads, `{results['isa']}`, alibi {results['version']}; best oneDNN "
          f"product: {results['ceilings']['matmul'] / 1e9:.0f} GFLOP/s\n\n    {results['command']}\n")
    rows = []
    for point in results["points"]:
        cells = [point["model"], point["precision"], f"{point['length']}", f"{point['tokens']}", point["position"]]
        if "seconds" in point:
            cells += [f"{point['tokens_per_second']:.0f}", time_text(point["seconds"]),
                      f"{point['of_first']:.3f}" if "of_first" in point else "",
                      f"{point['seconds'] / point['matmul_seconds']:.2f}", f"{100 * point['ceiling_share']:.0f} %",
                      f"{point['peak_bytes'] / 2**20:.0f} MiB"]
        else:
            cells += ["left out", "", "", "", "", ""]
        rows.append(cells)
    print(table(["preset", "type", "length", "tokens a step", "position", "tokens/s", "step", "ratio", "step over products",
                 "of peak", "memory"], rows))


def train_peers(results):
    print(f"PyTorch {results['torch']}, {results['threads']} threads; in brackets the peer's time and memory over ours\n")
    for point in results["points"]:
        ours = point["alibi"]
        rows = [["alibi", f"{point['tokens'] / ours['seconds']:.0f}", f"{ours['memory'] / 2**20:.0f} MiB"]]
        for way, peer in point["peers"].items():
            rows.append([way, peer["note"], ""] if peer.get("note") else
                        [way, f"{point['tokens'] / peer['seconds']:.0f} ({peer['seconds'] / ours['seconds']:.2f})",
                         f"{peer['memory'] / 2**20:.0f} MiB ({peer['memory'] / ours['memory']:.2f})"])
        print(f"**{point['preset']}, {point['precision']}, length {point['length']}, {point['tokens']} tokens a step** "
              f"({point['cpu']}, `{point['isa']}`)\n")
        print(table(["", "tokens/s", "memory"], rows))


def main():
    for file in sys.argv[1:] or [sys.exit(__doc__)]:
        results = json.loads(pathlib.Path(file).read_text())
        kinds = {"train": train, "train peers": train_peers}
        kinds.get(results.get("benchmark"), peers if "torch" in results else attention)(results)


if __name__ == "__main__":
    main()
