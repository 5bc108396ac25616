"""What kill_test.py and compare_kill_test.py share: a text, a run that is left alone, and lives that end by SIGKILL."""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

SENTENCE = "the quick brown fox jumps over the lazy dog and runs away from number {}\n"


def arguments_of(description, kills):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("alibi")
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.alibi = os.path.abspath(arguments.alibi)
    return arguments


@contextlib.contextmanager
def folder_with_text(name):
    """A folder for a while, and a text in it."""
    with tempfile.TemporaryDirectory(prefix=f"alibi-{name}-") as path:
        folder = pathlib.Path(path)
        text = folder / "text.txt"
        text.write_text("".join(SENTENCE.format(i) for i in range(400)))
        yield folder, text


def seconds_of(command):
    """Of a run that is left alone."""
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def live(command, limit):
    """Exit code and output of a process, or nothing where SIGKILL ended it after `limit` seconds."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return None
    return process.returncode, output


def half_written(folder):
    return [str(path) for path in folder.rglob("*") if ".part" in path.name]
