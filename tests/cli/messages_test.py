"""Help, and what the command says when it is called wrongly or given bad files.

Exit codes: 1 failed, 2 called wrongly.
"""

import json
import os
import platform
import unittest

from cli_case import CliTest, COMMANDS, TINY_TRAINING, run


class Help(CliTest):
    def test_every_command_has_help_with_examples_and_common_options(self):
        for command in COMMANDS:
            text = self.succeeds(*command.split(), "--help")
            for expected in ("Examples:", f"alibi {command}", "--json", "--threads", "--seed"):
                if command != "serve" or expected not in ("--json", "--seed"):  # requests have these
                    self.assertIn(expected, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 160)

    def test_help_leaves_out_rare_options_and_says_how_to_see_them(self):
        rare = ("--ranks", "--sequence-ranks", "--shards", "--warmup-from", "--floor", "--period", "--momentum", "--t5-init")
        for command, most in (("train", 75), ("compare", 77)):
            few, every = self.succeeds(command, "--help"), self.succeeds(command, "--help", "all")
            left_out = set(every.splitlines()) - set(few.splitlines())
            self.assertLess(len(few.splitlines()), most)
            self.assertRegex(few, rf"\nRun 'alibi {command} --help all' for \d+ more options\.\n\nExamples:")
            self.assertGreater(len(left_out), 20)
            self.assertNotIn("--help all", every)
            for name in rare:
                if name != "--ranks" or command == "train":
                    self.assertNotIn(f"  {name} ", few)
                    self.assertTrue(any(line.startswith(f"  {name} ") for line in left_out), name)
            self.assertIn("  --learning-rate ", few)
            self.assertEqual(self.succeeds(command, "-h", "all"), every)
        self.assertEqual(self.succeeds("eval", "--help"), self.succeeds("eval", "--help", "all"))

    def test_models_may_be_gguf_files_and_names(self):
        for command in ("eval", "info", "generate", "score", "embed", "convert"):
            self.assertRegex(self.succeeds(command, "--help"), r"\n  MODEL +(REQUIRED +)?Model folder, GGUF file, or name on the ")

    def test_defaults_are_numbers(self):
        for command in COMMANDS:
            self.assertNotIn("the preset's", self.succeeds(*command.split(), "--help", "all"))

    def test_the_command_lists_its_subcommands(self):
        text = self.succeeds("--help")
        for command in COMMANDS:
            self.assertIn(command.split()[0], text)

    def test_version(self):
        self.assertRegex(self.succeeds("--version"), r"^alibi \d+\.\d+\.\d+\n$")


class Hub(CliTest):
    """Names of models, with a program in place of `hf`; tests/transformers/hub_test.py has the real one."""

    def test_a_model_is_downloaded_and_found_by_its_name(self):
        home, commit = self.folder / "home", "c" * 40
        repository = home / "hub" / "models--org--name"
        snapshot = repository / "snapshots" / commit
        (self.folder / "hf").write_text(
            f'#!/bin/sh\necho "$@"\n[ "$2" = org/name ] || exit 3\nmkdir -p {snapshot} {repository}/refs {repository}/blobs\n'
            f"printf {commit} >{repository}/refs/main\ncp {self.model}/* {repository}/blobs\n"
            f"cd {snapshot} && ln -sf ../../blobs/* .\n")
        (self.folder / "hf").chmod(0o755)
        environment = {"HF_HOME": str(home), "PATH": f"{self.folder}:{os.environ['PATH']}"}
        environment.update(dict.fromkeys(("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), str(home / "hub")))
        missing = run("info", "org/name", environment=environment)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("run: hf download org/name --exclude '*.bin'", missing.stderr)
        told = run("info", "org/name", "--download", "--json", "-", environment=environment)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(told.stderr.splitlines()[0], "download org/name --exclude *.bin")
        self.assertEqual(json.loads(told.stdout)["model"], str(snapshot))
        before = {path: path.lstat().st_mtime_ns for path in repository.rglob("*")}
        generate = ("--prompt", "the quick", "--max-tokens", "5", "--temperature", "0")
        here = self.succeeds("generate", self.model, *generate)
        for words in (("org/name",), ("hf:org/name",), (f"hf:org/name@{commit}",), ("hf:org/name", "--revision", commit)):
            self.assertEqual(run("generate", *words, *generate, environment=environment).stdout, here)
        inside = run("convert", "org/name", snapshot / "model.safetensors", "--to", "gguf", "--overwrite", environment=environment)
        self.assertEqual(inside.returncode, 2, inside.stderr)
        self.assertEqual({path: path.lstat().st_mtime_ns for path in repository.rglob("*")}, before)
        failed = run("info", "hf:org/else/a.gguf", "--download", environment=environment)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("error: [download] 'hf download org/else a.gguf' failed with exit code 3", failed.stderr)

    def test_wrong_names_and_options(self):
        self.fails(2, "[--revision]", "info", self.model, "--revision", "v1")
        self.fails(2, "[--download]", "info", self.model, "--download")
        self.fails(2, "expected hf:organization/name", "info", "hf:org/na me")
        self.fails(2, "give only one", "info", "hf:org/name@v1", "--revision", "v2")


class Verify(CliTest):
    def test_it_starts_the_python_package(self):
        python = self.folder / "python3"
        python.write_text("#!/bin/sh\nshift 2\nprintf '%s\\n' \"$@\"\nexit 7\n")
        python.chmod(0o755)
        result = run("verify", "model", "--layers", "2", "--json", "v.json", environment={"PATH": str(self.folder)})
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertEqual(result.stdout.split(), ["model", "--layers", "2", "--json", "v.json", "--seed", "0"])
        result = run("verify", "model", environment={"PATH": str(self.folder / "none")})
        self.assertEqual(result.returncode, 1)
        self.assertIn("needs Python and the package alibi-attention", result.stderr)


class CalledWrongly(CliTest):
    def test_no_command_or_an_unknown_one(self):
        self.fails(2, "subcommand")
        self.fails(2, "there is no command 'sing'\n", "sing")

    def test_the_nearest_name_is_told(self):
        for wrong, meant in (("trian", "alibi train"), ("evaluate", "alibi eval"), ("generat", "alibi generate")):
            self.fails(2, f"there is no command '{wrong}'; did you mean '{meant}'?", wrong, self.model)
        self.fails(2, "there is no command 'atention'; did you mean 'alibi bench attention'?", "bench", "atention")
        for words, told in ((("train", self.text, "--train-lenght", "32"), "'--train-lenght' of 'alibi train'; did you mean '--train-length'"),
                            (("eval", self.model, "--stride=3", "--thread=1"), "'--thread' of 'alibi eval'; did you mean '--threads'"),
                            (("eval", "--stide", "4", self.model), "'--stide' of 'alibi eval'; did you mean '--stride'"),
                            (("bench", "attention", "--head", "3"), "'--head' of 'alibi bench attention'; did you mean '--heads'"),
                            (("train", self.text, "--sliding", "4"), "'--sliding' of 'alibi train'; did you mean '--sliding-window'"),
                            (("--versoin",), "'--versoin' of 'alibi'; did you mean '--version'"),
                            (("info", self.model, "-j"), "'-j' of 'alibi info'; did you mean '--json'"),
                            (("compare", "--method", "alibi"), "'--method' of 'alibi compare'; did you mean '--positions'")):
            self.fails(2, f"there is no option {told}?", *words)
        self.assertIn("\nRun 'alibi bench attention --help'", run("bench", "attention", "--head").stderr)

    def test_names_of_other_programs_lead_to_those_of_this_one(self):
        for command, pairs in {"train": {"--lr": "learning-rate", "--batch-size": "batch-tokens", "--max_seq_len": "train-length",
                                         "--n-layer": "layers", "--hidden_size": "d-model", "--num-heads": "heads",
                                         "--max-steps": "train-tokens", "--wd": "weight-decay", "--max-grad-norm": "clip",
                                         "--bf16": "precision", "--window-size": "sliding-window", "--output-dir": "out",
                                         "--gradient-checkpointing": "recompute"},
                               "eval": {"--seq-len": "lengths", "--quantization": "weights", "--n-threads": "threads"},
                               "generate": {"--max-new-tokens": "max-tokens", "--temp": "temperature"}}.items():
            for theirs, ours in pairs.items():
                self.fails(2, f"there is no option '{theirs}' of 'alibi {command}'; did you mean '--{ours}'?\n", command, theirs, "3")
        # What nothing is like is answered without a guess, and without a list of all options.
        for words in (("train", "--device", "cuda"), ("eval", "--verbose"), ("train", "--xq"), ("generate", "--ngl", "3")):
            self.fails(2, f"there is no option '{words[1]}' of 'alibi {words[0]}'\nRun 'alibi {words[0]} --help", *words)

    def test_values_of_a_list_that_are_separated_by_spaces(self):
        for words, right in ((("compare", "--positions", "alibi", "rotary", "t5"), "--positions alibi,rotary,t5"),
                             (("eval", self.model, self.valid, "--lengths", "32", "64", "5k"), "--lengths 32,64,5k"),
                             (("bench", "attention", "--lengths", "128", "256"), "--lengths 128,256")):
            self.fails(2, f"are separated by commas: {right}\n", *words)
        self.fails(1, "rotary5: no such file", "compare", "rotary5", "--positions", "alibi", "--out", self.folder / "unused")

    def test_numbers_that_are_too_large(self):
        """The message must not name a range that the number is in."""
        self.fails(2, "expected a whole number from 0 to 18446744073709551615", "info", self.model, "--seed", "18446744073709551616")
        self.fails(2, "expected a whole number of at most 9223372036854775807", "train", self.text, "--train-tokens", "9223372036854775808")
        self.succeeds("info", self.model, "--seed", "9223372036854775808")

    def test_missing_and_unknown_arguments(self):
        self.fails(2, "MODEL", "info")
        self.fails(2, "TEXT", "eval", self.model)
        self.fails(2, "--out", "train", self.text)
        self.fails(2, "--loud", "info", self.model, "--loud")

    def test_bench(self):
        for wrong in (("--dtype", "f64"), ("--position", "rotary"), ("--pass", "sideways"), ("--isa", "mmx"),
                      ("--tolerance", "2"), ("--tolerance", "x"), ("--kv-heads", "3")):
            self.fails(2, wrong[0], "bench", "attention", *wrong)
        for wrong in (("--presets", "huge"), ("--presets", "wikitext103"), ("--positions", "polar"),
                      ("--precision", "f64"), ("--lengths", "0"), ("--vocab-size", "0")):
            self.fails(2, wrong[1], "bench", "train", *wrong)
        self.fails(1, self.valid, "bench", "attention", "--tensors", self.valid)
        self.fails(1, "tokens", "bench", "capture", self.model, self.valid, "--length", "5M", "--out", "unused")

    def test_numbers(self):
        out = self.folder / "unused"
        for option in ("--train-length", "--train-tokens", "--batch-tokens"):
            for value in ("0", "-1", "many", "1.5", "9999999999999999999", "1K"):
                self.fails(2, value, "train", self.text, "-o", out, f"{option}={value}")
        for value in ("0", "128,0", "128;256", "a"):
            self.fails(2, "--lengths", "eval", self.model, self.valid, "--lengths", value)
        for value in ("nan", "-1", "inf", "x"):
            self.fails(2, "--temperature", "generate", self.model, f"--temperature={value}")
        for value in ("0", "-2", "x", "100000"):
            self.fails(2, "--threads", "info", self.model, f"--threads={value}")
        for value in ("-1", "x", "99999999999999999999"):
            self.fails(2, "--seed", "info", self.model, f"--seed={value}")
        self.assertFalse(out.exists())

    def test_a_number_that_means_not_given_is_none_of_an_option(self):
        """Their defaults are no numbers: 0 must not be taken for one of them."""
        out = self.folder / "unused"
        options = {("train", self.text, "-o", out): ("epochs", "d-model", "heads", "embedding-scale",
                                                     "t5-max-distance", "vocab-size", "threads"),
                   ("compare", self.text, "--out", out): ("stride", "eval-tokens", "train-length", "threads"),
                   ("eval", self.model, self.valid): ("stride", "eviction-tolerance", "interpolate", "threads"),
                   ("score", self.model, self.valid): ("context-length", "eviction-tolerance", "memory"),
                   ("tokenize", self.text, "-o", out): ("vocab-size", "min-count"),
                   ("generate", self.model): ("memory", "eviction-tolerance", "samples"),
                   ("bench", "attention"): ("kv-heads",), ("bench", "train"): ("vocab-size",),
                   ("bench", "generate"): ("vocab-size",)}
        for words, names in options.items():
            for name in names:
                for value in ("0", "-0", "0.0", "-0.0", "-1"):
                    self.fails(2, f"--{name}: found '{value}'", *words, f"--{name}={value}")
        for value in ("-1", "x", "nan"):
            self.fails(2, "--warmup-steps", "train", self.text, "-o", out, f"--warmup-steps={value}")
            self.fails(2, "--dropout", "train", self.text, "-o", out, f"--dropout={value}")
            self.fails(2, "--sample-tokens", "compare", self.text, "--out", out, f"--sample-tokens={value}")
        self.assertFalse(out.exists())

    def test_numbers_that_would_take_all_memory(self):
        self.fails(2, "[compare] seeds is 9999999999999, expected 1 to 10000", "compare", self.text, "--out",
                   self.folder / "unused", "--seeds", "9999999999999")
        self.fails(2, "[train] batch_tokens is 10000000000, expected at most 1000000000", "train", self.text, "-o",
                   self.folder / "unused", "--train-tokens", "10000000000", "--batch-tokens", "10000000000")

    def test_an_instruction_set_that_there_is_not(self):
        for words in (("train", self.text, "-o", self.folder / "unused"), ("eval", self.model, self.valid),
                      ("generate", self.model), ("info", self.model), ("bench", "attention")):
            result = run(*words, environment={"ALIBI_ISA": "bogus"})
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            isas = "scalar, avx2, avx512, avx512_bf16 or amx" if platform.machine() == "x86_64" else "neon"
            self.assertEqual(result.stderr, f"alibi: error: [isa] the environment variable ALIBI_ISA is 'bogus', expected {isas}; "
                             "unset it to use the best of this CPU\n")

    def test_the_library_refuses(self):
        out = self.folder / "unused"
        self.fails(2, "epic", "train", self.text, "-o", out, "--position", "epic")
        self.fails(2, "huge", "train", self.text, "-o", out, "--preset", "huge")
        self.fails(2, "epic", "compare", self.text, "--positions", "alibi,epic", "--out", out)
        self.fails(2, "top_p", "generate", self.model, "--top-p", "1.5")
        self.fails(2, "stride", "eval", self.model, self.valid, "--lengths", "64", "--stride", "65")
        self.assertFalse(out.exists())

    def test_tokens_and_epochs_exclude_each_other(self):
        self.fails(2, "--epochs", "train", self.text, "-o", self.folder / "unused", "--train-tokens", "5k", "--epochs", "2")


class BadFiles(CliTest):
    def each_text_command(self, code, mentions, text, stdin=""):
        self.fails(code, mentions, "eval", self.model, text, stdin=stdin)
        self.fails(code, mentions, "train", text, "-o", self.folder / "out", *TINY_TRAINING, stdin=stdin)
        self.fails(code, mentions, "compare", text, "--out", self.folder / "out", stdin=stdin)

    def test_missing_file(self):
        self.each_text_command(1, "nowhere.txt", self.folder / "nowhere.txt")

    def test_empty_text(self):
        empty = self.folder / "empty.txt"
        empty.write_text("")
        self.each_text_command(1, "empty", empty)
        self.each_text_command(1, "empty", "-", stdin="")

    def test_folder_without_text(self):
        (self.folder / "hollow").mkdir(exist_ok=True)
        self.each_text_command(1, "hollow", self.folder / "hollow")

    def test_binary_file(self):
        binary = self.folder / "binary.txt"
        binary.write_bytes(bytes(range(256)) * 20)
        self.each_text_command(1, "binary.txt", binary)

    def test_unwritable_folder(self):
        # Below a file no folder can be made, not even by root.
        out = self.text / "out"
        self.fails(1, out, "train", self.text, "-o", out, *TINY_TRAINING)
        self.fails(1, out, "compare", self.text, "--out", out)
        self.fails(1, out, "info", self.model, "--json", out / "info.json")
        self.fails(1, self.folder, "info", self.model, "--json", self.folder)


class DamagedModels(CliTest):
    def each_model_command(self, mentions, model):
        self.fails(1, mentions, "info", model)
        self.fails(1, mentions, "generate", model)
        self.fails(1, mentions, "eval", model, self.valid)

    def test_missing(self):
        self.each_model_command("nowhere", self.folder / "nowhere")
        self.each_model_command(self.text, self.text)
        for name in ("config.json", "model.safetensors"):
            model = self.copy_of_model("missing-" + name)
            (model / name).unlink()
            self.each_model_command(name, model)

    def test_truncated_weights(self):
        model = self.copy_of_model("truncated")
        weights = model / "model.safetensors"
        whole = weights.read_bytes()
        for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
            weights.write_bytes(whole[:size])
            self.each_model_command("model.safetensors", model)

    def test_header_that_promises_too_much(self):
        model = self.copy_of_model("promises")
        weights = model / "model.safetensors"
        weights.write_bytes(b"\xff" * 8 + weights.read_bytes()[8:])
        self.each_model_command("model.safetensors", model)

    def test_broken_config(self):
        model = self.copy_of_model("broken")
        config = model / "config.json"
        whole = config.read_text()
        values = json.loads(whole)
        key = next(k for k in ("d_model", "n_embd", "hidden_size") if k in values)
        for text in ("", "{", "[]", whole[: len(whole) // 2], whole.replace(f'"{key}"', '"unheard_of"'),
                     json.dumps({**values, key: "wide"}), json.dumps({**values, key: -1}),
                     json.dumps({**values, key: 2 * values[key]})):
            config.write_text(text)
            result = run("info", model)
            self.assertIn(result.returncode, (1, 2), text)
            self.assertTrue(result.stderr.startswith("alibi: error: "), result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
