"""Shell completion and the manual pages, which are made from the options of the command."""

import pathlib
import re
import shutil
import subprocess
import unittest

from cli_case import COMMAND, COMMANDS, CliTest, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALIBI = pathlib.Path(COMMAND).resolve()

def candidates(*words):
    """What may stand in place of the last word, and what it means."""
    result = run("__complete", *words)
    return dict(line.partition("\t")[::2] for line in result.stdout.splitlines())


def options_of(text):
    return re.findall(r"^ +(?:-\w,)?--([\w-]+)", text, re.MULTILINE)


class WhatIsOffered(CliTest):
    def test_commands_and_every_option_of_every_help(self):
        self.assertEqual({name for name in candidates("") if name[0] not in "-:"}, {command.split()[0] for command in [*COMMANDS, "completion"]})
        for command in COMMANDS:
            text = self.succeeds(*command.split(), "--help", "all")
            self.assertEqual(set(candidates(*command.split(), "--")), {f"--{option}" for option in options_of(text)})
        self.assertEqual(candidates("train", "--hea"), {"--heads": "Number of attention heads [4 for tiny]"})

    def test_the_last_word_may_be_a_value(self):
        for words, expected in ((("train", "--train-length", ""), set()), (("train", "-o", ""), {":directory"}),
                                (("train", "--plan", "tex"), {":file"}), (("train", "--json", ""), {":file"}),
                                (("train", "--position", "t"), {"t5"}), (("train", "--position=t"), {"--position=t5"}),
                                (("train", "--position", "=", "t"), {"t5"}),
                                (("compare", "--positions=t5,s"), {"--positions=t5,sinusoidal", ":list"}),
                                (("bench", "--", "attention", "--dty"), {"--dtype"}), (("train", "--preset", "eval", "--pl"), {"--plan"}),
                                (("eval", "--help", ""), {":file"}), (("nonsense", "ev"), {"eval"})):
            with self.subTest(words):
                self.assertEqual(set(candidates(*words)), expected)

    def test_the_choices_are_those_that_the_command_knows(self):
        choices = [(command, f"--{option}", found) for command in COMMANDS
                   for option in options_of(self.succeeds(*command.split(), "--help", "all"))
                   if (found := {word for word in candidates(*command.split(), f"--{option}", "") if word[0] not in "-:"})
                   and ":file" not in candidates(*command.split(), f"--{option}", "")]
        self.assertGreater(len(choices), 10)
        for command, option, words in choices:
            path = "/" + command.replace(" ", "/")
            arguments = [*command.split(), option, "nonsense"]
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
            for word in words:
                self.assertIn(word, re.findall(r"[\w.-]+", message), message)
            if path.startswith("/bench/"):
                continue  # it takes less than others do, which the message names
            self.assertLessEqual(set(re.findall(r"[\w.-]+", listed)) - {"or", "and"}, words, message)


class InTheShell(CliTest):
    def script(self, shell):
        file = self.folder / f"completion.{shell}"
        file.write_text(self.succeeds("completion", shell))
        return file

    def completed(self, *words):
        """What bash offers for the last word."""
        drive = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _alibi "$1" 2>"$0.errors"; '
                 'printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run(["bash", "-c", drive, self.script("bash"), ALIBI, *words], capture_output=True,
                                text=True, check=True, cwd=self.folder)
        return result.stdout.split()

    def test_bash(self):
        self.assertEqual(self.completed("b"), ["bench"])
        self.assertEqual(self.completed("bench", "attention", "--dty"), ["--dtype"])
        self.assertEqual(self.completed("bench", "tr"), ["train"])
        self.assertEqual(self.completed("compare", "--preset", "pap"), ["paper-1.3b"])
        self.assertEqual(self.completed("compare", "--preset", "=", "ti"), ["tiny"])
        self.assertEqual(self.completed("compare", "--positions", "alibi,r"), ["alibi,rotary"])
        self.assertEqual(self.completed("compare", "tex"), ["text.txt"])
        self.assertEqual(self.completed("eval", "mo"), ["model"])
        self.assertEqual(self.completed("train", "--like", "mo"), ["model"])
        self.assertEqual(self.completed("train", "--like", "tex"), [])

    @unittest.skipUnless(shutil.which("fish"), "no fish on this machine")
    def test_fish(self):
        script = self.script("fish")

        def completed(line):
            result = subprocess.run(["fish", "-c", f"source {script}; complete -C '{line}'"], capture_output=True,
                                    text=True, check=True, cwd=self.folder,
                                    env={"HOME": str(self.folder), "PATH": f"{ALIBI.parent}:/usr/bin:/bin"})
            self.assertEqual(result.stderr, "")
            return [one.split("\t")[0] for one in result.stdout.splitlines()]

        self.assertEqual(completed("alibi b"), ["bench"])
        self.assertEqual(completed("alibi bench attention --dty"), ["--dtype"])
        self.assertEqual(completed("alibi compare --preset pap"), ["paper-1.3b"])
        self.assertEqual(completed("alibi compare --positions alibi,r"), ["alibi,rotary"])
        self.assertEqual(completed("alibi eval mo"), ["model/"])
        self.assertEqual(completed("alibi train --like=mo"), ["--like=model/"])
        self.assertEqual(completed("alibi train --like tex"), [])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh on this machine")
    def test_zsh(self):
        subprocess.run(["zsh", "-f", "-c", f"autoload -Uz compinit && compinit -D && source {self.script('zsh')}"],
                       check=True, capture_output=True)
        drive = ('compdef() {}; compset() {}; _files() { print files $@; }; _describe() { print -l -- ${(P)2} ${@[3,-1]}; }; '
                 'source $1; words=(${@[2,-1]}); CURRENT=$#words; _alibi')

        def completed(*words):
            result = subprocess.run(["zsh", "-f", "-c", drive, "zsh", self.script("zsh"), ALIBI, *words], capture_output=True,
                                    text=True, check=True)
            self.assertEqual(result.stderr, "")
            return result.stdout.splitlines()

        self.assertEqual(completed("b")[0].partition(":")[0], "bench")
        self.assertEqual(completed("compare", "--positions", "alibi,r"), ["alibi,rotary", "-S"])
        self.assertEqual(completed("eval", "mo")[0], "files")
        self.assertEqual(completed("train", "--like", "mo")[0], "files -/")

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
