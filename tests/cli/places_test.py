"""No command loses what another one writes, or what it reads itself: pairs of commands with the same place."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import unittest

from cli_case import COMMAND, CliTest, TINY_TRAINING, run

TINY_COMPARE = ("--positions", "none", "--train-length", "8", "--lengths", "8", "--train-tokens", "256", "--batch-tokens", "64",
                "--sample-tokens", "0", "--timing-rounds", "0")
BENCH = ("bench", "attention", "--lengths", "16", "--contexts", "16", "--seconds", "0", "--dtype", "f32")
pairs = 0  # that were tried


def content_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class PlacesTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.records = cls.folder / "records.jsonl"
        cls.records.write_text('{"text": "a line"}\n')
        cls.data = cls.folder / "data"
        assert run("tokenize", cls.text, "-o", cls.data).returncode == 0
        cls.compared = cls.folder / "compared"
        result = run("compare", cls.text, "-o", cls.compared, *TINY_COMPARE)
        assert result.returncode == 0, result.stderr
        cls.gguf = cls.folder / "model.gguf"
        result = run("convert", cls.model, cls.gguf, "--to", "gguf")
        assert result.returncode == 0, result.stderr
        cls.tensors = cls.folder / "qkv.safetensors"
        assert run("bench", "capture", cls.model, cls.valid, "--length", "50", "--out", cls.tensors).returncode == 0

    def refused(self, words, **options):
        """The command fails at once, says which place it is, and everything is as it was."""
        global pairs
        pairs += 1
        before = content_of(self.folder)
        files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        result = subprocess.run([COMMAND, *map(str, words)], encoding="utf-8", timeout=60, check=False, **files)
        self.assertIn(result.returncode, (1, 2), f"{words}\n{result.stdout}{result.stderr}")
        self.assertRegex(result.stderr, "would be (replaced|written)|exists|contains|in use|being written", str(words))
        after = content_of(self.folder)
        lost = [str(path) for path, content in before.items() if after.get(path) != content]
        self.assertEqual(lost, [], str(words))
        return result


class Inputs(PlacesTest):
    """An output that is an input."""

    def readers(self, file):
        """Commands that read this file, or its folder, by each option that names an input. The output is added."""
        if file.parent in (self.model, self.data, self.compared):
            of = {self.model: (("info", self.model), ("eval", self.model, self.valid), ("eval", self.model, "--held-out"),
                               ("generate", self.model, "--max-tokens", "2"), ("score", self.model, self.valid),
                               ("embed", self.model, self.valid), ("convert", self.model, self.folder / "new"),
                               ("tokenize", self.text, "-o", self.folder / "new", "--like", self.model),
                               ("train", self.text, "-o", self.folder / "new", "--from", self.model, *TINY_TRAINING),
                               ("bench", "generate", "--model", self.model),
                               ("bench", "capture", self.model, self.valid, "--out", self.folder / "new.safetensors")),
                  self.data: (("train", self.data, "-o", self.folder / "new", *TINY_TRAINING),
                              ("tokenize", "--check", self.data), ("eval", self.model, self.data)),
                  self.compared: (("report", self.compared, "-o", self.folder / "new"),
                                  ("report", f"label={self.compared}", "-o", self.folder / "new"))}
            return of[file.parent]
        if file == self.gguf:
            return (("info", file), ("embed", file, self.valid), ("convert", file, self.folder / "new"))
        if file == self.tensors:
            return (("bench", "attention", "--tensors", file), ("bench", "sequence", "--tensors", file))
        return (("eval", self.model, file), ("score", self.model, file), ("embed", self.model, file),
                ("embed", self.model, self.valid, "--similarity", file), ("rerank", self.model, "--query", "a", file),
                ("generate", self.model, "--prompt-file", file), ("tokenize", file, "-o", self.folder / "new"),
                ("tokenize", self.text, "--valid", file, "-o", self.folder / "new"),
                ("train", file, "-o", self.folder / "new", *TINY_TRAINING),
                ("compare", file, "-o", self.folder / "new", *TINY_COMPARE),
                ("bench", "capture", self.model, file, "--out", self.folder / "new.safetensors"))

    def test_json(self):
        files = [self.text, self.records, self.gguf, self.tensors, self.compared / "results.json", self.data / "train.tokens",
                 self.model / "config.json", self.model / "model.safetensors", self.model / "tokenizer.json"]
        for file in files:
            for words in self.readers(file):
                place = self.valid if "--held-out" in words else file  # train.json names it
                self.assertIn("[--json]", self.refused((*words, "--json", place)).stderr)
        settings = self.folder / "settings.json"
        settings.write_text(json.dumps({"text": [str(self.text)]}))
        self.refused(("train", "--config", settings, "-o", self.folder / "new", "--json", settings))
        self.assertFalse((self.folder / "new" / "model.safetensors").exists())

    def test_by_another_name(self):
        hard, symbolic, folder = self.folder / "hard.txt", self.folder / "symbolic.txt", self.folder / "texts"
        os.link(self.text, hard)
        symbolic.symlink_to(self.text)
        folder.mkdir()
        (folder / "linked").symlink_to(self.model)
        for name in (hard, symbolic, self.folder / "model" / ".." / "text.txt"):
            self.refused(("eval", self.model, self.text, "--json", name))
            self.refused(("eval", self.model, name, "--json", self.text))
        # A file below a folder, through a link in the folder.
        self.refused(("tokenize", folder, "-o", self.folder / "new", "--json", self.model / "config.json"))
        for words in (("eval", self.model, "-"), ("embed", self.model), ("score", self.model), ("eval", self.model, "/dev/stdin"),
                      ("generate", self.model, "--prompt", "-"), ("rerank", self.model, "--query", "a")):
            with self.text.open() as text:
                self.refused((*words, "--json", self.text), stdin=text)
        with self.text.open("r+") as text:
            self.refused(("eval", self.model, self.text, "--json", "-"), stdout=text)

    def test_other_outputs(self):
        for file in (self.records,):
            self.refused(("embed", self.model, file, "-o", file))
            self.refused(("embed", self.model, self.valid, "--similarity", file, "--json", file))
        self.refused(("embed", self.model, self.valid, "-o", self.model / "model.safetensors"))
        self.refused(("bench", "capture", self.model, self.valid, "--out", self.model / "model.safetensors"))
        self.refused(("convert", self.model, self.model / "model.safetensors", "--to", "gguf"))
        self.refused(("convert", self.model, self.model / "model.safetensors", "--to", "gguf", "--overwrite"))
        self.refused(("convert", self.gguf, self.gguf, "--to", "gguf", "--overwrite"))
        self.refused(("convert", self.model, self.model, "--to", "hf", "--overwrite"))
        self.refused(("train", self.text, "-o", self.model, "--from", self.model, "--overwrite", *TINY_TRAINING))
        self.refused(("tokenize", self.text, "-o", self.data, "--like", self.data, "--overwrite"))
        other = self.copy_of_model("other")
        self.refused(("convert", self.model, other, "--to", "hf"))
        self.refused(("convert", self.model, self.gguf, "--to", "gguf"))
        self.refused(("convert", self.model, other / "config.json", "--to", "gguf"))
        self.succeeds("convert", self.gguf, other, "--to", "hf", "--overwrite")

    def test_each_file_that_a_folder_command_writes(self):
        """The names that the command checks are those that it writes."""
        for folder, words in ((self.model, ("train", "-o", self.model, "--overwrite", *TINY_TRAINING)),
                              (self.data, ("tokenize", "-o", self.data, "--overwrite")),
                              (self.compared, ("compare", "-o", self.compared, "--overwrite", *TINY_COMPARE))):
            copy = folder.with_name(folder.name + "-copy")
            shutil.copytree(folder, copy)
            self.addCleanup(shutil.rmtree, copy)
            words = [copy if word == folder else word for word in words]
            for path in sorted(copy.rglob("*")):
                if path.is_file():
                    self.refused((words[0], path, *words[1:]))

    def test_two_outputs(self):
        new = self.folder / "x.npy"
        self.refused(("embed", self.model, self.valid, "-o", new, "--json", new))
        self.refused(("embed", self.model, self.valid, "-o", new, "--json", f"{new}.part"))
        self.refused(("train", self.text, "-o", self.folder / "new2", "--json", self.folder / "new2" / "config.json",
                      *TINY_TRAINING))
        self.refused(("compare", self.text, "-o", self.folder / "new2", *TINY_COMPARE,
                      "--json", self.folder / "new2" / "models" / "x.json"))
        self.assertFalse(new.exists())
        # What only looks alike is written.
        (self.folder / "null").symlink_to("/dev/null")
        self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--json", "/dev/null")
        self.succeeds("info", self.model, "--json", self.model.parent / "model.json")
        log = self.folder / "log.txt"
        log.write_text("a line\n")
        with log.open("a") as file:  # as `>> log.txt`
            result = subprocess.run([COMMAND, "score", self.model, log, "--json", "-"], stdout=file, stderr=subprocess.PIPE,
                                    check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(log.read_text().startswith("a line\n{"))


class SamePlace(PlacesTest):
    """A command holds its output while it waits for standard input, and others want the same place."""

    @contextlib.contextmanager
    def waiting(self, words, held):
        with subprocess.Popen([COMMAND, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            try:
                deadline = time.monotonic() + 60
                while not held() and time.monotonic() < deadline:
                    self.assertIsNone(process.poll(), f"{words}: {process.stderr.read() if process.poll() else ''}")
                    time.sleep(0.005)
                yield
                _, errors = process.communicate(self.text.read_bytes(), timeout=120)
                self.assertEqual(process.returncode, 0, f"{words}: {errors}")
            finally:
                process.kill()

    @unittest.skipUnless(sys.platform == "linux", "names of files are reserved on Linux")
    def test_files(self):
        new = self.folder / "folder"
        for number, words in enumerate((("eval", self.model, "-", "--lengths", "32", "--json"), ("score", self.model, "--json"),
                                        ("generate", self.model, "--prompt", "-", "--max-tokens", "2", "--json"),
                                        ("embed", self.model, "--json"), ("embed", self.model, "-o"),
                                        ("tokenize", "-", "-o", new, "--json"),
                                        ("train", "-", "-o", new, *TINY_TRAINING, "--json"),
                                        ("compare", "-", "-o", new, *TINY_COMPARE, "--json"),
                                        ("bench", "capture", self.model, "-", "--length", "50", "--out"))):
            shutil.rmtree(new, ignore_errors=True)
            place = self.folder / f"place{number}.safetensors"

            def names():
                with open("/proc/net/unix", encoding="utf-8") as file:
                    return {line.split()[-1] for line in file if "@alibi-output-" in line}
            before = names()
            with self.waiting((*words, place), lambda before=before: names() - before):
                for other in (("info", self.model, "--json"), ("info", "--cpu", "--json"), ("eval", self.model, self.valid, "--json"),
                              ("score", self.model, self.valid, "--json"), ("generate", self.model, "--json"),
                              ("embed", self.model, self.valid, "-o"), ("embed", self.model, self.valid, "--json"),
                              ("bench", "capture", self.model, self.valid, "--out"), (*BENCH, "--json"),
                              ("convert", self.model, "--to", "gguf", "--overwrite"),
                              ("report", self.compared, "-o", self.folder / "new", "--json")):
                    self.assertIn("is being written by another process", self.refused((*other, place)).stderr)
            self.assertGreater(place.stat().st_size, 0)

    def test_folders(self):
        for number, words in enumerate((("train", "-", *TINY_TRAINING, "-o"), ("tokenize", "-", "-o"),
                                        ("compare", "-", *TINY_COMPARE, "-o"))):
            place = self.folder / f"folder{number}"

            def is_locked(place=place):
                if not place.exists():
                    return False
                folder = os.open(place, os.O_RDONLY)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return False
                except BlockingIOError:
                    return True
                finally:
                    os.close(folder)
            with self.waiting((*words, place), is_locked):
                for other in (("train", self.text, *TINY_TRAINING, "-o"), ("train", self.text, *TINY_TRAINING, "--overwrite", "-o"),
                              ("tokenize", self.text, "-o"), ("tokenize", self.text, "--overwrite", "-o"),
                              ("compare", self.text, *TINY_COMPARE, "-o"),
                              ("compare", self.text, *TINY_COMPARE, "--overwrite", "-o"),
                              ("report", self.compared, "-o"), ("report", self.compared, "--overwrite", "-o"),
                              ("convert", self.model, "--to", "hf"), ("convert", self.model, "--to", "hf", "--overwrite")):
                    self.assertIn("in use by another process", self.refused((*other, place)).stderr)

    def test_rows_that_are_continued(self):
        """On file systems that several machines share, the lock of the rows counts."""
        out, part = self.folder / "rows.npy", self.folder / "rows.npy.part"
        with part.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.refused(("embed", self.model, self.valid, "-o", out))
        part.write_text("the only copy of a text")
        result = run("embed", self.model, self.valid, "-o", out)
        self.assertEqual(result.returncode, 1)
        self.assertIn("rows.npy.part was not written by `alibi embed`", result.stderr)
        self.assertEqual(part.read_text(), "the only copy of a text")
        part.unlink()


def tearDownModule():
    if pairs and len(sys.argv) == 1:
        assert pairs >= 200, f"{pairs} pairs were tried, expected at least 200"


if __name__ == "__main__":
    unittest.main(verbosity=1)
