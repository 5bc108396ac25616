#!/usr/bin/env python3
"""Measures the training speed of several ranks with one thread each against one process with as many threads.

    bench/ranks.py --alibi build-openmpi/alibi --mpirun mpirun.openmpi --ranks 2 TEXT

The runs alternate. The best of each kind counts, because other programs only slow a run down. Each run is a whole
`alibi train` without checkpoints; its tokens per second are those of its --json.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

DEFAULT = ["--layers", "6", "--d-model", "256", "--heads", "8", "--train-length", "256", "--batch-tokens", "16384",
           "--micro-batch-tokens", "4096", "--train-tokens", "131072", "--checkpoint-minutes", "0", "--eval-tokens", "256"]


def tokens_per_second(command, folder):
    file = folder / "train.json"
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run([*command, "-o", folder / "model", "--overwrite", "--json", file], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    return json.loads(file.read_text(encoding="utf-8"))["train"]["tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--alibi", default="build-openmpi/alibi")
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--options", default=" ".join(DEFAULT), help="options of `alibi train` [%(default)s]")
    arguments = parser.parse_args()
    train = [os.path.abspath(arguments.alibi), "train", *map(os.path.abspath, arguments.texts), *arguments.options.split(),
             "--precision", arguments.precision, "--shards", str(arguments.ranks)]
    oversubscribe = ["--bind-to", "core"] if "openmpi" in arguments.mpirun else ["-bind-to", "core"]
    kinds = {"one process": [*train, "--threads", str(arguments.ranks)],
             "ranks": [arguments.mpirun, *oversubscribe, "-np", str(arguments.ranks), *train, "--threads", "1"]}
    best = dict.fromkeys(kinds, 0.0)
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(arguments.rounds):
            for kind, command in kinds.items():
                best[kind] = max(best[kind], tokens_per_second(command, pathlib.Path(temporary)))
    for kind, speed in best.items():
        print(f"{kind:<12} {speed:10,.0f} tokens/s")
    print(f"share of one process: {best['ranks'] / best['one process']:.3f}")


if __name__ == "__main__":
    main()
