"""Shell completion and the manual pages, which are made from the options of the command."""

import pathlib
import re
import shutil
import subprocess
import unittest

from cli_case import COMMAND, COMMANDS, CliTest, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELLS = ("bash", "zsh", "fish")


class WhatTheyHold(CliTest):
    def test_every_option_of_every_help_is_in_all_of_them(self):
        bash, zsh, fish = (self.succeeds("completion", shell) for shell in SHELLS)
        for command in COMMANDS:
            path = "/" + command.replace(" ", "/")
            options = re.findall(r"^ +(?:-\w,)?--([\w-]+)", self.succeeds(*command.split(), "--help", "all"), re.MULTILINE)
            self.assertIn("help" if command == "serve" else "json", options)
            bash_words = re.search(rf"'{path}'\) words='([^']*)'", bash).group(1).split()
            zsh_case = re.search(rf"'{path}'\)(.*?);;", zsh, re.DOTALL).group(1)
            for option in options:
                self.assertIn(f"--{option}", bash_words)
                self.assertRegex(zsh_case, rf"'\*?--{option}[=\[]")
                self.assertRegex(fish, rf"\"{path}\"'.* -l {option} ")

    def test_the_choices_are_those_that_the_command_knows(self):
        bash = self.succeeds("completion", "bash")
        choices = re.findall(r"'(/[\w/]+) (--\S+)'\) _alibi_(?:words|list) '([^']*)'", bash)
        self.assertGreater(len(choices), 10)
        for path, option, words in choices:
            arguments = [*path[1:].split("/"), option, "nonsense"]
            if path in ("/train", "/tokenize"):
                arguments += [self.text, "-o", self.folder / "unused"]
            if path in ("/embed", "/eval", "/generate", "/score", "/serve"):
                arguments.append(self.model)
            if path == "/rerank":
                arguments += [self.model, "--query", "a"]
            if path == "/eval":
                arguments.append(self.text)
            message = run(*arguments).stderr.splitlines()[0]
            self.assertIn("nonsense", message)
            if option == "--isa":
                continue  # the message has what this CPU offers
            # "choose from a, b", "expected a, b or c"; what it takes besides is said before.
            listed = re.split(r"choose from |expected (?:one of )?", message, maxsplit=1)[1]
            for word in words.split():
                self.assertIn(word, re.findall(r"[\w.-]+", message), message)
            if path.startswith("/bench/"):
                continue  # it takes less than others do, which the message names
            self.assertLessEqual(set(re.findall(r"[\w.-]+", listed)) - {"or", "and"}, set(words.split()), message)


class InTheShell(CliTest):
    def script(self, shell):
        file = self.folder / f"completion.{shell}"
        file.write_text(self.succeeds("completion", shell))
        return file

    def completed(self, *words):
        """What bash offers for the last word."""
        drive = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _alibi 2>"$0.errors"; '
                 'printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run(["bash", "-c", drive, self.script("bash"), *words], capture_output=True, text=True,
                                check=True, cwd=self.folder)
        return result.stdout.split()

    def test_bash(self):
        self.assertEqual(self.completed("alibi", "b"), ["bench"])
        self.assertEqual(self.completed("alibi", "bench", "attention", "--dty"), ["--dtype"])
        self.assertEqual(self.completed("alibi", "bench", "tr"), ["train"])
        self.assertEqual(self.completed("alibi", "compare", "--preset", "pap"), ["paper-1.3b"])
        self.assertEqual(self.completed("alibi", "compare", "--preset", "=", "ti"), ["tiny"])
        self.assertEqual(self.completed("alibi", "compare", "--positions", "alibi,r"), ["alibi,rotary"])
        self.assertEqual(self.completed("alibi", "compare", "tex"), ["text.txt"])
        self.assertEqual(self.completed("alibi", "eval", "mo"), ["model"])
        self.assertEqual(self.completed("alibi", "train", "--like", "mo"), ["model"])
        self.assertEqual(self.completed("alibi", "train", "--like", "tex"), [])

    @unittest.skipUnless(shutil.which("fish"), "no fish on this machine")
    def test_fish(self):
        script = self.script("fish")

        def completed(line):
            result = subprocess.run(["fish", "-c", f"source {script}; complete -C '{line}'"], capture_output=True,
                                    text=True, check=True, cwd=self.folder,
                                    env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"})
            self.assertEqual(result.stderr, "")
            return [one.split("\t")[0] for one in result.stdout.splitlines()]

        self.assertEqual(completed("alibi b"), ["bench"])
        self.assertEqual(completed("alibi bench attention --dty"), ["--dtype"])
        self.assertEqual(completed("alibi compare --preset pap"), ["paper-1.3b"])
        self.assertEqual(completed("alibi compare --positions alibi,r"), ["alibi,rotary"])
        self.assertEqual(completed("alibi eval mo"), ["model/"])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh on this machine")
    def test_zsh_reads_it(self):
        subprocess.run(["zsh", "-f", "-c", f"autoload -Uz compinit && compinit -D && source {self.script('zsh')}"],
                       check=True, capture_output=True)

    @unittest.skipUnless(shutil.which("help2man") and shutil.which("man"), "no help2man or no man on this machine")
    def test_each_command_has_a_manual_page_that_man_reads_without_warnings(self):
        pages = self.folder / "pages"
        subprocess.run([ROOT / "scripts" / "release" / "manual-pages", COMMAND, pages], check=True)
        for command in COMMANDS:
            page = pages / f"alibi-{command.replace(' ', '-')}.1"
            result = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=True,
                                    env={"MANWIDTH": "300", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"})
            self.assertEqual(result.stderr, "")
            self.assertIn(f"alibi-{command.replace(' ', '-')} - ", result.stdout)
            helped = self.succeeds(*command.split(), "--help", "all")
            for option in re.findall(r"^ +(?:-\w,)?--([\w-]+)", helped, re.MULTILINE):
                self.assertIn(f"--{option}", result.stdout)
            for example in re.findall(r"^  (alibi .*)", helped.partition("Examples:")[2], re.MULTILINE):
                self.assertIn(example, result.stdout)


if __name__ == "__main__":
    unittest.main()
