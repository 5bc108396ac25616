"""Measures what a token costs at several context lengths, and draws it on logarithmic axes: reading 512 more tokens of a
prompt, generating one more token, and training on sequences of that length. At most 16,384 keys are held.

    python bench/context_cost.py --alibi build/alibi --json cost.json --figure docs/explanation/context-cost.svg
    python bench/context_cost.py --from cost.json --figure cost.svg      # draws it again

Needs matplotlib. Takes five minutes on two cores.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

PROMPT, GENERATE, TRAIN, EVERY_KEY = "prompt", "generation", "training", "training, every key"


def measure(command, *words):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([command, "bench", *map(str, words), "--json", file.name], check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(file.name).read_text())


def all_costs(options):
    """{"lines": {name: [[tokens, seconds per token]...]}} and what was measured where."""
    contexts, lengths = ([str(2 ** n) for n in range(10, options.longest_exponent + 1, step)] for step in (2, 1))
    lengths = [n for n in lengths if int(n) <= options.longest_training]
    lines = {PROMPT: [], GENERATE: []}
    found = measure(options.alibi, "generate", "--preset", options.preset, "--precision", options.precision, "--contexts",
                    ",".join(contexts), "--seconds", 3, "--longest", 0.01)
    for point in found["points"]:
        lines[PROMPT].append([point["context"], 1 / point["prompt_tokens_per_second"]])
        lines[GENERATE].append([point["context"], point["token_seconds"]])
    trained = measure(options.alibi, "train", "--presets", options.preset, "--precision", options.precision, "--lengths",
                      ",".join(lengths), "--positions", "alibi,none", "--seconds", 10, "--longest", 120)
    for position, name in (("alibi", TRAIN), ("none", EVERY_KEY)):
        lines[name] = [[point["length"], point["seconds"] / point["tokens"]] for point in trained["points"]
                       if point["position"] == position and "seconds" in point]
    return {"preset": options.preset, "lines": lines, **{k: found[k] for k in ("cpu", "isa", "threads", "precision")}}


def draw(costs, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "alibi", "svg.fonttype": "none", "font.size": 11})
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(7.6, 4.4), layout="constrained")
    marks = {PROMPT: "o-", GENERATE: "s-", TRAIN: "^-", EVERY_KEY: "v--"}
    for name, points in costs["lines"].items():
        axes.plot(*zip(*points), marks[name], label=name)
    axes.set(xscale="log", yscale="log", xlabel="context, or training length, in tokens", ylabel="time per token")
    axes.set_xticks([2 ** n for n in range(10, 21, 2)], ["1 k", "4 k", "16 k", "64 k", "256 k", "1 M"])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda s, _: f"{s:g} s" if s >= 1 else f"{1e3 * s:g} ms" if s >= 1e-3 else f"{1e6 * s:g} us"))
    axes.grid(color="#dddddd")
    axes.legend(loc="center right")
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alibi", default="build/alibi", help="path of the command [build/alibi]")
    parser.add_argument("--preset", default="small", help="size of the model, with random weights [small]")
    parser.add_argument("--precision", default="auto", help="f32, bf16 or auto [auto]")
    parser.add_argument("--longest-exponent", type=int, default=20, help="contexts end at 2 to the power of this [20]")
    parser.add_argument("--longest-training", type=int, default=8192, help="training lengths end here [8192]")
    parser.add_argument("--from", dest="source", help="draw what this JSON file has, and measure nothing")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--figure", help="write the figure to this SVG file")
    options = parser.parse_args()
    costs = json.loads(pathlib.Path(options.source).read_text()) if options.source else all_costs(options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(costs, indent=2) + "\n")
    for name, points in costs["lines"].items():
        print(f"{name:20}", *(f"{tokens}: {1e6 * seconds:.4g} us" for tokens, seconds in points), sep="  ")
    if options.figure:
        draw(costs, options.figure)


if __name__ == "__main__":
    main()
