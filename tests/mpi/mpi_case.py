"""What the tests of ranks share: a text, mpirun of one of two MPIs, and runs of the command under it."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

SENTENCE = "the quick brown fox jumps over the lazy dog and runs away from number {}\n"
SHARDS = 4
# 24 updates of a model that a rank computes in some hundredths of a second.
RUN = ("--shards", str(SHARDS), "--layers", "2", "--d-model", "64", "--heads", "4", "--train-length", "32",
       "--train-tokens", "12288", "--batch-tokens", "512", "--micro-batch-tokens", "64", "--dropout", "0.1",
       "--checkpoint-minutes", "0")
LONG = ("--shards", str(SHARDS), "--layers", "2", "--d-model", "64", "--heads", "4", "--train-length", "32",
        "--train-tokens", "2M", "--batch-tokens", "512", "--checkpoint-steps", "4")


def environment_of_mpi():
    """Open MPI refuses to run as root unless two variables allow it."""
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def ranks_of(command):
    """The processes of a command that runs under mpirun, by their rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if arguments[0] != os.fsencode(command):
                continue
            environment = dict(entry.split(b"=", 1) for entry in (folder / "environ").read_bytes().split(b"\0") if b"=" in entry)
        except OSError:  # it has ended
            continue
        rank = environment.get(b"OMPI_COMM_WORLD_RANK", environment.get(b"PMI_RANK"))
        if rank is not None:
            found[int(rank)] = int(folder.name)
    return found


class MpiCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="alibi-mpi-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("".join(SENTENCE.format(i) for i in range(400)), encoding="utf-8")
        # A path of our own, by which the processes of these tests are found.
        cls.command = str(cls.folder / "alibi")
        os.symlink(os.path.abspath(os.environ["ALIBI_COMMAND"]), cls.command)
        cls.mpirun = os.environ["ALIBI_MPIRUN"]
        cls.is_open_mpi = "openmpi" in cls.mpirun

    def start(self, ranks, *arguments, before=(), environment=None, mpirun=None, script=None):
        """`script` runs mpirun as "$@"."""
        mpirun = mpirun or self.mpirun
        options = ["--oversubscribe"] if "openmpi" in mpirun else []
        shell = ["bash", "-c", script, "bash"] if script else []
        process = subprocess.Popen(
            [*shell, mpirun, *options, "-np", str(ranks), *before, self.command, *map(str, arguments)], text=True,
            env={**environment_of_mpi(), **(environment or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        for pid in ranks_of(self.command).values():
            os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()

    def assert_no_ranks_are_left(self):
        """mpirun may end shortly before the ranks that it has killed."""
        end = time.monotonic() + 5
        while ranks_of(self.command) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(ranks_of(self.command), {}, "ranks are left")

    def run_ranks(self, ranks, *arguments, code=0, limit=120, **settings):
        """The output of the ranks."""
        process = self.start(ranks, *arguments, **settings)
        output = process.communicate(timeout=limit)[0]
        self.assertEqual(process.returncode, code, output)
        return output

    def alone(self, *arguments):
        done = subprocess.run([self.command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def steps(self, model):
        return sorted(path.name for path in (model / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", path.name))

    def wait_for_checkpoint(self, process, model, after=(), count=1):
        end = time.monotonic() + 60
        while len(set(self.steps(model)) - set(after)) < count:
            self.assertIsNone(process.poll(), "the ranks ended before they wrote a checkpoint")
            self.assertLess(time.monotonic(), end, "there is no checkpoint after a minute")
            time.sleep(0.02)

    def assert_same_model(self, one, other):
        for file in ("model.safetensors", "config.json"):
            self.assertEqual((one / file).read_bytes(), (other / file).read_bytes(), f"{other / file} differs from {one / file}")
