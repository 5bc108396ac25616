"""Measures two builds of alibi alternately, and prints what the second changed, row by row.

    python bench/before_after.py OLD/alibi build/alibi
    python bench/before_after.py OLD/alibi build/alibi --rounds 5 --seconds 3 --json before_after.json

Each row is measured with both commands, one directly after the other, and in the next round in the other order. The
shortest time of each counts, so that a slow phase of the machine does not decide. The share of peak is that of the best
rate of matrix products in any run of that data type. Run it with nothing else on the machine: about 10 minutes.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

# The goals are shares of peak.
ATTENTION = [(dtype, length) for dtype in ("bf16", "f32") for length in (128, 512, 2048, 8192)]
ATTENTION_GOALS = {("bf16", 512): 0.5, ("bf16", 2048): 0.7, ("bf16", 8192): 0.7, ("f32", 512): 0.75}
TRAINING = [("tiny", 128, "auto"), ("tiny", 128, "f32"), ("small", 1024, "bf16"), ("small", 1024, "f32")]


def measure(command, words, seconds):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([command, "bench", *map(str, words), "--seconds", str(seconds), "--json", file.name],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(file.name).read_text())


def attention(command, dtype, length, seconds):
    """{pass: (seconds, GFLOP/s)} and the rate of products in the same run."""
    found = measure(command, ["attention", "--dtype", dtype, "--lengths", length, "--tolerance", 0, "--pass",
                              "forward,backward", "--longest", 30], seconds)
    rates = {point["pass"]: (point["best_seconds"], point["flops"] / point["best_seconds"] / 1e9)
             for point in found["points"]}
    return rates, max(ceiling["matmul"] for ceiling in found["ceilings"].values()) / 1e9


def training(command, preset, length, precision, seconds):
    """Tokens per second, and the products' share of the step."""
    point = measure(command, ["train", "--presets", preset, "--lengths", length, "--precision", precision],
                    seconds)["points"][0]
    return point["tokens"] / point["best_seconds"], point["matmul_share"], point["precision"]


def alternately(commands, rounds, run):
    """The results of each command, round after round."""
    results = ([], [])
    for number in range(rounds):
        for which in ((0, 1) if number % 2 == 0 else (1, 0)):
            results[which].append(run(commands[which]))
    return results


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    commands = (options.old, options.new)
    record = {"old": options.old, "new": options.new, "attention": [], "training": []}

    peaks, rows = {}, []
    for dtype, length in ATTENTION:
        results = alternately(commands, options.rounds, lambda command: attention(command, dtype, length, options.seconds))
        peaks[dtype] = max([peaks.get(dtype, 0), *(peak for side in results for _, peak in side)])
        for which in ("forward", "backward"):
            best = [min(rates[which] for rates, _ in side) for side in results]
            rows.append((dtype, length, which, best))
    print("Attention, causal, 8 heads of 64, every key; `backward` is forward and backward\n")
    row("type, length, pass", "before", "after", "ratio", "share of peak before", "after", "goal")
    row(*["---"] * 7)
    for dtype, length, which, ((old, old_rate), (new, new_rate)) in rows:
        goal = ATTENTION_GOALS.get((dtype, length))
        row(f"{dtype}, {length}, {which}", f"{1e3 * old:.3g} ms", f"{1e3 * new:.3g} ms", f"{old / new:.2f}",
            f"{old_rate / peaks[dtype]:.0%}", f"{new_rate / peaks[dtype]:.0%}", f"{goal:.0%}" if goal else "")
        record["attention"].append({"dtype": dtype, "length": length, "pass": which, "before": old, "after": new,
                                    "peak": peaks[dtype], "rate_before": old_rate, "rate_after": new_rate})
    print(f"\nBest products: {', '.join(f'{name} {rate:.0f} GFLOP/s' for name, rate in peaks.items())}\n")

    print("Training steps of 8192 tokens\n")
    row("preset, length, precision", "tokens/s before", "after", "ratio", "share of products before", "after")
    row(*["---"] * 6)
    for preset, length, precision in TRAINING:
        results = alternately(commands, options.rounds,
                           lambda command: training(command, preset, length, precision, options.seconds))
        (old, old_share, old_name), (new, new_share, new_name) = (max(side) for side in results)
        name = new_name if old_name == new_name else f"{old_name}, now {new_name}"
        row(f"{preset}, {length}, {precision} ({name})", f"{old:.0f}", f"{new:.0f}", f"{new / old:.2f}",
            f"{old_share:.0%}", f"{new_share:.0%}")
        record["training"].append({"preset": preset, "length": length, "precision": precision, "before": old,
                                   "after": new, "share_before": old_share, "share_after": new_share})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
