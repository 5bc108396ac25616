"""The runner of the CI says success only if every stage of the level has passed."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RUNNER = pathlib.Path(__file__).resolve().parents[2] / ".ci/runner.py"
STAGES = """# name levels cores needs commands
first check,full all - echo '[  PASSED  ] 12 tests.'
one   check,full 1 first sleep 0.2; echo '3 passed in 1s'; (sleep 300 &)
two   check,full 1 first {two}
last  full all one,two echo 'Ran 5 tests in 1s'
apart full all first echo 'Ran 6 tests in 1s'
"""


class Runner(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="alibi-ci-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name) / "project"
        (self.folder / ".ci").mkdir(parents=True)
        shutil.copy(RUNNER, self.folder / ".ci")
        self.record = self.folder.parent / "alibi-ci/full"
        git = ["git", "-c", "user.name=a", "-c", "user.email=b", "-C", self.folder]
        (self.folder / ".gitignore").write_text("build-ci\nstages\n", encoding="utf-8")
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "a"]):
            subprocess.run([*git, *words], check=True)

    def start(self, two, *arguments):
        (self.folder / ".ci/stages").write_text(STAGES.format(two=two), encoding="utf-8")
        return subprocess.Popen([sys.executable, self.folder / ".ci/runner.py", *arguments], text=True, stdout=subprocess.PIPE,
                                env={**os.environ, "XDG_CACHE_HOME": str(self.folder.parent)})

    def run_stages(self, two, *arguments):
        process = self.start(two, *arguments)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output

    def test_all_stages_pass(self):
        code, output = self.run_stages("echo '7 tests passed'")
        self.assertEqual(code, 0, output)
        self.assertIn("Not run, as not of the level check: last apart\n", output)
        for name, tests in (("first", 12), ("one", 3), ("two", 7)):
            self.assertRegex(output, rf"(?m)^{name} +\d+ +\d+ +{tests}  passed$")
        self.assertFalse(self.record.exists())
        code, output = self.run_stages("true", "--full")
        self.assertEqual(code, 0, output)
        self.assertRegex(self.record.read_text(encoding="utf-8"), "^[0-9a-f]{40}$")

    def test_a_full_run_of_changed_files_is_not_recorded(self):
        (self.folder / "new").touch()
        code, output = self.run_stages("true", "--full")
        self.assertEqual(code, 0, output)
        self.assertFalse(self.record.exists())

    def test_what_failed_or_was_killed_or_left_out_fails(self):
        for two, message in (("exit 3", "exit code 3"), ("kill -9 $$", "exit code -9"), ("false | true", "exit code 1"),
                             ("echo SKIPPED: no network", "SKIPPED: no network")):
            code, output = self.run_stages(two, "--full")
            self.assertEqual(code, 1, output)
            self.assertRegex(output, rf"(?m)^two .*{message}$")
            self.assertRegex(output, "(?m)FAILED: two - NOT RUN:" + (" ?$" if "SKIPPED" in two else " last$"))
            self.assertRegex(output, r"(?m)^apart .* 6  passed$")
            self.assertFalse(self.record.exists())

    def test_the_errors_stand_after_the_table(self):
        _, output = self.run_stages("echo '[  FAILED  ] A.Test (3 ms)'; echo 'a.cc:3: Failure'; echo Expected; seq 5000; exit 8")
        self.assertIn("\ntwo:\n  [  FAILED  ] A.Test (3 ms)\n  a.cc:3: Failure\nExpected\nFAILED: two", output)

    def test_the_check_stops_at_the_first_failure(self):
        (self.folder / ".ci/stages").write_text("# first line\nfirst check all - exit 3\nlate check all - echo late\n")
        process = subprocess.run([sys.executable, self.folder / ".ci/runner.py"], text=True, stdout=subprocess.PIPE)
        self.assertIn("FAILED: first - NOT RUN: late", process.stdout)
        self.assertEqual(process.returncode, 1)

    def test_a_signal_ends_the_stages(self):
        process = self.start(f"echo begun; sleep 300; touch {self.folder}/ended")
        while "begun" not in process.stdout.readline():
            pass
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 143)
        process.stdout.close()

    def test_names_choose_stages_with_those_that_they_need(self):
        code, output = self.run_stages("true", "last", "--list")
        self.assertEqual((code, output), (0, "Stages: first one two last\nNot run: apart\n"))
        self.assertEqual(self.run_stages("true", "lost")[0], 2)


if __name__ == "__main__":
    unittest.main()
