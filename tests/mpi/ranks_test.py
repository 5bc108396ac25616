"""alibi train over processes: the same weights at any number of ranks, after kills, signals and failures.

scripts/test/mpi runs it with each MPI.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from mpi_case import LONG, RUN, MpiCase, ranks_of


def losses_in(value):
    """All perplexities and losses, in the order of the file."""
    if isinstance(value, list):
        return [loss for one in value for loss in losses_in(one)]
    if not isinstance(value, dict):
        return []
    own = [value[name] for name in ("nll", "perplexity", "bigram_nll") if isinstance(value.get(name), float)]
    return own + [loss for one in value.values() for loss in losses_in(one)]


def shell_of_rank(body):
    """A command before that of each rank, in which $rank is its number."""
    return ("bash", "-c", f'rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; {body}; exec "$0" "$@"')


def other_rank(rank, option, value):
    """One rank has another option."""
    return shell_of_rank(f'[ $rank != {rank} ] || set -- "$@" {option} {value}')


def host_of_rank(folder):
    return shell_of_rank(f'cd {folder}/host-$rank')


class Ranks(MpiCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # What a shell starts in the background ignores SIGINT, and so would all that it starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
            # Two checkpoints: rank 0 may be killed after it has written the last one and before it has printed its number.
            self.wait_for_checkpoint(process, model, after=seen, count=2)
            found = ranks_of(self.command)
            self.assertEqual(sorted(found), list(range(ranks)))
            os.kill(found[victim], signal.SIGKILL)
            killed = time.monotonic()
            output = process.communicate(timeout=60)[0]
            self.assertLess(time.monotonic() - killed, 10, output)
            self.assertNotEqual(process.returncode, 0, output)
            self.assert_no_ranks_are_left()
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

    def assert_failed(self, process, rank, message):
        started = time.monotonic()
        output = process.communicate(timeout=60)[0]
        self.assertLess(time.monotonic() - started, 10, output)
        self.assertEqual(process.returncode, 1, output)
        self.assertRegex(output, rf"alibi: error: rank {rank} on {os.uname().nodename}: .*{message}")
        self.assert_no_ranks_are_left()
        return output

    def test_a_full_disk_names_the_rank_and_the_checkpoint(self):
        model = self.folder / "full"
        process = self.start(3, "train", self.text, "-o", model, *LONG)
        self.wait_for_checkpoint(process, model)
        resource.prlimit(ranks_of(self.command)[0], resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))
        output = self.assert_failed(process, 0, "File too large")
        self.assertRegex(output, r"The checkpoint of update \d+ is intact and can be resumed")

    def test_a_rank_without_memory_names_itself(self):
        if not self.is_open_mpi:
            self.skipTest("MPICH needs more memory than the model")
        shell = ("bash", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || ulimit -v 300000; exec "$0" "$@"')
        process = self.start(3, "train", self.text, "-o", self.folder / "small", *LONG, before=shell)
        self.assert_failed(process, 2, "out of memory")

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

    def test_ranks_with_other_settings_or_texts_are_refused(self):
        out = self.folder / "different"
        model = self.folder / "different-model"
        subprocess.run([self.command, "train", self.text, "-o", model, *RUN, "--seed", "9"], check=True, stdout=subprocess.DEVNULL)
        for rank in range(3):  # each rank has a host of its own, rank 2 one with an old copy
            folder = self.folder / f"host-{rank}"
            shutil.copytree(model if rank == 2 else self.reference, folder / "model")
            text = self.text.read_text(encoding="utf-8")
            (folder / "valid.txt").write_text(text.replace("fox", "cow"), encoding="utf-8")
            (folder / "text.txt").write_text(text.replace("fox", "cat") if rank == 2 else text, encoding="utf-8")
        train = ("train", self.text, "-o", out, *RUN)
        for before, arguments, message in (
                (other_rank(1, "--learning-rate", "0.5"), train, r'rank 1 on \S+ differs from rank 0: learning-rate is "0.5"'),
                (other_rank(0, "--shards", "8"), ("train", self.text, "-o", out, *RUN[2:]),
                 r'rank 1 on \S+ \(and 1 more\) differs from rank 0: shards is not set, on rank 0 it is "8"'),
                (other_rank(2, "--eval-steps", "3"), train, r'eval-steps is "3", on rank 0 it is not set'),
                (host_of_rank(self.folder), ("train", "text.txt", "-o", out, *RUN), "text_fingerprint is"),
                (host_of_rank(self.folder), ("train", self.text, "-o", out, *RUN[:2], *RUN[8:], "--from", "model"), "the hash of the weights"),
                (host_of_rank(self.folder), ("train", "--config", "model/train.json", "-o", out), "rank 2 on .*seed is 9, on rank 0 it is 0"),
                (host_of_rank(self.folder), ("eval", "model", self.text), "the hash of the weights"),
                (host_of_rank(self.folder), ("eval", self.reference, "text.txt"), "the hash of the text is"),
                (host_of_rank(self.folder), ("embed", self.reference, "text.txt", "-o", f"{out}.npy"), "the hash of the texts is"),
                (other_rank(1, "--stride", "7"), ("eval", self.reference, self.text), 'stride is "7"'),
                (host_of_rank(self.folder), ("compare", "text.txt", "--valid", "valid.txt", "-o", out, "--train-length", "32",
                                             "--lengths", "32", "--train-tokens", "512", "--batch-tokens", "256"), "text is")):
            with self.subTest(arguments=arguments, before=before):
                output = self.run_ranks(3, *arguments, before=before, code=2, limit=60)
                self.assertRegex(output, "error: rank 0 on .*" + message)
                self.assertEqual(output.count("alibi: error"), 1, output)
        self.assertEqual(list(self.folder.glob("different/checkpoints/step-*")), [])

    def test_commands_of_one_process_are_refused(self):
        out = self.folder / "written-by-one"
        for arguments in (("generate", self.reference, "--prompt", "the"), ("score", self.reference, self.text),
                          ("convert", self.reference, out), ("tokenize", self.text, "-o", out), ("info", self.reference),
                          ("train", "--plan", "--preset", "tiny"), ("bench", "attention")):
            output = self.run_ranks(3, *arguments, code=2, limit=60)
            self.assertRegex(output, "3 ranks were started together, but `alibi .*" + arguments[0])
            self.assertEqual(output.count("alibi: error"), 1, output)
        self.assertFalse(out.exists())
        self.assertIn("alibi ", self.run_ranks(2, "--version"))
        self.run_ranks(1, "tokenize", self.text, "-o", out)  # one rank is one process
        self.run_ranks(2, "generate", self.reference, "--prompt", "the", "--max-tokens", "2",
                       before=("env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "PMI_SIZE"))

    def test_signals_to_mpirun_end_with_the_code_that_says_go_on(self):
        """MPICH passes them on. Open MPI's mpirun ends with 1 by itself; the script of the docs sends it SIGUSR1. MPICH's mpirun
        itself sometimes ends with 0 after SIGTERM, before it has heard how the ranks ended."""
        page = pathlib.Path(__file__).parents[2] / "docs/how-to/many-machines.md"
        script = re.search(r"(?ms)^training=\$!$.*?^exit \$code$", page.read_text(encoding="utf-8"))[0]
        script = script.replace("scontrol requeue $SLURM_JOB_ID", "true")
        for name in ("SIGINT", "SIGTERM"):
            for scripted in ((True,) if self.is_open_mpi else (True, False)):
                model = self.folder / f"to-mpirun-{name}-{scripted}"
                process = self.start(3, "train", self.text, "-o", model, *LONG, script=f'"$@" &\n{script}' if scripted else None)
                self.wait_for_checkpoint(process, model)
                os.kill(process.pid, getattr(signal, name))
                output = process.communicate(timeout=60)[0]
                self.assertIn(process.returncode, (75,) if scripted or name == "SIGINT" else (75, 0), output)
                self.assertIn("To continue, run: alibi train --resume", output)
                self.assert_no_ranks_are_left()

    def test_ranks_that_divide_sequences_train_the_model_of_one_process(self):
        options = ("--shards", "2", "--layers", "2", "--d-model", "64", "--heads", "4", "--train-length", "512",
                   "--train-tokens", "16384", "--batch-tokens", "2048", "--micro-batch-tokens", "512",
                   "--checkpoint-minutes", "0")
        models = {ranks: self.folder / f"divided-{ranks}" for ranks in (1, 2, 4)}
        files = {ranks: self.folder / f"divided-{ranks}.json" for ranks in models}
        self.alone("train", self.text, "-o", models[1], *options, "--json", files[1])
        for ranks in (2, 4):
            output = self.run_ranks(ranks, "train", self.text, "-o", models[ranks], *options, "--sequence-ranks", "2",
                                    "--json", files[ranks])
            self.assertIn(f"{ranks} ranks, each with {4 // ranks} of 4 shards", output)
        self.assert_same_model(models[2], models[4])
        expected, found = (losses_in(json.loads(files[ranks].read_text(encoding="utf-8"))) for ranks in (1, 2))
        self.assertEqual(len(expected), len(found))
        self.assertGreater(len(expected), 0)
        for one, other in zip(expected, found):
            self.assertAlmostEqual(one, other, delta=1e-3 * one)
        self.assertIn("sequence_ranks is 2", self.run_ranks(3, "train", self.text, "-o", self.folder / "refused-3", *options,
                                                          "--sequence-ranks", "2", code=2))

    def test_evaluation_has_the_results_of_one_process(self):
        results = {}
        for ranks in (1, 3):
            file = self.folder / f"eval-{ranks}.json"
            arguments = ("eval", self.reference, self.text, "--lengths", "32,100", "--stride", "20", "--per-position",
                         "--json", file)
            self.alone(*arguments) if ranks == 1 else self.run_ranks(ranks, *arguments)
            results[ranks] = json.loads(file.read_text(encoding="utf-8"))
            for one in results[ranks]["eval"]:
                del one["tokens_per_second"]
        self.assertEqual(results[1]["eval"], results[3]["eval"])
        self.assertEqual(results[1]["per_position"], results[3]["per_position"])

    def test_embedding_has_the_vectors_of_one_process(self):
        many = self.folder / "many.txt"
        many.write_text("".join(f"line {i} of a longer text\n" for i in range(3000)), encoding="utf-8")
        one, three = self.folder / "one.npy", self.folder / "three.npy"
        self.alone("embed", self.reference, many, "-o", one)
        self.run_ranks(3, "embed", self.reference, many, "-o", three)
        self.assertEqual(one.read_bytes(), three.read_bytes())

    def test_comparison_has_the_results_of_one_process(self):
        valid = self.folder / "valid.txt"
        valid.write_text(self.text.read_text(encoding="utf-8").replace("fox", "cat"), encoding="utf-8")
        results, models = {}, {}
        for ranks in (1, 2):
            out = self.folder / f"compare-{ranks}"
            arguments = ("compare", self.text, "--valid", valid, "-o", out, "--positions", "alibi,none,rotary",
                         "--seeds", "1", "--train-length", "32", "--lengths", "32,64", "--train-tokens", "4096",
                         "--batch-tokens", "512", "--timing-rounds", "0", "--eval-tokens", "1000", "--sample-tokens", "0",
                         "--precision", "f32", "--tune", "0.001,0.003")
            self.alone(*arguments) if ranks == 1 else self.run_ranks(ranks, *arguments)
            results[ranks] = losses_in(json.loads((out / "results.json").read_text(encoding="utf-8")))
            models[ranks] = {file.parent.name: file.read_bytes() for file in (out / "models").glob("*/model.safetensors")}
        self.assertEqual(len(models[1]), 3)
        self.assertEqual(models[1], models[2])
        self.assertGreater(len(results[1]), 6)
        self.assertEqual(results[1], results[2])

    def test_threads_follow_the_scheduler(self):
        model = self.folder / "threads"
        output = self.run_ranks(2, "train", self.text, "-o", model, *RUN, environment={"SLURM_CPUS_PER_TASK": "1"})
        self.assertIn("1 threads", output)


if __name__ == "__main__":
    unittest.main()
