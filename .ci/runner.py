"""Runs the stages of .ci/stages, cheapest failures first. The level check stops at the first failure; otherwise a failure
keeps only those stages from running that need the one that failed.

    .ci/run [--list]           the level `check`; --list only prints what it runs, and what it leaves to --full
    .ci/run --full [--list]    everything
    .ci/run STAGE...           these stages, and those that they need

The exit code is 0 only if every stage has passed. One that did not begin, was killed, or printed a line SKIPPED: has not.
When --full passes on a clean checkout, ${XDG_CACHE_HOME:-~/.cache}/alibi-ci/full names the commit (scripts/test/sanitized).
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FULL = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "alibi-ci/full"
# How GoogleTest, pytest, unittest and our own scripts print the number of tests that passed.
TOTALS = re.compile(r"\[  PASSED  \] (\d+) test|Ran (\d+) tests? in|(\d+) tests passed|(\d+) passed\b")

# How they, compilers and sanitizers name what failed.
ERRORS = re.compile(r"^(?:\[  FAILED  \].*\(|FAILED |E  |.*\berror: |.*ERROR: ).*|^.*: Failure\n.*", re.MULTILINE)


class Stage:
    def __init__(self, line):
        self.name, levels, self.cores, needs, self.commands = line.split(maxsplit=4)
        self.levels, self.needs = levels.split(","), set(needs.split(",")) - {"-"}

    def start(self):
        print(f"\n=== {self.name}: {self.commands}", flush=True)
        self.started, self.log = time.monotonic(), ROOT / f"build-ci/{self.name}.log"
        with self.log.open("wb") as log:  # no pipe, which a process that the stage leaves running would keep open
            self.process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", self.commands], cwd=ROOT, stdout=log,
                                            stdin=subprocess.DEVNULL, stderr=log, start_new_session=True)
        self.lines, self.rest = self.log.open(encoding="utf-8", errors="replace"), ""

    def has_ended(self):
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        whole, end, self.rest = (self.rest + self.lines.read()).rpartition("\n")  # a line may not have ended yet
        print("".join(f"{self.name}| {line}\n" for line in whole.split("\n") if end), end="", flush=True)
        if pid == 0:
            return False
        self.end()
        self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.text = self.log.read_text(encoding="utf-8", errors="replace")
        skipped = " ".join(re.findall(r"^SKIPPED:.*", self.text, re.MULTILINE))
        self.problem = f"FAILED, exit code {self.code}" if self.code else skipped
        tests = sum(int(number) for found in TOTALS.findall(self.text) for number in found if number)
        self.row = (f"{self.name:14} {time.monotonic() - self.started:8.0f} {usage.ru_utime + usage.ru_stime:8.0f} "
                    f"{tests or '':8}  {self.problem or 'passed'}")
        print(f"--- {self.row}", flush=True)
        return True

    def end(self):
        subprocess.run(["kill", "-9", "--", f"-{self.process.pid}"], stderr=subprocess.DEVNULL, check=False)


def run(stages, names, stops):
    """The stages that have ended. stops: no stage begins or continues after the first failure."""
    waiting, running, ended = list(stages), [], []
    try:
        while (waiting or running) and not (stops and any(stage.code for stage in ended)):
            missing = names - {stage.name for stage in ended if stage.code == 0}
            for stage in list(waiting):
                beside = all(one.cores == "1" for one in [stage, *running]) and len(running) < os.cpu_count()
                if (beside or not running) and not stage.needs & missing:
                    waiting.remove(stage)
                    running.append(stage)
                    stage.start()
            if not running:
                break  # those that wait need a stage that failed
            time.sleep(0.1)
            ended += [stage for stage in running if stage.has_ended()]
            running = [stage for stage in running if stage not in ended]
    finally:
        for stage in running:
            stage.end()
    return ended


def main():
    stages = [Stage(line) for line in (ROOT / ".ci/stages").read_text().splitlines()[1:]]
    options = {word for word in sys.argv[1:] if word.startswith("-")}
    wanted = set(sys.argv[1:]) - options
    if options - {"--full", "--list"} or wanted - {stage.name for stage in stages}:
        print(f"{__doc__}\nStages: {' '.join(stage.name for stage in stages)}")
        return 0 if options == {"--help"} else 2
    level = "" if wanted else "full" if "--full" in options else "check"
    wanted = wanted or {stage.name for stage in stages if level in stage.levels}
    for stage in reversed(stages):  # a stage stands after those that it needs
        wanted = wanted | (stage.needs if stage.name in wanted else set())
    chosen = [stage for stage in stages if stage.name in wanted]
    left = f"Not run{level and ', as not of the level ' + level}: {' '.join(s.name for s in stages if s not in chosen)}"
    print(f"Stages{level and ' of the level ' + level}: {' '.join(stage.name for stage in chosen)}\n{left}", flush=True)
    if "--list" in options:
        return 0
    (ROOT / "build-ci").mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ended = run(chosen, wanted, stops=level == "check")
    failed = [stage for stage in ended if stage.problem]
    print("".join(f"\n=== The end of the output of {stage.name}\n{stage.text[-6000:]}" for stage in failed))
    print(f"{'stage':14} {'seconds':>8} {'CPU':>8} {'tests':>8}", *(stage.row for stage in ended), left, sep="\n")
    for stage in failed:  # last, where a reader of a part of the output looks
        print(f"{stage.name}:", *dict.fromkeys(ERRORS.findall(stage.text)[:20]), sep="\n  ")
    if failed or len(ended) < len(chosen):
        print("FAILED:", *(stage.name for stage in failed), "- NOT RUN:", *(s.name for s in chosen if s not in ended))
        return 1
    commit, *changes = subprocess.getoutput(f"cd '{ROOT}'; git rev-parse HEAD; git status --porcelain").splitlines()
    if level == "full" and not changes:
        FULL.parent.mkdir(parents=True, exist_ok=True)
        FULL.write_text(commit)
    print(f"All {len(chosen)} stages passed at commit {commit}{' with changes' if changes else ''}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
