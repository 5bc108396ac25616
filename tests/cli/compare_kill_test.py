"""Kills `alibi compare` again and again, calls it again, and compares with one that was left alone.

    compare_kill_test.py PATH-OF-ALIBI [--kills 6] [--seed 1]

Each life of the process ends by SIGKILL after a random time: while it reads, trains, evaluates, generates or writes.
What must be the same in the end: everything in results.json but times, speeds and memory, and the weights.
"""

import json
import random
import subprocess
import sys

import kills

SETTINGS = ("--positions", "none,rotary+alibi", "--seeds", "2", "--train-length", "16", "--lengths", "16,48,256", "--stride",
            "8", "--batch-tokens", "64", "--train-tokens", "4k", "--eval-tokens", "1024", "--sample-tokens", "60", "--dropout",
            "0.1", "--seed", "7")
OF_THE_MACHINE = {"seconds", "tokens_per_second", "peak_bytes", "eval_peak_bytes", "started", "command", "threads",
                  "machine", "speed", "speed_note", "ways", "cost"}


def command(arguments, text, out, threads):
    return [arguments.alibi, "compare", str(text), *SETTINGS, "--out", str(out), "--threads", str(threads)]


def lives(arguments, text, out, seconds):
    """Runs until the comparison ends by itself; returns how many parts were done at each kill."""
    dice = random.Random(arguments.seed)
    parts = []
    while True:
        is_last = len(parts) >= arguments.kills
        ended = kills.live(command(arguments, text, out, 1 + len(parts) % 2),
                           None if is_last else dice.uniform(0.2, 1.8) * seconds)
        if ended is None:
            runs = [json.loads(path.read_text())["run"] for path in out.glob("models/*/run.json")]
            parts.append(sum(len(run["eval"]) + len(run["sliding"]) for run in runs))
            continue
        code, output = ended
        if code != 0:
            sys.exit(f"a continued comparison failed with exit code {code}:\n{output}")
        return parts


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in OF_THE_MACHINE}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return value


def differences(expected, found, where="results"):
    """The paths of what differs."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [path for key in expected for path in differences(expected[key], found[key], f"{where}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [path for i, (a, b) in enumerate(zip(expected, found)) for path in differences(a, b, f"{where}[{i}]")]
    return [] if expected == found else [where]


def compare(expected, found):
    results = [without_times(json.loads((out / "results.json").read_text())) for out in (expected, found)]
    wrong = differences(*results)
    for run in results[0]["runs"]:
        weights = [(out / run["model_folder"] / "model.safetensors").read_bytes() for out in (expected, found)]
        if weights[0] != weights[1]:
            wrong.append(f"weights of {run['model_folder']}")
    return wrong + kills.half_written(found)


def main():
    arguments = kills.arguments_of(__doc__, kills=6)
    with kills.folder_with_text("compare-kill-test") as (folder, text):
        undisturbed = kills.seconds_of(command(arguments, text, folder / "undisturbed", 1))
        parts = lives(arguments, text, folder / "killed", undisturbed / (arguments.kills + 1))
        wrong = compare(folder / "undisturbed", folder / "killed")
        before = (folder / "killed" / "results.json").read_bytes()
        other = subprocess.run(command(arguments, text, folder / "killed", 1) + ["--learning-rate", "0.1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", check=False)
        if other.returncode != 2 or "learning_rate is 0.1, was 0.004" not in other.stderr:
            wrong.append(f"another comparison in the same folder: exit code {other.returncode}: {other.stderr}")
        if (folder / "killed" / "results.json").read_bytes() != before:
            wrong.append("another comparison was refused, and the results are not as they were")
        resumed = subprocess.run([arguments.alibi, "compare", "--resume", str(folder / "killed"), "--json", "-"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", check=False)
        if resumed.returncode != 0 or len(json.loads(resumed.stdout)["runs"]) != 4:
            wrong.append(f"--resume: exit code {resumed.returncode}")
    print(f"{len(parts)} kills, after {', '.join(map(str, parts))} of 24 evaluations; undisturbed: {undisturbed:.1f} s")
    if wrong:
        sys.exit("not as in the undisturbed comparison: " + ", ".join(wrong[:20]))
    print("The same bits.")


if __name__ == "__main__":
    main()
