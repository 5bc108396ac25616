"""alibi train over processes: the same weights at any number of ranks, after kills, signals and failures.

scripts/test-mpi runs it with each MPI.
"""

import os
import signal
import subprocess
import time
import unittest

from mpi_case import LONG, RUN, MpiCase, ranks_of


class Ranks(MpiCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.folder / "reference"
        subprocess.run([cls.command, "train", cls.text, "-o", cls.reference, *RUN], check=True, stdout=subprocess.DEVNULL)

    def test_any_number_of_ranks_gives_the_same_model(self):
        for ranks in (2, 3, 4):
            model = self.folder / f"ranks-{ranks}"
            output = self.run_ranks(ranks, "train", self.text, "-o", model, *RUN)
            self.assert_same_model(self.reference, model)
            self.assertEqual(output.count("held out: perplexity"), 1, output)  # of rank 0 alone
            self.assertIn(f"{ranks} ranks", output)

    def test_a_killed_rank_ends_the_job_and_another_number_of_ranks_continues(self):
        model = self.folder / "killed"
        options = (*RUN, "--checkpoint-steps", "1", "--keep", "100")
        seen = []
        for ranks, victim in ((3, 2), (2, 0), (4, 1)):
            process = self.start(ranks, "train", self.text, "-o", model, *options, "--resume")
            self.wait_for_checkpoint(process, model, after=seen)
            found = ranks_of(self.command)
            self.assertEqual(sorted(found), list(range(ranks)))
            os.kill(found[victim], signal.SIGKILL)
            killed = time.monotonic()
            output = process.communicate(timeout=60)[0]
            self.assertLess(time.monotonic() - killed, 10, output)
            self.assertNotEqual(process.returncode, 0, output)
            self.assertEqual(ranks_of(self.command), {}, "ranks are left")
            seen = self.steps(model)
            # A rank may have been killed while rank 0 wrote the next one.
            self.assertIn("Checkpoint of update", output)
        self.run_ranks(3, "train", self.text, "-o", model, *options, "--resume")
        self.assert_same_model(self.reference, model)

    def test_a_signal_of_a_scheduler_saves_and_the_code_says_go_on(self):
        for name in ("SIGUSR1", "SIGUSR2"):
            model = self.folder / f"stopped-{name}"
            process = self.start(3, "train", self.text, "-o", model, *LONG)
            self.wait_for_checkpoint(process, model)
            before = self.steps(model)
            # Both MPIs' mpirun uses or drops some signals; a scheduler can signal the ranks themselves.
            target = process.pid if self.is_open_mpi else ranks_of(self.command)[1]
            os.kill(target, getattr(signal, name))
            output = process.communicate(timeout=60)[0]
            self.assertEqual(process.returncode, 75, output)
            self.assertIn("To continue, run: alibi train --resume", output)
            self.assertGreater(self.steps(model)[-1], before[0])

    def test_a_failing_rank_names_itself_and_the_checkpoint(self):
        model = self.folder / "failed"
        # Rank 1 may not write a file of more than 4 KiB, and rank 2 has no memory.
        for rank, limit, message in ((0, "ulimit -f 200", "File too large"), (2, "ulimit -v 700000", "memory")):
            shell = ("bash", "-c", f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" != {rank} ] || {limit}; exec "$0" "$@"')
            started = time.monotonic()
            process = self.start(3, "train", self.text, "-o", model / str(rank), *LONG, before=shell)
            output = process.communicate(timeout=60)[0]
            self.assertLess(time.monotonic() - started, 30, output)
            self.assertEqual(process.returncode, 1, output)
            self.assertRegex(output, rf"alibi: error: rank {rank} on {os.uname().nodename}: .*{message}")
            self.assertEqual(ranks_of(self.command), {}, "ranks are left")

    def test_what_cannot_work_is_explained(self):
        out = self.folder / "refused"
        self.assertIn("5 ranks were started, but the run has 4 shards",
                      self.run_ranks(5, "train", self.text, "-o", out, *RUN, code=2))
        self.assertIn("standard input reaches rank 0 alone", self.run_ranks(2, "train", "-", "-o", out, *RUN, code=2))
        other = "mpirun.mpich" if self.is_open_mpi else "mpirun.openmpi"
        self.assertIn("alibi was built with another MPI",
                      self.run_ranks(2, "train", self.text, "-o", out, *RUN, code=2, mpirun=other))
        srun = subprocess.run([self.command, "train", self.text, "-o", out, *RUN], env={**os.environ, "SLURM_STEP_NUM_TASKS": "4"},
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(srun.returncode, 2)
        self.assertIn("srun started 4 tasks without PMI", srun.stderr)
        self.assertFalse(out.exists() and any((out / "checkpoints").glob("step-*")))

    def test_threads_follow_the_scheduler(self):
        model = self.folder / "threads"
        output = self.run_ranks(2, "train", self.text, "-o", model, *RUN, environment={"SLURM_CPUS_PER_TASK": "1"})
        self.assertIn("1 threads", output)


if __name__ == "__main__":
    unittest.main()
