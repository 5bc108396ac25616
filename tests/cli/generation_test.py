"""alibi generate and alibi eval --one-pass: a text is read and written token by token, each computed once.

    python3 tests/cli/generation_test.py build/alibi
"""

import json
import re
import signal
import subprocess
import unittest

from cli_case import COMMAND, CliTest, TINY_TRAINING


class Generation(CliTest):
    def generate(self, *more):
        return self.succeeds("generate", self.model, "--prompt", "the quick", "--max-tokens", "60", *more)

    def test_limits(self):
        greedy = self.generate("--temperature", "0")
        self.assertEqual(greedy, self.generate("--temperature", "3", "--min-p", "1"))
        self.assertNotEqual(greedy, self.generate("--temperature", "0", "--repetition-penalty", "3"))
        self.fails(2, "min_p is 2", "generate", self.model, "--min-p", "2")
        self.fails(2, "repetition_penalty is 0", "generate", self.model, "--repetition-penalty", "0")
        self.fails(2, "stop string is empty", "generate", self.model, "--stop", "")

    def test_stop_strings(self):
        text = self.generate("--seed", "2", "--json", self.folder / "all.json")
        written = self.json_of("all.json")
        self.assertEqual((written["tokens"], written["ended"], written["prompt_tokens"]), (60, "tokens", 10))
        self.assertGreater(written["tokens_per_second"], 0)
        end = re.search("[ a-z]{2}", written["text"][25:])[0]  # whole characters
        stopped = self.generate("--seed", "2", "--stop", "nowhere", "--stop", end, "--json", self.folder / "stop.json")
        result = self.json_of("stop.json")
        self.assertEqual(result["text"], written["text"][:written["text"].index(end)])
        self.assertEqual(stopped, "the quick" + result["text"] + "\n")
        self.assertTrue(text.startswith(stopped[:-1]))
        self.assertEqual((result["ended"], result["stop"]), ("stop", ["nowhere", end]))
        # Of 257 tokens that are about as likely as each other, one ends a text.
        for words, ended in (((), "tokens"), (("--stop-at-end-of-text",), "end_of_text")):
            self.succeeds("generate", self.model, "--temperature", "1000", "--max-tokens", "2000", *words, "--json",
                          self.folder / "end.json")
            self.assertEqual(self.json_of("end.json")["ended"], ended)

    def test_samples(self):
        text = self.generate("--samples", "3", "--json", self.folder / "samples.json")
        results = self.json_of("samples.json")
        texts = [sample["text"] for sample in results["samples"]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(text, "".join(f"--- {i + 1} of 3\nthe quick{t}\n" for i, t in enumerate(texts)))
        self.assertEqual(self.generate(), f"the quick{texts[0]}\n")
        self.assertEqual(results["text"], texts[0])
        self.assertEqual(results["all_samples"]["tokens"], 180)
        # Ten are written in two rounds, with a limit one by one; each is what it is among three.
        for limit in ([], ["--memory", "64MiB"]):
            text = self.generate("--samples", "10", "--json", self.folder / "ten.json", *limit)
            ten = [sample["text"] for sample in self.json_of("ten.json")["samples"]]
            self.assertEqual((len(ten), ten[:3]), (10, texts))
            self.assertEqual(text, "".join(f"--- {i + 1} of 10\nthe quick{t}\n" for i, t in enumerate(ten)))
        # Each ends where it ends.
        stop = re.search("[ a-z]{2}", texts[1][3:])[0]  # whole characters
        self.generate("--samples", "3", "--stop", stop, "--json", self.folder / "stop.json")
        for sample, whole in zip(self.json_of("stop.json")["samples"], texts):
            self.assertEqual(sample["text"], whole.split(stop)[0])
            self.assertEqual(sample["ended"], "stop" if stop in whole else "tokens")

    def test_nothing_and_much(self):
        self.assertEqual(self.succeeds("generate", self.model, "--max-tokens", "0", "--prompt", "the"), "the\n")
        self.assertEqual(self.succeeds("generate", self.model, "--max-tokens", "0"), "\n")
        self.succeeds("generate", self.model, "--max-tokens", "5", "--prompt", "")
        prompt = self.text.read_text()  # read in many pieces
        out = self.folder / "long.json"
        self.succeeds("generate", self.model, "--max-tokens", "5", "--prompt", "-", "--json", out, stdin=prompt)
        self.assertEqual(json.loads(out.read_text())["prompt_tokens"], len(prompt) + 1)

    def test_an_interrupt_ends_it_cleanly(self):
        out = self.folder / "interrupted.json"
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([COMMAND, "generate", str(self.model), "--max-tokens", "10M", "--json", str(out)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
                text = process.stdout.read(20)  # no more, so that communicate() misses nothing
                process.send_signal(number)
                rest, errors = process.communicate(timeout=60)
            self.assertEqual((process.returncode, errors), (128 + number, b""))
            text += rest
            self.assertTrue(text.endswith(b"\n"))
            result = json.loads(out.read_text())
            self.assertEqual((result["text"] + "\n", result["ended"]), (text.decode(), "interrupted"))
            self.assertLess(0, result["tokens"])

    def test_an_interrupt_ends_all_samples(self):
        out = self.folder / "interrupted.json"
        with subprocess.Popen([COMMAND, "generate", str(self.model), "--max-tokens", "10M", "--samples", "3", "--json",
                               str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
            text = process.stdout.read(40)
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors), (130, b""))
        samples = json.loads(out.read_text())["samples"]
        self.assertEqual([sample["ended"] for sample in samples], ["interrupted"] * 3)
        self.assertEqual((text + rest).decode(), "".join(f"--- {i + 1} of 3\n{sample['text']}\n"
                                                         for i, sample in enumerate(samples)))


class Scoring(CliTest):
    def scored(self, *more, stdin=""):
        return [line.split("\t") for line in self.succeeds("score", self.model, *more, stdin=stdin).splitlines()]

    def test_lines(self):
        out = self.folder / "scores.json"
        lines = self.scored(self.valid, "--context-length", "64", "--json", out)
        text = self.valid.read_text()
        self.assertEqual([line[2] for line in lines], text.splitlines())
        for per_byte, bits, line in lines:
            self.assertAlmostEqual(float(per_byte), float(bits) / (len(line) + 1), delta=0.01)
        results = json.loads(out.read_text())
        self.assertEqual((results["lines"], results["bytes"], results["length"]), (30, len(text), 64))
        self.assertAlmostEqual(results["bits"], sum(float(bits) for _, bits, _ in lines), delta=0.2)
        # The windows of an evaluation, but for the end of the text, which that scores too.
        self.succeeds("eval", self.model, self.valid, "--lengths", "64", "--stride", "32", "--json", out)
        self.assertAlmostEqual(json.loads(out.read_text())["eval"][0]["bits_per_byte"], results["bits_per_byte"],
                               delta=0.02)
        self.assertEqual(self.scored("--context-length", "64", stdin=text), lines)
        self.assertEqual(self.scored("-", "--context-length", "64", stdin=text[:-1])[:-1], lines[:-1])
        self.assertEqual(len(self.scored(self.valid, self.valid)), 60)

    def test_what_is_unusual_is_found(self):
        odd = "ZQX#11 @@ %%% 77:77:77 !!\n"
        text = self.valid.read_text().splitlines(keepends=True)
        lines = self.scored(stdin="".join([*text[:10], odd, *text[10:]]))
        self.assertEqual(max(lines, key=lambda line: float(line[0]))[2] + "\n", odd)

    def test_tokens_and_bytes_of_any_kind(self):
        tokens = self.scored("--per-token", stdin="the q\tx")
        self.assertEqual([json.loads(text) for _, text in tokens], list("the q\tx"))
        raw = b"na\xc3\n\x00\n\n" + b"y" * 80000
        found = subprocess.run([COMMAND, "score", self.model, "--context-length", "2k"], input=raw, capture_output=True, check=True).stdout
        lines = [line.split(b"\t", 2)[2] for line in found.splitlines()]
        self.assertEqual(lines[:3], [b"na\xc3", b"\x00", b""])
        self.assertEqual(len(lines), 5)
        self.assertEqual(b"".join(lines[3:]), b"y" * 80000)
        self.assertEqual(self.scored(stdin=""), [])

    def test_a_line_is_scored_when_it_is_there(self):
        with subprocess.Popen([COMMAND, "score", str(self.model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              encoding="utf-8") as process:
            for line in ("the quick brown fox", "jumps over"):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline().split("\t")[2], line + "\n")
            process.stdin.close()
            self.assertEqual(process.wait(timeout=60), 0)

    def test_errors(self):
        self.fails(1, "is a folder", "score", self.model, self.folder)
        self.fails(1, "none.txt: No such file", "score", self.model, self.folder / "none.txt")


class Streaming(CliTest):
    def test_one_pass_is_one_window_over_everything(self):
        out = self.folder / "stream.json"
        length = self.valid.stat().st_size + 1
        shown = self.succeeds("eval", self.model, self.valid, "--one-pass", "--lengths", f"32,{length}", "--json", out)
        results = json.loads(out.read_text())
        window, stream = results["eval"][1], results["stream"]
        self.assertEqual(stream["tokens"], window["tokens"])
        self.assertAlmostEqual(stream["nll"], window["nll"], delta=1e-5)
        self.assertAlmostEqual(stream["bits_per_byte"], window["bits_per_byte"], delta=1e-5)
        self.assertGreater(stream["cache_bytes"], 0)
        self.assertEqual(stream["spans"][-1]["end"], length)
        self.assertEqual([line.split()[0] for line in shown.splitlines()[1:4]], ["32", str(length), "one-pass"])

    def test_a_rounded_cache_and_rounded_weights_cost_little_and_what_they_cost_is_told(self):
        out = self.folder / "rounded.json"
        shown = self.succeeds("eval", self.model, self.valid, "--one-pass", "--lengths", "32", "--weights", "q8_0",
                              "--cache-type", "q8_0", "--check-float32", "--json", out)
        results = json.loads(out.read_text())
        self.assertEqual(shown.count("float32 "), 2)
        exact = self.folder / "exact.json"
        self.succeeds("eval", self.model, self.valid, "--one-pass", "--lengths", "32", "--json", exact)
        unrounded = json.loads(exact.read_text())
        for rounded, plain in ((results["eval"][0], unrounded["eval"][0]), (results["stream"], unrounded["stream"])):
            self.assertAlmostEqual(rounded["float32_perplexity"], plain["perplexity"], delta=1e-6 * plain["perplexity"])
            self.assertAlmostEqual(rounded["perplexity_cost"], rounded["perplexity"] / plain["perplexity"] - 1, delta=1e-6)
            self.assertTrue(0 < abs(rounded["perplexity_cost"]) < 0.02)
        self.assertLess(results["stream"]["cache_bytes"], unrounded["stream"]["cache_bytes"] / 2)
        integers = self.folder / "integers.json"
        self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--weights", "q8_0", "--quantize-activations",
                      "--check-float32", "--json", integers)
        quantized = json.loads(integers.read_text())["eval"][0]
        self.assertNotEqual(quantized["perplexity"], results["eval"][0]["perplexity"])
        self.assertTrue(0 < abs(quantized["perplexity_cost"]) < 0.02)
        self.assertEqual(quantized["float32_perplexity"], results["eval"][0]["float32_perplexity"])
        self.fails(2, "apply to --one-pass only", "eval", self.model, self.valid, "--cache-type", "q8_0")
        self.fails(2, "expected f32, bf16 or q8_0", "generate", self.model, "--cache-type", "q4")

    def test_alone_and_from_a_pipe(self):
        out = self.folder / "piped.json"
        shown = self.succeeds("eval", self.model, "-", "--one-pass", "--per-position", "--json", out,
                              stdin=self.valid.read_text())
        self.assertIn("256-511", shown)
        piped = json.loads(out.read_text())
        self.assertEqual(piped["eval"], [])
        self.succeeds("eval", self.model, self.valid, "--one-pass", "--json", out)
        self.assertEqual(json.loads(out.read_text())["stream"]["nll"], piped["stream"]["nll"])

    def test_interpolation(self):
        def nll(*options):
            self.succeeds("eval", self.model, self.valid, "--json", self.folder / "out.json", *options)
            return [entry["nll"] for entry in self.json_of("out.json")["eval"]]

        plain, dynamic = nll("--lengths", "32,64"), nll("--lengths", "32,64", "--interpolate", "dynamic")
        self.assertEqual(plain[0], dynamic[0], "the training length")
        self.assertNotEqual(plain[1], dynamic[1])
        self.assertEqual(nll("--lengths", "32", "--interpolate", "1"), plain[:1])
        for command in ("generate", "score"):
            arguments = (self.valid,) if command == "score" else ("--max-tokens", 40)
            usual = self.succeeds(command, self.model, *arguments)
            self.assertNotEqual(usual, self.succeeds(command, self.model, *arguments, "--interpolate", "8"), command)
        self.fails(2, "expected rotary ones", "eval", self.model, self.valid, "--interpolate", "yarn:4")
        for wrong in ("0", "-2", "often", "inf", "ntk", "yarn:", "ntk:0", "other:2"):
            self.fails(2, "--interpolate", "eval", self.model, self.valid, "--interpolate", wrong)

    def test_precision(self):
        def nll(*options):
            self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--json", self.folder / "out.json", *options)
            out = self.json_of("out.json")
            return out["precision"], out["eval"][0]["nll"]

        single, half = nll(), nll("--precision", "bf16")
        self.assertEqual([single[0], half[0]], ["f32", "bf16"])
        self.assertEqual(nll("--precision", "f32"), single)
        self.assertNotEqual(single[1], half[1])
        self.assertAlmostEqual(single[1], half[1], delta=0.02 * single[1])
        sizes = {}
        for precision in ("f32", "bf16"):
            self.succeeds("generate", self.model, "--max-tokens", 40, "--precision", precision, "--json",
                          self.folder / "out.json")
            sizes[precision] = self.json_of("out.json")["cache_bytes"]
        self.assertLess(sizes["bf16"], 0.7 * sizes["f32"])
        scored = {self.succeeds("score", self.model, self.valid, *options)
                  for options in ((), ("--precision", "f32"), ("--precision", "bf16"))}
        self.assertEqual(len(scored), 2)
        self.fails(2, "no precision besides auto", "generate", self.model, "--precision", "half")

    def test_bounded_memory_says_what_it_cost(self):
        out = self.folder / "bounded.json"
        text = self.folder / "long.txt"
        text.write_text(self.valid.read_text() * 4)
        whole = self.folder / "whole.json"
        self.succeeds("eval", self.model, text, "--one-pass", "--json", whole)
        everything = json.loads(whole.read_text())["stream"]
        self.assertIsNone(everything["evicted"])
        limit = everything["cache_bytes"] // 3
        shown = self.succeeds("eval", self.model, text, "--one-pass", "--memory", str(limit), "--json", out)
        stream = json.loads(out.read_text())["stream"]
        self.assertLessEqual(stream["cache_bytes"], limit)
        self.assertGreater(stream["evicted"]["keys"], 0)
        self.assertTrue(0 < stream["evicted"]["worst_share"] <= 1)
        self.assertIn("keys were evicted; in any row, their share of the attention weight was at most", shown)
        self.fails(1, "more than the tolerance", "eval", self.model, text, "--one-pass", "--memory", str(limit),
                   "--eviction-tolerance", "1e-30", "--exact")
        shown = self.succeeds("generate", self.model, "--max-tokens", "20", "--memory", "64MiB", "--json", out)
        self.assertEqual(json.loads(out.read_text())["evicted"]["keys"], 0)
        self.assertEqual(json.loads(out.read_text())["evicted"]["memory"], 64 << 20)
        self.succeeds("score", self.model, text, "--memory", str(limit), "--json", out)
        self.assertGreater(json.loads(out.read_text())["evicted"]["keys"], 0)

    def test_limits_that_make_no_sense(self):
        self.fails(2, "found '12 apples', expected a number of bytes", "generate", self.model, "--memory", "12 apples")
        self.fails(2, "expected at least 384", "generate", self.model, "--memory", "1KiB")
        self.fails(2, "add --memory or --eviction-tolerance", "generate", self.model, "--exact")
        self.fails(2, "--query-norm needs a limit", "generate", self.model, "--query-norm", "3")
        self.fails(2, "query_norm is set for alibi positions", "generate", self.model, "--query-norm", "3", "--memory", "64MiB")
        self.fails(2, "apply to --one-pass only", "eval", self.model, self.valid, "--memory", "1GiB")

    def test_learned_positions_cannot(self):
        model = self.folder / "learned"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", model, "--position", "learned", *TINY_TRAINING)
        self.fails(1, "learned positions end at 32", "eval", model, self.valid, "--one-pass")
        self.fails(1, "learned positions end at 32", "generate", model, "--max-tokens", "100")


if __name__ == "__main__":
    unittest.main()
