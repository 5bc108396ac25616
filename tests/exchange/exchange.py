"""Exchanges files between two builds of alibi, which may be for two processors.

    exchange.py --here 'COMMAND' --there 'COMMAND'

Each command is a path of alibi, perhaps after an emulator. In both directions: a model folder that one build wrote is
evaluated by the other, a folder of tokens is read by the other and has the same bytes, and a training that was stopped
is resumed by the other. Losses of models must agree to 1e-6, and those of the resumed training to 1e-5: sums are rounded
in another order on another processor, so the bits of weights differ.
"""

import argparse
import json
import pathlib
import shlex
import signal
import subprocess
import tempfile
import time

SENTENCE = "the quick brown fox jumps over the lazy dog and runs away from number {}\n"
STEPS, STOP = 24, 12
# A small model, because one of the builds may be emulated.
SIZE = ("--layers", "2", "--d-model", "32", "--heads", "4", "--train-length", "32", "--batch-tokens", "256")
SETTINGS = (*SIZE, "--train-tokens", str(256 * STEPS), "--precision", "f32", "--checkpoint-steps", str(STOP),
            "--eval-tokens", "500", "--threads", "2")
PATIENCE = 300  # seconds


def run(build, *arguments):
    command = [*build, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise SystemExit(f"exchange: {shlex.join(command)}\nended with {done.returncode}: {done.stderr}")
    return done.stdout


def nll(build, model, text):
    return json.loads(run(build, "eval", model, text, "--lengths", "32,128", "--json", "-"))["eval"]


def losses(model):
    lines = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def train_until_checkpoint(build, text, model):
    command = [*build, "train", str(text), "-o", str(model), *SETTINGS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and not list((model / "checkpoints").glob(f"step-*{STOP}")):
        if time.monotonic() > end:
            process.kill()
            raise SystemExit(f"exchange: {shlex.join(command)} wrote no checkpoint in {PATIENCE} seconds")
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


def check(what, found, expected, tolerance):
    worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    print(f"{what}: largest difference {worst:.2e}, allowed {tolerance:.0e}")
    if not worst <= tolerance:
        raise SystemExit(f"exchange: {what} differs: found {found}, expected {expected}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", required=True)
    parser.add_argument("--there", required=True)
    arguments = parser.parse_args()
    builds = {"here": shlex.split(arguments.here), "there": shlex.split(arguments.there)}
    with tempfile.TemporaryDirectory(prefix="alibi-exchange-") as path:
        folder = pathlib.Path(path)
        text, held_out = folder / "text.txt", folder / "held-out.txt"
        text.write_text("".join(SENTENCE.format(i) for i in range(400)))
        held_out.write_text("".join(SENTENCE.format(i) for i in range(1000, 1020)))
        for writer, reader in (("here", "there"), ("there", "here")):
            way = f"{writer} to {reader}"
            model, stopped, tokens = (folder / f"{name}-{writer}" for name in ("model", "stopped", "tokens"))
            run(builds[writer], "train", text, "-o", model, *SETTINGS)
            written, read = ([entry["nll"] for entry in nll(builds[build], model, held_out)] for build in (writer, reader))
            check(f"{way}: evaluation of a model", read, written, 1e-6)

            train_until_checkpoint(builds[writer], text, stopped)
            run(builds[reader], "train", "--resume", stopped)
            whole, resumed = losses(model), losses(stopped)
            later = [step for step in whole if step > STOP]
            check(f"{way}: losses of {len(later)} steps of a resumed training", [resumed[s] for s in later],
                  [whole[s] for s in later], 1e-5)

            run(builds[writer], "tokenize", text, "-o", tokens, "--tokenizer", "words")
            run(builds[reader], "train", tokens, "-o", folder / f"from-{writer}", *SIZE, "--train-tokens",
                "512")
        names = [sorted(p.relative_to(folder / f"tokens-{b}") for p in (folder / f"tokens-{b}").rglob("*")) for b in builds]
        same = names[0] == names[1] and all((folder / "tokens-here" / name).read_bytes() ==
                                            (folder / "tokens-there" / name).read_bytes()
                                            for name in names[0] if (folder / "tokens-here" / name).is_file())
        print(f"folders of tokens: {'the same bytes' if same else 'they differ'}, and trained on by the other")
        if not same:
            raise SystemExit(f"exchange: the folders of tokens differ: {names}")


if __name__ == "__main__":
    main()
