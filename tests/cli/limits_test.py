"""The command with too little of what it needs: memory, threads."""

import resource
import subprocess
import unittest

from cli_case import COMMAND, SENTENCE, CliTest

MIB = 1 << 20


def run_within(address_space, *arguments):
    """With a limit like that of `ulimit -v`, in bytes."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, encoding="utf-8", timeout=300,
                          check=False, preexec_fn=limit)


class LimitsTest(CliTest):
    def test_small_memory_is_an_error_not_a_crash(self):
        ends = set()
        for mib in range(40, 340, 12):  # from where the libraries can just be loaded
            result = run_within(mib * MIB, "eval", self.model, self.valid, "--threads", 2)
            if result.returncode == 127:
                continue  # not even the libraries could be loaded
            ends.add(result.returncode)
            self.assertIn(result.returncode, (0, 1), f"{mib} MiB: {result.stderr}")
            if result.returncode == 1:
                self.assertTrue(result.stderr.startswith("alibi: error: "), f"{mib} MiB: {result.stderr}")
                self.assertRegex(result.stderr, "memory|threads", f"{mib} MiB")
        self.assertIn(1, ends, "some of these limits must be too small")

    def test_small_memory_while_json_is_read(self):
        """A JSON value allocates while it is freed: what was read of it must not end the process."""
        codes = []
        for kib in range(40 * 1024, 100 * 1024, 64):
            result = run_within(kib * 1024, "info", self.model)
            if result.returncode == 127:
                continue  # not even the libraries could be loaded
            codes.append(result.returncode)
            self.assertIn(result.returncode, (0, 1), f"{kib} KiB: {result.stderr}")
            if codes[-8:] == [0] * 8:
                break
        self.assertIn(1, codes, "some of these limits must be too small")

    def test_small_memory_while_tokens_are_learned(self):
        text = self.folder / "long.txt"
        text.write_text("".join(SENTENCE.format(i * i) for i in range(20_000)))
        ends = set()
        for mib in range(60, 340, 20):
            result = run_within(mib * MIB, "tokenize", text, "-o", self.folder / "tokens", "--overwrite", "--tokenizer",
                                "bpe", "--vocab-size", "400", "--threads", 1)
            if result.returncode == 127:
                continue
            self.assertIn(result.returncode, (0, 1), f"{mib} MiB: {result.stderr}")
            if result.returncode == 1:
                ends.add(result.stderr)
                self.assertRegex(result.stderr, r"^alibi: error: \[.*(memory|threads?).*\n$", f"{mib} MiB")
        self.assertTrue([end for end in ends if "SentencePiece" in end], ends)

    def test_files_that_must_not_grow(self):
        """With a limit like that of `ulimit -f`, whose signal would end the process."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        for words in (("train", self.text, "-o", self.folder / "large", "--train-tokens", "4k", "--batch-tokens", "512"),
                      ("tokenize", self.text, "-o", self.folder / "large-data")):
            result = subprocess.run([COMMAND, *map(str, words)], capture_output=True, encoding="utf-8", timeout=300,
                                    check=False, preexec_fn=limit)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, r"^alibi: error: \[write\] .*File too large")

    def test_threads_that_the_system_refuses(self):
        # Each has a stack of some MiB of address space.
        result = run_within(1024 * MIB, "eval", self.model, self.valid, "--threads", 1024)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"^alibi: error: \[threads\] the system refused to create thread \d+ of 1024 ")


if __name__ == "__main__":
    unittest.main()
