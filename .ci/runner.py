"""Runs the stages of .ci/stages.py.

    .ci/run [--all] [--list] [STAGE...]

Without names all stages run, but those whose inputs are what they were when they last passed on this machine, within
a week, and those that run by name alone; --all runs these too. Without names and --all, no stage begins after an hour,
so that a slow machine ends within 90 minutes; the summary says which were left out. Named stages run in any case, after
those whose products they need. --list says which would run. What has passed is kept in
${XDG_CACHE_HOME:-~/.cache}/alibi-ci/. Each line of the output begins with the stage it comes from, and
build-ci/STAGE.log has what that stage wrote.
"""

import hashlib
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from stages import STAGES

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSED = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "alibi-ci" / "passed"
LOGS = ROOT / "build-ci"
MOST_SECONDS = 3600  # after which no stage begins
WEEK = 7 * 24 * 3600  # what comes from other places, packages of PyPI and of Debian, changes with time
TOOLS = ("cc c++ g++ clang clang++ clang-tidy clang-format cmake ctest ninja ccache python3 pip nvcc pkg-config "
         "debootstrap dpkg-deb zsh fish").split()
VARIABLES = re.compile(r"PATH|(C|CXX|CPP|LD|CUDA)FLAGS|CC|CXX|CUDACXX|(CMAKE|ALIBI|OMP|ONEDNN|DNNL|PYTHON|PIP|LD|PKG|"
                       r"MALLOC|GTEST|[A-Z]+SAN)_\w+")


def output_of(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, cwd=ROOT).stdout
    except FileNotFoundError:
        return b""


def machine():
    """What a stage reads of this machine: packages, tools that came another way, the CPU, variables. None: unknown."""
    packages = output_of("dpkg-query", "--show", "--showformat=${Package} ${Version} ${Architecture}\n")
    if not packages:
        return None
    cpus = pathlib.Path("/proc/cpuinfo").read_text()
    told = [packages, platform.platform(), os.cpu_count(), len(os.sched_getaffinity(0)), os.getuid(),
            sorted(set(re.findall(r"^(?:flags|model name|Features).*", cpus, re.M))),
            sorted((name, value) for name, value in os.environ.items() if VARIABLES.fullmatch(name))]
    elsewhere = [pathlib.Path("/usr/local") / folder for folder in ("include", "lib", "lib64", "cuda")]
    for path in [shutil.which(tool) for tool in TOOLS] + elsewhere:
        if path and os.path.exists(path):
            real = os.path.realpath(path)
            told.append((str(path), real, os.stat(real).st_size, os.stat(real).st_mtime_ns))
    # Larger texts, and models of other programs, beside the project: the tests and the comparison read them.
    texts = pathlib.Path(os.environ.get("ALIBI_SHARED_DATA") or ROOT.parent / "shared" / "data")
    for folder in (texts, texts.parent / "fixtures"):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                told.append((str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns))
    return told


def files_of(patterns):
    """What git would have of these, with its content: committed or not, but nothing that is ignored."""
    listed = output_of("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns)
    for name in sorted(set(listed.decode().split("\0")) - {""}):
        path = ROOT / name
        if path.is_symlink():
            yield name, os.readlink(path)
        elif path.is_file():
            yield name, os.access(path, os.X_OK), hashlib.sha256(path.read_bytes()).hexdigest()


def key_of(stage, of_machine):
    """A digest of what the stage's result follows from; None if this machine cannot say."""
    if of_machine is None:
        return None
    files = list(files_of([*stage.reads, ".ci"]))
    if not files:  # git does not say
        return None
    return hashlib.sha256(repr((stage.name, stage.commands, of_machine, files)).encode()).hexdigest()


def has_passed(key):
    stamp = PASSED / str(key)
    return key is not None and stamp.exists() and time.time() - stamp.stat().st_mtime < WEEK


def chosen_stages(names, run_all, keys):
    """Those that run, with all whose products they need."""
    by_name = {stage.name: stage for stage in STAGES}
    chosen = {stage.name for stage in STAGES
              if (stage.name in names if names else run_all or not stage.by_name and not has_passed(keys[stage.name]))}
    for stage in reversed(STAGES):  # what is needed stands before who needs it
        if stage.name in chosen:
            chosen.update(stage.needs)
    assert all(need in by_name for stage in STAGES for need in stage.needs)
    return [stage for stage in STAGES if stage.name in chosen]


class Running:
    """A stage in a process group of its own, whose output is passed through line by line and written to its log."""

    def __init__(self, stage):
        self.stage, self.skipped, self.tail = stage, [], []
        self.started = time.monotonic()
        print(f"\n=== {stage.name}: {stage.title}\n", end="", flush=True)
        self.process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", stage.commands], cwd=ROOT,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        with open(LOGS / f"{self.stage.name}.log", "wb") as log:
            for line in self.process.stdout:
                log.write(line)
                log.flush()
                text = line.decode(errors="replace").rstrip("\n")
                if text.startswith("SKIPPED"):
                    self.skipped.append(text)
                self.tail = [*self.tail[-59:], text]
                print(f"{self.stage.name}| {text}\n", end="", flush=True)  # one write: another stage writes too

    def finished(self):
        """Whether it has ended; its seconds are known after that."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.end_group()  # what it left running holds the pipe open
        self.reader.join()
        self.seconds = time.monotonic() - self.started
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        return True

    def end_group(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run_stages(stages, keys, most_seconds):
    """The stages that ended, the last of them failed or not, and those that did not begin in time."""
    waiting, running, ended, late = list(stages), [], [], []
    names = {stage.name for stage in stages}
    started = time.monotonic()
    try:
        while waiting or running:
            if time.monotonic() - started > most_seconds:
                late, waiting = late + waiting, []
            done = {run.stage.name for run in ended}
            for stage in list(waiting):
                ready = all(need in done or need not in names for need in stage.needs)
                free = not running or stage.cores and all(run.stage.cores for run in running) and \
                    sum(run.stage.cores for run in running) + stage.cores <= len(os.sched_getaffinity(0))
                if ready and free:
                    waiting.remove(stage)
                    running.append(Running(stage))
            time.sleep(0.1)
            for run in [run for run in running if run.finished()]:
                running.remove(run)
                ended.append(run)
                print(f"--- {run.stage.name}: {run.seconds:.0f} s", flush=True)
                if run.process.returncode != 0:
                    return ended, late
                if not run.skipped and keys[run.stage.name] is not None:
                    PASSED.mkdir(parents=True, exist_ok=True)
                    if key_of(run.stage, machine()) == keys[run.stage.name]:  # nobody changed it meanwhile
                        (PASSED / keys[run.stage.name]).touch()
    finally:
        for run in running:
            run.end_group()
    return ended, late


def main():
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if set(options) - {"--all", "--list"} or set(names) - {stage.name for stage in STAGES}:
        print(__doc__ + "\nStages: " + " ".join(stage.name for stage in STAGES), file=sys.stderr)
        return 0 if options == ["--help"] else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    of_machine = machine()
    keys = {stage.name: key_of(stage, of_machine) for stage in STAGES}
    stages = chosen_stages(names, "--all" in options, keys)
    left_out = [] if names else [stage for stage in STAGES if stage not in stages]
    for stage in left_out:
        reason = "it runs by name or with --all" if stage.by_name else "its inputs are those of a run that passed here"
        print(f"skipped, as {reason}: {stage.name}: {stage.title}")
    if "--list" in options:
        print("\n".join(f"runs: {stage.name}: {stage.title}" for stage in stages))
        return 0
    LOGS.mkdir(exist_ok=True)
    ended, late = run_stages(stages, keys, math.inf if names or "--all" in options else MOST_SECONDS)

    failed = [run for run in ended if run.process.returncode != 0]
    for run in failed:
        print(f"\n=== The end of what {run.stage.name} wrote\n" + "\n".join(run.tail))
    print(f"\n{'stage':14} {'seconds':>8} {'CPU':>8}")
    for run in ended:
        result = f"FAILED, exit code {run.process.returncode}" if run in failed else "; ".join(run.skipped)
        print(f"{run.stage.name:14} {run.seconds:8.0f} {run.cpu_seconds:8.0f}  {result}")
    for stage in left_out:
        print(f"{stage.name:14} {'skipped':>8}")
    for stage in late:
        print(f"{stage.name:14} LEFT OUT, because it had not begun after {MOST_SECONDS / 60:.0f} minutes: .ci/run {stage.name}")
    print(f"{'all':14} {time.monotonic() - started:8.0f} {sum(run.cpu_seconds for run in ended):8.0f}")
    if failed:
        print(f"\n{failed[0].stage.name} failed.")
        return 1
    if left_out:
        print(f"\n{len(left_out)} stages were skipped, for the reasons above; --all runs them too.")
    if late:
        print(f"\nWhat was run holds. {len(late)} stages were left out, because this machine is slow.")
        return 0
    print("\nAll of it holds." if not names else f"\n{' '.join(names)}: all of it holds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
