"""Where results go: files, links, FIFOs, standard output, folders; and what the command reads that is not what it seems.

Nothing in /dev is written to but /dev/full, which stays as it is.
"""

import fcntl
import json
import os
import pathlib
import resource
import shutil
import signal
import stat
import subprocess
import threading
import time
import unittest

from cli_case import COMMAND, CliTest, TINY_TRAINING, run

TINY_COMPARE = ("--positions", "none", "--train-length", "8", "--lengths", "8", "--train-tokens", "256", "--batch-tokens", "64",
                "--sample-tokens", "4", "--timing-rounds", "1")
TINY_BENCH = ("bench", "train", "--presets", "tiny", "--lengths", "16", "--batch-tokens", "16", "--vocab-size", "300",
              "--seconds", "0")


def small_files():
    """As on a full disk: no file can grow past 10 kB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))


class OutputTest(CliTest):
    def run_in_folder(self, *arguments, **options):
        """With files of one's own for the standard ones, in an empty folder."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        here = self.folder / "here"
        here.mkdir(exist_ok=True)
        self.addCleanup(shutil.rmtree, here, ignore_errors=True)
        return subprocess.run([COMMAND, *map(str, arguments)], cwd=here, encoding="utf-8", errors="surrogateescape",
                              timeout=120, check=False, **options)

    def commands(self):
        """One of each, quick, without the program."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        return {"info": ("info", self.model), "info --cpu": ("info", "--cpu"), "positions": ("positions",), "eval": ("eval", self.model, self.valid),
                "generate": ("generate", self.model, "--max-tokens", "5"),
                "tokenize": ("tokenize", self.text, "-o", out / "data"),
                "train": ("train", self.text, "-o", out / "model", *TINY_TRAINING),
                "compare": ("compare", self.text, "--out", out / "compare", *TINY_COMPARE), "bench": TINY_BENCH}

    def fifo(self, path):
        os.mkfifo(path)
        self.addCleanup(path.unlink)
        return path


class Files(OutputTest):
    def test_a_dash_is_standard_output(self):
        for name, words in self.commands().items():
            with self.subTest(name):
                result = self.run_in_folder(*words, "--json", "-")
                self.assertEqual(result.returncode, 0, result.stderr)
                json.loads(result.stdout)
                self.assertNotEqual(result.stderr, "", "what is for people goes there")
                self.assertEqual(list((self.folder / "here").iterdir()), [])

    def test_tensors_too(self):
        words = ("bench", "capture", self.model, self.valid, "--length", "50")
        self.succeeds(*words, "--out", self.folder / "t.safetensors")
        result = subprocess.run([COMMAND, *map(str, words), "--out", "-"], capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout == (self.folder / "t.safetensors").read_bytes())
        self.assertIn(b"queries, keys and values of", result.stderr)
        self.fails(2, "standard output", *words, "--out", "-", "--json", "/dev/fd/1")
        self.fails(1, "is a folder", *words, "--out", self.folder)

    def test_standard_output_by_another_name(self):
        link = self.folder / "standard-output"
        link.symlink_to("/proc/self/fd/1")
        for name in (link, "/dev/fd/1", "/proc/self/fd/1"):
            result = self.run_in_folder("info", self.model, "--json", name)
            self.assertEqual(json.loads(result.stdout)["train_length"], 32)
            self.assertIn("train_length", result.stderr)
            # A file that it leads to is not replaced, nor cut.
            log = self.folder / "log"
            log.write_text("before\n")
            with log.open("a") as file:
                self.run_in_folder("info", self.model, "--json", name, stdout=file)
                file.write("after\n")
            self.assertTrue(log.read_text().startswith("before\n{"), log.read_text())
            self.assertTrue(log.read_text().endswith("}\nafter\n"), log.read_text())
        self.assertTrue(link.is_symlink())
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        result = self.run_in_folder("info", self.model, "--json", f"/dev/fd/{writing}", pass_fds=[writing])
        os.close(writing)
        self.assertIn("train_length", result.stdout)
        self.assertIn(b'"train_length"', os.read(reading, 1 << 16))

    def test_a_fifo_stays_one(self):
        fifo = self.fifo(self.folder / "fifo")
        link = self.folder / "link-to-fifo"
        link.symlink_to("fifo")
        for name in (fifo, link):
            got = []
            reader = threading.Thread(target=lambda: got.append(fifo.read_text()))
            reader.start()
            self.succeeds("info", self.model, "--json", name)
            reader.join()
            self.assertEqual(json.loads(got[0])["train_length"], 32)
        self.assertTrue(fifo.is_fifo() and link.is_symlink())

    def test_links_and_permissions(self):
        target, link = self.folder / "target", self.folder / "link"
        target.write_text("old")
        target.chmod(0o600)
        link.symlink_to("target")
        self.succeeds("info", self.model, "--json", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(json.loads(target.read_text())["train_length"], 32)
        self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o600)
        dangling = self.folder / "dangling"
        dangling.symlink_to(self.folder / "made")
        self.succeeds("info", self.model, "--json", dangling)
        self.assertTrue(dangling.is_symlink() and (self.folder / "made").is_file())
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        self.fails(1, "loop: the path goes through more than 40 links", "info", self.model, "--json", loop)

    def test_what_cannot_be_written_is_told_first(self):
        for name, reason in ((self.folder, "is a folder"), (self.text / "below", "expected a folder"),
                             (str(self.folder) + "/new/", "is a folder"), ("/dev/fd/77", "Bad file descriptor")):
            result = run("eval", self.model, self.valid, "--json", name)
            self.assertEqual((result.returncode, result.stdout), (1, ""), name)
            self.assertIn(reason, result.stderr)
        self.fails(1, "No space left", "info", self.model, "--json", "/dev/full")


class StandardOutput(OutputTest):
    def test_output_that_cannot_be_written_is_a_failure(self):
        words_of = {**self.commands(), "help": ("--help",), "help of a command": ("train", "--help"),
                    "version": ("--version",), "plan": ("train", "--plan", "--train-tokens", "10k"),
                    "check": ("tokenize", "--check", self.folder / "data")}
        self.succeeds("tokenize", self.text, "-o", self.folder / "data")
        for name, words in words_of.items():
            with self.subTest(name), open("/dev/full", "w", encoding="utf-8") as full:
                result = self.run_in_folder(*words, stdout=full)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertEqual(result.stderr, "alibi: error: [output] standard output cannot be written: No space "
                                                "left on device\n")
        for name in ("info", "help", "generate"):
            result = self.run_in_folder(*words_of[name], preexec_fn=lambda: os.close(1))
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("standard output cannot be written: it is closed", result.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:  # where text is all there is, at once
            self.assertEqual(self.run_in_folder("generate", self.model, "--max-tokens", "10M", stdout=full).returncode, 1)
        # All other requested work has been done.
        self.succeeds("info", self.folder / "out" / "model")

    def test_only_what_goes_there_counts(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = self.run_in_folder("info", self.model, "--json", "-", stderr=full)
            self.assertEqual(result.returncode, 0)
            json.loads(result.stdout)
            result = self.run_in_folder("info", self.model, "--json", "-", stdout=full)
            self.assertEqual(result.returncode, 1)
            self.assertIn("standard output: No space left", result.stderr)
            self.assertEqual(self.run_in_folder("info", "nowhere", stderr=full).returncode, 1)

    def test_closed_files_are_not_mistaken_for_others(self):
        """What is opened first would get the number of a closed one."""
        def close_all():
            for descriptor in (0, 1, 2):
                os.close(descriptor)

        out = self.folder / "closed"
        # While it trains, metrics.jsonl is open and text is printed.
        result = self.run_in_folder("train", self.text, "--valid", self.valid, "-o", out, *TINY_TRAINING,
                                    "--eval-steps", "1", preexec_fn=close_all)
        self.assertEqual(result.returncode, 1)
        steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(steps, list(range(1, 8)))
        self.assertTrue((out / "model.safetensors").read_bytes() == (self.model / "model.safetensors").read_bytes())
        result = self.run_in_folder("eval", self.model, "-", preexec_fn=lambda: os.close(0))
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard input cannot be read", result.stderr)

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        with subprocess.Popen([COMMAND, "generate", str(self.model), "--max-tokens", "100k"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.read(10)
            process.stdout.close()
            self.assertEqual(process.wait(timeout=60), -signal.SIGPIPE)
            self.assertEqual(process.stderr.read(), b"")


class Folders(OutputTest):
    def writers(self, out):
        return (("train", self.text, "-o", out, *TINY_TRAINING), ("tokenize", self.text, "-o", out),
                ("compare", self.text, "--out", out, *TINY_COMPARE))

    def test_what_is_no_folder(self):
        fifo = self.fifo(self.folder / "fifo")
        for words in self.writers(self.text):
            self.fails(1, "is a regular file, expected a folder", *words)
        for words in self.writers(fifo):
            self.fails(1, "is a FIFO, expected a folder", *words)
        for words in self.writers("-"):
            self.fails(2, "found '-', which is standard output", *words)
        self.assertFalse(pathlib.Path("-").exists())

    def test_links_are_followed(self):
        for number, kind in enumerate(("to a folder", "dangling")):
            for index, _ in enumerate(self.writers("")):
                target, link = self.folder / f"target-{number}{index}", self.folder / f"link-{number}{index}"
                if kind == "to a folder":
                    target.mkdir()
                link.symlink_to(target)
                self.succeeds(*self.writers(link)[index])
                self.assertTrue(link.is_symlink(), kind)
                self.assertGreater(len(list(target.iterdir())), 1)

    def test_a_model_and_tokens_do_not_share_a_folder(self):
        model, data = self.copy_of_model("kept"), self.folder / "tokens"
        before = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
        self.fails(2, "is a model folder", "tokenize", self.text, "-o", model, "--tokenizer", "words")
        self.assertEqual({path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}, before)
        self.succeeds("tokenize", self.text, "-o", data, "--tokenizer", "words")
        self.fails(2, "is a folder of tokens", "train", self.text, "-o", data, *TINY_TRAINING)
        self.succeeds("tokenize", "--check", data)

    def test_what_a_folder_holds_is_replaced_only_if_asked(self):
        model, data, report = self.copy_of_model("mine"), self.folder / "my-data", self.folder / "my-report"
        compared, other = self.folder / "my-comparison", self.folder / "another-comparison"
        compare = ("compare", self.text, *TINY_COMPARE)
        self.succeeds("tokenize", self.text, "-o", data)
        self.succeeds(*compare, "--out", compared)
        self.succeeds(*compare, "--out", other, "--seed", "7")
        self.succeeds("report", compared, "--out", report)
        holders = ((model, "contains a model", ("train", self.text, "-o", model, "--seed", "7", *TINY_TRAINING)),
                   (data, "--overwrite", ("tokenize", self.text, "-o", data, "--tokenizer", "words")),
                   (compared, "contains a different comparison", (*compare, "--out", compared, "--learning-rate", "0.25")),
                   (report, "contains a report", ("report", other, "--out", report)),
                   (report, "contains a report", (*compare, "--out", report)))

        def contents(folder):
            return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

        for folder, mentions, words in holders:
            before = contents(folder)
            self.fails(2, mentions, *words)
            self.fails(2, "--overwrite", *words)
            self.assertEqual(contents(folder), before)
        # The same again is a resumption, or a redrawing.
        self.succeeds("train", "--resume", model)
        self.succeeds(*compare, "--out", compared)
        self.succeeds("report", compared, "--out", report)
        self.succeeds("report", compared, "--out", compared)
        for folder, _, words in holders:
            before = contents(folder)
            self.succeeds(*words, "--overwrite")
            self.assertNotEqual(contents(folder), before)
        self.fails(2, "choose one", "train", "--resume", model, "--overwrite")
        self.fails(2, "choose one", "compare", "--resume", compared, "--overwrite")
        # A model without the run that made it is somebody's too, also where a run would be resumed.
        shutil.rmtree(model / "checkpoints")
        for resume in ((), ("--resume",)):
            self.fails(2, "contains a model", "train", self.text, "-o", model, *TINY_TRAINING, *resume)

    def test_a_full_disk_leaves_the_old_tokens(self):
        data = self.folder / "full"
        self.succeeds("tokenize", self.text, "-o", data)
        before = {path.name: path.read_bytes() for path in data.iterdir()}
        result = self.run_in_folder("tokenize", self.text, self.valid, "-o", data, "--tokenizer", "words",
                                    "--overwrite", preexec_fn=small_files)
        self.assertEqual(result.returncode, 1)
        self.assertIn("File too large", result.stderr)
        self.assertEqual({path.name: path.read_bytes() for path in data.iterdir()}, before)
        self.succeeds("tokenize", "--check", data)

    def test_one_compare_at_a_time(self):
        out = self.folder / "shared"
        words = ("compare", self.text, "--out", out, *TINY_COMPARE)
        out.mkdir()
        lock = os.open(out, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            self.fails(1, "in use by another process", *words)
        finally:
            os.close(lock)
        # And reversed: it holds the folder while it works.
        long = [COMMAND, "compare", str(self.text), "--out", str(out), "--positions", "none", "--train-length", "8",
                "--lengths", "8", "--train-tokens", "2M", "--batch-tokens", "64"]
        with subprocess.Popen(long, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                deadline = time.monotonic() + 60
                while process.poll() is None and time.monotonic() < deadline:
                    lock = os.open(out, os.O_RDONLY)
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        break
                    finally:
                        os.close(lock)
                    time.sleep(0.01)
                self.fails(1, "in use by another process", *words)
                self.assertIsNone(process.poll())
            finally:
                process.kill()


class Inputs(OutputTest):
    def test_only_regular_files_are_read(self):
        """A FIFO without a writer would wait for ever, a device fill the memory."""
        def limited():
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            for kind in ("a FIFO", "a device", "a folder"):
                model = self.copy_of_model(f"{name}-{kind[2:]}")
                (model / name).unlink()
                if kind == "a FIFO":
                    os.mkfifo(model / name)
                elif kind == "a device":
                    (model / name).symlink_to("/dev/zero")
                else:
                    (model / name).mkdir()
                result = self.run_in_folder("info", model, preexec_fn=limited)
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"{name}: is {kind}, expected a regular file", result.stderr)
        for settings in (self.fifo(self.folder / "settings"), "/dev/zero"):
            self.fails(1, "expected a regular file", "train", "--config", settings, "-o", self.folder / "none")

    def test_a_tokenizer_that_claims_to_be_huge(self):
        model = self.copy_of_model("huge")
        with (model / "tokenizer.model").open("w") as file:
            file.truncate(1 << 40)
        self.fails(1, "tokenizer.model: has 1099511627776 bytes", "info", model)

    def test_text_may_come_through_a_fifo(self):
        fifo = self.fifo(self.folder / "text-fifo")
        writer = threading.Thread(target=lambda: fifo.write_text(self.valid.read_text()))
        writer.start()
        self.succeeds("eval", self.model, fifo, "--lengths", "32", "--json", self.folder / "fifo.json")
        writer.join()
        self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--json", self.folder / "file.json")
        self.assertEqual(self.json_of("fifo.json")["eval"][0]["nll"], self.json_of("file.json")["eval"][0]["nll"])
        with open("/dev/zero", "rb") as endless:
            result = self.run_in_folder("eval", self.model, "-", stdin=endless)
            self.assertIn("standard input is not text: byte 0 is NUL", result.stderr)
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.assertIn("standard input cannot be read",
                      self.run_in_folder("eval", self.model, "-", stdin=folder).stderr)

    def test_links_that_go_round(self):
        loop = self.folder / "round"
        loop.symlink_to("round")
        for words in (("info", loop), ("eval", self.model, loop), ("train", loop, "-o", self.folder / "none"),
                      ("train", self.text, "-o", loop), ("train", "--config", loop), ("tokenize", "--check", loop),
                      ("train", "--resume", loop)):
            result = run(*words)
            self.assertIn(result.returncode, (1, 2))
            self.assertIn("round", result.stderr)
            self.assertNotIn("filesystem error", result.stderr)
        for name in ("config.json", "model.safetensors"):
            model = self.copy_of_model("round-" + name)
            (model / name).unlink()
            (model / name).symlink_to(name)
            self.fails(1, f"{name}: Too many levels of symbolic links", "info", model)

    def test_folders_that_must_not_be_read(self):
        model = self.copy_of_model("closed-to-others")
        model.chmod(0o700)
        self.folder.chmod(0o755)

        def become_nobody():
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(65534)

        if os.geteuid() == 0:
            if subprocess.run(["test", "-x", COMMAND], preexec_fn=become_nobody, check=False).returncode != 0:
                self.skipTest("other users cannot run the command where it lies")
        else:
            model.chmod(0)
            self.addCleanup(model.chmod, 0o700)
        for words in (("info", model), ("eval", model, self.valid)):
            result = self.run_in_folder(*words, preexec_fn=become_nobody)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr,
                             r"^alibi: error: \[read\] .*closed-to-others/config.json: Permission denied\n$")
        model.chmod(0o755)
        kept = self.folder / "for-all" / "kept.json"
        kept.parent.mkdir()
        kept.parent.chmod(0o777)
        kept.write_text("kept")
        kept.chmod(0o444)
        result = self.run_in_folder("eval", model, self.valid, "--json", kept, preexec_fn=become_nobody)
        self.assertEqual((result.returncode, result.stdout), (1, ""), "told before the work")
        self.assertIn("kept.json: Permission denied", result.stderr)


class Messages(OutputTest):
    def test_nothing_that_a_terminal_obeys(self):
        name = "evil\x1b[31m\n\x07\u009b1m\u202edna\udcff"
        self.assertEqual(run("info", name).stderr, "alibi: error: [model] evil\\x1b[31m\\n\\x07\\x9b1m\\u202edna"
                                                   "\\xff: no such folder or file\n")
        model = self.copy_of_model("loud")
        config = json.loads((model / "config.json").read_text())
        for value in ("a\x1b]0;title\x07b", "a\u009bb", "x" * 100_000):
            (model / "config.json").write_text(json.dumps({**config, "model_type": value}))
            result = run("info", model)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"^[ -~]*\n$")
            self.assertLess(len(result.stderr), 5000)
        self.fails(2, "evil\\x1b", "info", self.model, "--evil\x1b")

    def test_an_option_given_twice(self):
        for words in (("train", self.text, "-o", "none", "--train-tokens", "5", "--train-tokens", "6"),
                      ("bench", "train", "--seconds", "1", "--seconds", "2"), ("info", "--json", "a", "--json", "b")):
            result = run(*words)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"{words[-2]} is given 2 times, expected once\n", result.stderr)

    def test_numbers_that_the_text_cannot_fill(self):
        short, out = self.folder / "short.txt", self.folder / "none"
        short.write_text(self.text.read_text()[:1000])
        huge = "100000000"
        for words, mentions in ((("--train-length", "99999999999"), "the length is 99999999999"),
                                (("--train-length", "99999999999", "--position", "learned"), "99999999999, expected"),
                                (("--train-length", "99999999", "--position", "learned"), "the length is 99999999,"),
                                (("--train-length", "950"), "940 tokens"),
                                (("--batch-tokens", huge), f"an update has {huge} tokens, expected at most"),
                                (("--batch-tokens", huge, "--epochs", "2"), "expected at most 1880"),
                                (("--batch-tokens", "513", "--train-tokens", "512"), "expected at most 512")):
            self.fails(2, mentions, "train", short, "-o", out, *words)
            self.assertFalse((out / "train.json").exists())
        self.fails(2, huge, "compare", short, "--out", out, "--batch-tokens", huge)
        self.fails(2, "the length is 950", "compare", short, "--out", out, "--train-length", "950", "--train-tokens", "1M")
        # The preset's batch is cut, and that is said.
        text = self.succeeds("train", short, "-o", out, "--train-length", "16", "--train-tokens", "64")
        self.assertIn("--batch-tokens is reduced from 2,048 to 64, the number of tokens to train on\n", text)
        self.assertIn("\n1 update of up to 64 tokens, ", text)
        self.assertEqual(json.loads((out / "train.json").read_text())["batch-tokens"], 64)
        text = self.succeeds("eval", self.model, self.valid, "--lengths", "32,5k")
        self.assertIn("fewer than the length 5,000", text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
