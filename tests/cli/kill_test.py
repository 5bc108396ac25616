"""Kills `alibi train` again and again, resumes it, and compares with a run that was left alone, byte by byte.

    kill_test.py PATH-OF-ALIBI [--kills 5] [--seed 1]

Each life of the process ends by SIGKILL after a random time, also while it reads the text or writes a checkpoint; every
life has another number of threads. What must be the same in the end: the weights, the losses, the held-out losses and
the settings. metrics.jsonl must have every step once.
"""

import json
import pathlib
import random
import sys

import kills

STEPS = 160
SETTINGS = ("--train-length", "16", "--batch-tokens", "64", "--train-tokens", str(64 * STEPS), "--dropout", "0.1",
            "--checkpoint-steps", "6", "--eval-steps", "40", "--eval-tokens", "500", "--seed", "7")


def command(arguments, text, model, threads, *more):
    return [arguments.alibi, "train", str(text), "-o", str(model), *SETTINGS, "--threads", str(threads),
            "--json", str(model) + ".json", *more]


def lives(arguments, text, model, seconds):
    """Runs until the training ends by itself; returns how often it was killed, and how far it was each time."""
    dice = random.Random(arguments.seed)
    steps = []
    # If the machine is faster than it was, a run may end before all kills are done: then it starts again.
    while True:
        is_last = len(steps) >= arguments.kills
        # Lives that are on average a little longer than it takes to get going, now and then very short ones.
        limit = None if is_last else dice.uniform(0, 0.1 if dice.random() < 0.2 else seconds)
        ended = kills.live(command(arguments, text, model, 1 + len(steps) % 2, "--resume"), limit)
        if ended is None:
            metrics = model / "metrics.jsonl"
            steps.append(metrics.read_bytes().count(b"\n") if metrics.exists() else 0)
            if steps[-1] * arguments.kills < STEPS * len(steps):
                seconds *= 1.1  # the kills are to be spread over the whole run
            continue
        code, output = ended
        if code != 0:
            sys.exit(f"a resumed run failed with exit code {code}:\n{output}")
        if is_last:
            return steps
        print(f"complete after {len(steps)} kills, starting again with shorter lives")
        seconds *= 0.7
        for file in sorted(model.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()


def compare(expected, found):
    def results(model):
        result = json.loads(pathlib.Path(str(model) + ".json").read_text())
        settings = json.loads((model / "train.json").read_text())
        settings.pop("out")
        metrics = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
        return {"weights": (model / "model.safetensors").read_bytes(),
                "losses": result["train"]["loss"],
                "held-out losses": result["train"]["held_out"],
                "evaluation": result["eval"][0]["nll"],
                "settings": settings,
                "steps of the metrics": [line["step"] for line in metrics],
                "losses of the metrics": [line["loss"] for line in metrics]}

    one, other = results(expected), results(found)
    wrong = [name for name in one if one[name] != other[name]]
    if other["steps of the metrics"] != list(range(1, STEPS + 1)):
        wrong.append("metrics without gaps")
    leftovers = kills.half_written(found)
    if leftovers:
        wrong.append(f"no half-written files ({', '.join(leftovers)})")
    return wrong


def main():
    arguments = kills.arguments_of(__doc__, kills=5)
    with kills.folder_with_text("kill-test") as (folder, text):
        undisturbed = kills.seconds_of(command(arguments, text, folder / "undisturbed", 1))
        steps = lives(arguments, text, folder / "killed", max(0.3, 3 * undisturbed / arguments.kills))
        wrong = compare(folder / "undisturbed", folder / "killed")
    print(f"{len(steps)} kills, after updates {', '.join(map(str, steps))} of {STEPS}; "
          f"undisturbed: {undisturbed:.1f} s")
    if wrong:
        sys.exit("not as in the undisturbed run: " + ", ".join(wrong))
    print("The same bits.")


if __name__ == "__main__":
    main()
