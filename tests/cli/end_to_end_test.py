"""What the commands compute and write: results, files, the same bits."""

import gzip
import json
import math
import pathlib
import subprocess
import sys
import unittest

from cli_case import COMMAND, CliTest, METHODS, SENTENCE, TINY_TRAINING, run

CHECK_RESULTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check" / "results"


class EndToEnd(CliTest):
    def check_points(self, points, lengths):
        self.assertEqual([point["length"] for point in points], lengths)
        for point in points:
            self.assertEqual(point["tokens"], self.valid.stat().st_size + 1)  # and the end of the text
            self.assertTrue(math.isclose(point["perplexity"], math.exp(point["nll"]), rel_tol=1e-9), point)
            bits = point["nll"] * point["tokens"] / math.log(2) / self.valid.stat().st_size
            self.assertTrue(math.isclose(point["bits_per_byte"], bits, rel_tol=1e-9), point)

    def test_train(self):
        results = self.json_of("train.json")
        self.assertEqual(results["position"], "alibi")
        self.assertEqual(results["train_length"], 32)
        self.assertEqual(results["train"]["tokens"], 4000 // 512 * 512)
        self.assertEqual(results["corpus"], {"train_bytes": self.text.stat().st_size,
                                             "valid_bytes": self.valid.stat().st_size})
        loss = results["train"]["loss"]
        self.assertEqual(len(loss), 4000 // 512)
        self.assertLess(loss[-1], loss[0])
        self.check_points(results["eval"], [32])

    def test_train_says_what_it_measured(self):
        out = self.folder / "said"
        text = self.succeeds("train", self.text, "--valid", self.valid, "-o", out, *TINY_TRAINING, "--json",
                             self.folder / "said.json")
        results = self.json_of("said.json")
        self.assertIn(f"{results['train']['tokens']:,} tokens in ", text)
        self.assertIn(f"last loss {results['train']['loss'][-1]:.4f}, ", text)

    def test_eval_goes_to_eight_times_the_training_length(self):
        out = self.folder / "lengths.json"
        self.succeeds("eval", self.model, self.valid, "--json", out)
        self.check_points(json.loads(out.read_text())["eval"], [32, 64, 128, 256])

    def test_eval_agrees_with_train(self):
        out = self.folder / "eval.json"
        self.succeeds("eval", self.model, self.valid, "--lengths", "32,33,5k", "--json", out)
        points = json.loads(out.read_text())["eval"]
        self.check_points(points, [32, 33, 5000])
        trained = self.json_of("train.json")["eval"][0]
        self.assertEqual(points[0]["nll"], trained["nll"], "a model read from disk is the model that was written")

    def test_eval_stride_and_positions(self):
        out = self.folder / "stride.json"
        text = self.succeeds("eval", self.model, self.valid, "--lengths", "32,64", "--stride", "8", "--per-position",
                             "--json", out)
        self.assertIn("position", text)
        results = json.loads(out.read_text())
        self.check_points(results["eval"], [32, 64])
        self.assertEqual([point["stride"] for point in results["eval"]], [8, 8])
        for entry, length in zip(results["per_position"], (32, 64), strict=True):
            # Before these, there is the first window alone: few targets, all from the beginning of the text.
            self.assertEqual(entry["first_position"], length - 8)
            self.assertEqual((len(entry["nll"]), len(entry["tokens"])), (8, 8))
            tokens = results["eval"][0]["tokens"]
            self.assertLessEqual(max(entry["tokens"]) - min(entry["tokens"]), 1)
            self.assertEqual(sum(entry["tokens"]), tokens - (length - 8))
        table = [line.split() for line in text.split("position (of 32)")[1].split("position")[0].strip().splitlines()]
        self.assertEqual([row[0] for row in table[1:]], ["24", "25", "26-27", "28-31"])
        self.assertEqual([int(row[2]) for row in table[1:]], [sum(results["per_position"][0]["tokens"][a:b])
                                                              for a, b in ((0, 1), (1, 2), (2, 4), (4, 8))])
        # Without a stride windows do not overlap, and all positions count.
        self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--per-position", "--json", out)
        entry = json.loads(out.read_text())["per_position"][0]
        self.assertEqual((entry["first_position"], len(entry["nll"]), sum(entry["tokens"])), (0, 32, tokens))

    def test_eval_reads_standard_input(self):
        piped, named = self.folder / "piped.json", self.folder / "named.json"
        self.succeeds("eval", self.model, "-", "--json", piped, stdin=self.valid.read_text())
        self.succeeds("eval", self.model, self.valid, "--json", named)
        nll = [[point["nll"] for point in json.loads(file.read_text())["eval"]] for file in (piped, named)]
        self.assertEqual(*nll)

    def test_eval_warns_of_text_that_the_model_has_seen(self):
        out = self.folder / "seen.json"
        for text, least, most in ((self.text, 0.99, 1), (self.valid, 0, 0.01)):
            result = run("eval", self.model, text, "--lengths", "32", "--json", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("warning" in result.stderr, least > 0, result.stderr)
            self.assertTrue(least <= json.loads(out.read_text())["part_trained_on"] <= most)
        self.assertIn("100 % of this text was in the training text", run("eval", self.model, self.text, "--lengths", "32").stderr)
        mixed = self.folder / "mixed.txt"
        mixed.write_text(self.text.read_text()[:self.valid.stat().st_size] + self.valid.read_text())
        self.assertRegex(run("eval", self.model, mixed, "--lengths", "32").stderr, r"about (4[5-9]|5[0-5]) % of this")
        # A folder that does not say it, or says it wrongly, is scored all the same.
        model = self.copy_of_model("forgotten")
        (model / "trained_on.json").write_text("{")
        result = run("eval", model, self.text, "--lengths", "32")
        self.assertEqual((result.returncode, result.stderr.count("warning")), (0, 1))
        (model / "trained_on.json").unlink()
        self.succeeds("eval", model, self.text, "--lengths", "32")

    def test_records_in_a_compressed_file_are_trained_on_and_held_out(self):
        pages, model = self.folder / "pages.jsonl.gz", self.folder / "pages-model"
        with gzip.open(pages, "wt") as file:
            for i in range(40):
                file.write(json.dumps({"id": i, "body": "".join(SENTENCE.format(40 * i + j) for j in range(20))}) + "\n")
        self.fails(1, "it has body, id", "train", pages, "-o", model, *TINY_TRAINING)
        self.succeeds("train", pages, "--field", "body", "-o", model, *TINY_TRAINING)
        self.succeeds("eval", model, "--held-out", "--lengths", "32")
        whole = run("eval", model, pages, "--field", "body", "--lengths", "32")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("was in the training text", whole.stderr)  # the model was trained on most of it

    def test_eval_scores_what_was_held_out(self):
        book, model, out = self.folder / "book.txt", self.folder / "book-model", self.folder / "held-out.json"
        book.write_text(self.text.read_text() + self.valid.read_text())
        self.succeeds("train", book, "-o", model, *TINY_TRAINING, "--json", self.folder / "book.json")
        trained = self.json_of("book.json")["eval"][0]
        self.succeeds("eval", model, "--held-out", "--lengths", "32", "--json", out)
        for key in ("tokens", "nll", "bits_per_byte"):
            self.assertEqual(json.loads(out.read_text())["eval"][0][key], trained[key])
        # All of the book is another matter.
        self.assertRegex(run("eval", model, book, "--lengths", "32").stderr, r"warning: about [89]\d % of this text")
        self.fails(2, "TEXT and --held-out", "eval", model, book, "--held-out")
        self.fails(2, "TEXT is missing", "eval", model)
        book.write_text(book.read_text() + "A new line.\n" * 20)
        self.fails(1, "the text has changed since the training", "eval", model, "--held-out")
        self.succeeds("eval", self.model, "--held-out")  # of --valid
        piped = self.folder / "piped-model"
        self.succeeds("train", "-", "-o", piped, *TINY_TRAINING, stdin=self.text.read_text())
        self.fails(1, "standard input and cannot be read again", "eval", piped, "--held-out")
        (piped / "train.json").unlink()
        self.fails(1, "train.json does not exist", "eval", piped, "--held-out")

    def test_the_last_evaluation_has_a_limit(self):
        def trained(*more):
            self.succeeds("train", self.text, "--valid", self.valid, "-o", self.folder / "limited", *TINY_TRAINING,
                          "--overwrite", "--json", self.folder / "limited.json", *more)
            return self.json_of("limited.json")["eval"][0]

        self.assertEqual(trained("--eval-tokens", "100")["tokens"], 100)
        everything = trained()
        self.assertEqual(everything["tokens"], self.valid.stat().st_size + 1)
        self.assertEqual(trained("--eval-tokens", "5M"), {**everything, "tokens_per_second":
                                                         self.json_of("limited.json")["eval"][0]["tokens_per_second"]})

    def test_generate_follows_the_seed(self):
        def generate(*more):
            return self.succeeds("generate", self.model, "--prompt", "the quick", "--max-tokens", "100", *more)

        first = generate("--seed", "1")
        self.assertTrue(first.startswith("the quick"))
        self.assertEqual(first, generate("--seed", "1", "--threads", "1"))
        self.assertNotEqual(first, generate("--seed", "2"))

    def test_generate_limits(self):
        def generate(*more):
            return self.succeeds("generate", self.model, "--prompt", "the quick", "--max-tokens", "60", *more)

        greedy = generate("--temperature", "0")
        self.assertNotEqual(greedy, generate("--temperature", "3"))
        for limit in (("--top-k", "1"), ("--top-p", "0.0001")):
            self.assertEqual(greedy, generate("--temperature", "3", *limit))

    def test_generate_goes_past_the_training_length(self):
        arguments = ("generate", self.model, "--prompt", "the quick", "--max-tokens", "200", "--temperature", "0")
        text = self.succeeds(*arguments, "--json", self.folder / "generate.json")
        results = self.json_of("generate.json")
        self.assertEqual(len(results["text"].encode()), 200)
        self.assertEqual(text, "the quick" + results["text"] + "\n")

    def test_generate_reads_its_prompt(self):
        file = self.folder / "prompt.txt"
        file.write_text("the quick\n")
        words = ("--max-tokens", "20", "--seed", "1")
        told = self.succeeds("generate", self.model, "--prompt", "the quick\n", *words)
        self.assertTrue(told.startswith("the quick\n"))
        for how in (("--prompt-file", file), ("--prompt", "-"), ("--prompt-file", "-")):
            self.assertEqual(self.succeeds("generate", self.model, *how, *words, stdin=file.read_text()), told, how)
        self.fails(2, "excludes", "generate", self.model, "--prompt", "a", "--prompt-file", file)
        self.fails(2, "is a folder", "generate", self.model, "--prompt-file", self.folder)
        self.fails(1, "none.txt", "generate", self.model, "--prompt-file", self.folder / "none.txt")

    def test_generated_text_is_utf8(self):
        """A model of bytes draws half characters now and then, at this temperature in nearly every place."""
        result = subprocess.run([COMMAND, "generate", self.model, "--max-tokens", "300", "--temperature", "50", "--seed",
                                 "3", "--json", self.folder / "bytes.json", "--prompt", b"na\xc3"],
                                capture_output=True, check=True)
        shown = result.stdout.decode()  # throws unless it is UTF-8
        results = self.json_of("bytes.json")
        self.assertEqual(shown, results["prompt"] + results["text"] + "\n")
        self.assertEqual(results["prompt"], "na\ufffd")
        # The bytes that were drawn can be put together again.
        stray = {entry["at"]: entry["byte"] for entry in results["not_utf8"]}
        self.assertGreater(len(stray), 20)
        text = bytearray()
        for character in results["text"]:
            text += bytes([stray[len(text)]]) if len(text) in stray else character.encode()
        self.assertEqual(len(text), 300)
        for at in range(300):
            if at in stray:
                text[at] = ord("?")
        text.decode()

    def test_info(self):
        text = self.succeeds("info", self.model, "--json", self.folder / "info.json")
        self.assertIn("alibi", text)
        results = self.json_of("info.json")
        self.assertEqual(results["train_length"], 32)
        self.assertEqual(results["parameters"], self.json_of("train.json")["parameters"])
        self.assertEqual(sum(math.prod(t["shape"]) for t in results["tensors"]), results["parameters"])
        self.assertEqual(len(results["alibi_slopes"]), results["heads"])

    def test_info_of_the_cpu(self):
        text = self.succeeds("info", "--cpu", "--json", self.folder / "cpu.json")
        results = self.json_of("cpu.json")
        self.assertIn(results["isa"], text)
        self.assertIn(results["isa"], results["isas"])
        self.assertIn("isa", self.succeeds("info", "--cpu", self.model))

    def test_bench_attention(self):
        text = self.succeeds("bench", "attention", "--lengths", "96,64", "--contexts", "200", "--heads", "4",
                             "--kv-heads", "2", "--head-dim", "16", "--seconds", "0", "--json", self.folder / "b.json")
        results = self.json_of("b.json")
        self.assertIn(results["isa"], text)
        points = [(p["dtype"], p["pass"], p["length"]) for p in results["points"] if p["tolerance"] == 0]
        of_a_type = [("forward", 64), ("forward", 96), ("backward", 64), ("backward", 96), ("decode", 200)]
        self.assertEqual(points, [(t, *point) for t in ("float32", "bfloat16") for point in of_a_type])
        self.assertEqual(len(results["points"]), 2 * len(points))
        for point in results["points"]:
            self.assertGreater(point["seconds"], 0)
            self.assertLessEqual(point["visited"], 1)

    def test_bench_sequence(self):
        self.succeeds("bench", "sequence", "--length", "900", "--ranks", "3", "--heads", "2", "--head-dim", "16",
                      "--json", self.folder / "b.json")
        points = self.json_of("b.json")["points"]
        self.assertEqual([point["dtype"] for point in points], ["float32", "bfloat16"])
        for point in points:
            self.assertTrue(point["same_bits"])
            self.assertEqual(len(point["visited"]), 3)
            self.assertGreater(sum(point["forward_bytes"]), 0)
            self.assertGreater(sum(point["backward_bytes"]), 0)
        self.assertLess(max(points[0]["relative_difference"].values()), 1e-5)

    def test_bench_train(self):
        text = self.succeeds("bench", "train", "--presets", "tiny", "--lengths", "64,32", "--positions",
                             "t5,none", "--batch-tokens", "128", "--vocab-size", "300", "--seconds", "0",
                             "--precision", "f32", "--recompute", "--json", self.folder / "b.json")
        skipped = self.succeeds("bench", "train", "--presets", "tiny", "--lengths", "64", "--longest", "0")
        self.assertIn("skipped", skipped)
        points = self.json_of("b.json")["points"]
        self.assertEqual([(p["length"], p["position"]) for p in points],
                         [(n, p) for n in (64, 32) for p in ("t5", "none")])
        self.assertIn("vocabulary 300", text)
        for point in points:
            self.assertEqual((point["tokens"], point["recompute"]), (128, True))
            self.assertAlmostEqual(point["tokens_per_second"], 128 / point["seconds"])
            self.assertGreater(point["matmul_share"], 0)
            self.assertGreater(point["peak_bytes"], 16 * point["parameters"])

    def test_bench_on_what_a_model_computes(self):
        tensors = self.folder / "qkv.safetensors"
        self.succeeds("bench", "capture", self.model, self.valid, "--length", "300", "--out", tensors)
        text = self.succeeds("bench", "attention", "--tensors", tensors, "--dtype", "f32", "--pass", "forward",
                             "--tolerance", "2^-20", "--seconds", "0", "--json", self.folder / "b.json")
        results = self.json_of("b.json")
        self.assertIn("layer", text)
        self.assertEqual([(p["length"], p["tolerance"]) for p in results["points"]], [(300, 2**-20)])
        layers = results["points"][0]["visited_by_layer"]
        self.assertEqual(len(results["visited_by_head"]["float32"]), len(layers))

    def test_every_tokenizer_from_text_to_generation(self):
        for kind, size in (("byte", ()), ("bpe", ("--vocab-size", "320")), ("unigram", ("--vocab-size", "320")),
                           ("words", ("--min-count", "2"))):
            with self.subTest(kind):
                data, model, direct = (self.folder / f"{name}-{kind}" for name in ("data", "model", "direct"))
                out = self.folder / "tokenize.json"
                self.succeeds("tokenize", self.text, "--valid", self.valid, "-o", data, "--tokenizer", kind, *size,
                              "--json", out)
                written = json.loads(out.read_text())
                self.assertEqual(written["tokenizer"]["kind"], kind)
                self.assertEqual(written["valid"]["bytes"], self.valid.stat().st_size)
                self.assertIn("the tokens are intact", self.succeeds("tokenize", "--check", data))
                for text in ((data, "-o", model, "--json", self.folder / "t.json"),
                             (self.text, "--valid", self.valid, "-o", direct, "--tokenizer", kind, *size)):
                    result = run("train", *text, *TINY_TRAINING)
                    # Where numbers are no words, all of the sentences are the same.
                    self.assertEqual((result.returncode, "100 % of the held-out" in result.stderr), (0, kind == "words"))
                self.assertTrue((model / "model.safetensors").read_bytes() ==
                                (direct / "model.safetensors").read_bytes(), "tokens or text, the model is the same")
                self.assertIn(kind, self.succeeds("info", model))
                config = json.loads((model / "config.json").read_text())
                self.assertEqual(config["vocab_size"], written["tokenizer"]["vocab_size"])
                ends = {"byte": 256, "bpe": 1, "unigram": 1, "words": 2}
                self.assertEqual(config["bos_token_id"], ends[kind])
                self.assertEqual(config.get("eos_token_id"), None if kind == "words" else ends[kind])
                for text in (data, self.valid):
                    result = run("eval", model, text, "--lengths", "32", "--json", out)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertEqual("in the training text" in result.stderr, kind == "words", result.stderr)
                    point = json.loads(out.read_text())["eval"][0]
                    self.assertEqual(point["tokens"], written["valid"]["tokens"])
                    self.assertEqual(point["bits_per_byte"], self.json_of("t.json")["eval"][0]["bits_per_byte"])
                text = self.succeeds("generate", model, "--prompt", "the quick", "--max-tokens", "40", "--json", out)
                self.assertTrue(text.startswith("the quick"))
                self.assertGreater(len(text), len("the quick\n"))
                if kind == "words":  # the others may write bytes that are no character
                    self.assertEqual(text, "the quick" + json.loads(out.read_text())["text"] + "\n")

    def test_tokens_of_another_tokenizer(self):
        data = self.folder / "data-other"
        self.succeeds("tokenize", self.text, "-o", data, "--tokenizer", "words")
        self.fails(1, "another tokenizer", "eval", self.model, data)
        self.fails(2, "its own tokenizer", "train", data, "-o", self.folder / "none", "--tokenizer", "bpe")
        self.succeeds("tokenize", self.text, "-o", data, "--overwrite", "--like", self.model)
        result = run("eval", self.model, data)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("was in the training text", result.stderr, "the model was trained on all of the text")

    def test_damaged_tokens(self):
        data = self.folder / "data-damaged"
        self.succeeds("tokenize", self.text, "-o", data)
        tokens = data / "train.tokens"
        whole = tokens.read_bytes()
        tokens.write_bytes(whole[:-4])
        self.fails(1, tokens, "train", data, "-o", self.folder / "none")
        tokens.write_bytes(whole[:-4] + b"\0\0\0\0")
        self.fails(1, "checksum", "tokenize", "--check", data)
        self.fails(1, self.text, "tokenize", "--check", self.text)
        self.fails(2, "TEXT is missing", "tokenize", "-o", data)
        self.fails(2, "--out is missing", "tokenize", self.text)
        self.fails(2, "leave out TEXT", "tokenize", self.text, "--check", data)
        self.fails(2, "expected byte", "tokenize", self.text, "-o", data, "--tokenizer", "letters")
        self.fails(2, "expected at least", "tokenize", self.text, "-o", self.folder / "none", "--tokenizer", "bpe",
                   "--vocab-size", "9")

    def test_learned_positions_end(self):
        model = self.folder / "learned"
        self.succeeds("train", self.text, "--valid", self.valid, "-o", model, "--position", "learned", *TINY_TRAINING)
        self.succeeds("eval", model, self.valid)
        self.fails(1, "32", "eval", model, self.valid, "--lengths", "33")

    def test_same_seed_same_model_at_any_number_of_threads(self):
        weights = []
        for threads in (1, 2):
            model = self.folder / f"threads-{threads}"
            self.succeeds("train", self.text, "--valid", self.valid, "-o", model, "--threads", threads, *TINY_TRAINING)
            weights.append((model / "model.safetensors").read_bytes())
        self.assertTrue(weights[0] == weights[1])
        self.assertTrue(weights[0] == (self.model / "model.safetensors").read_bytes())

    def test_compare(self):
        out = self.folder / "compare"
        text = self.succeeds("compare", self.text, "--valid", self.valid, "--positions", ",".join(METHODS),
                             "--train-length", "16", "--lengths", "16,24,128", "--train-tokens", "2k",
                             "--batch-tokens", "256", "--sample-tokens", "40", "--timing-rounds", "1", "--out", out,
                             "--json", self.folder / "copy.json", "--seed", "5")
        self.assertIn("report.html", text)
        results = json.loads((out / "results.json").read_text())
        self.assertEqual(results, self.json_of("copy.json"))
        self.assertEqual((results["train_length"], results["seed"]), (16, 5))
        self.assertEqual([method["name"] for method in results["methods"]], list(METHODS))
        for method in results["methods"]:
            points = method["eval"]
            if method["name"] == "learned":
                self.assertTrue(all(point["perplexity"] is None for point in points if point["length"] > 16))
                points = [point for point in points if point["length"] <= 16]
                self.check_points(points, [16])
            else:
                self.check_points(points, [16, 24, 128])
            text = self.succeeds("info", out / method["model_folder"], "--json", self.folder / "method.json")
            info = self.json_of("method.json")
            # Only ALiBi's is what other programs know too.
            is_known = method["name"] == "alibi"
            self.assertEqual(info["opened_as"], "mpt" if is_known else "alibi")
            self.assertEqual(f"position {method['name']}" in info.get("differences", []), not is_known)
            self.assertIn("opened_as ", text)
        for name in ("report.html", "figure.svg"):
            self.assertGreater((out / name).stat().st_size, 1000)
        self.assertIn("--rotary-alibi: #", (out / "report.html").read_text())
        self.check_combination(out / next(m["model_folder"] for m in results["methods"] if m["name"] == "rotary+alibi"))
        checked = subprocess.run([sys.executable, CHECK_RESULTS, out / "results.json", "--methods", ",".join(METHODS),
                                  "--lengths", "16,24,128"], capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def check_combination(self, model):
        """A model with two position methods in every command that reads models."""
        self.succeeds("eval", model, self.valid, "--lengths", "16,128", "--one-pass", "--json", self.folder / "both.json")
        found = self.json_of("both.json")
        self.assertEqual(found["position"], "rotary+alibi")
        self.assertLess(abs(found["stream"]["nll"] - found["eval"][-1]["nll"]), 0.2)
        limit = ("--max-tokens", "700", "--seed", "1", "--json", self.folder / "both.json")
        self.succeeds("generate", model, "--prompt", "the quick", *limit, "--memory", "2MiB")
        self.assertGreater(self.json_of("both.json")["evicted"]["keys"], 0)
        vectors = self.succeeds("embed", model, self.valid, "--whole-files")
        self.assertEqual(len(vectors.splitlines()), 1)

    def test_report_of_two_comparisons(self):
        short = ("--positions", "alibi,none", "--train-length", "8", "--lengths", "8,32", "--train-tokens", "512",
                 "--batch-tokens", "64", "--sample-tokens", "0", "--timing-rounds", "0", "--eval-tokens", "512")
        for seed in ("0", "1"):
            self.succeeds("compare", self.text, "--valid", self.valid, *short, "--seed", seed, "--out",
                          self.folder / f"seed-{seed}")
        merged = self.folder / "merged"
        text = self.succeeds("report", self.folder / "seed-0", self.folder / "seed-1" / "results.json", "--out", merged)
        self.assertIn("means over 2 seeds (0, 1)", text)
        results = json.loads((merged / "results.json").read_text())
        self.assertEqual(len(results["runs"]), 4)
        for seed in (0, 1):
            one = json.loads((self.folder / f"seed-{seed}" / "results.json").read_text())
            for run in one["runs"]:
                self.assertIn(run, results["runs"])
        self.fails(1, "does not exist", "report", self.folder / "nothing")
        self.succeeds("compare", self.text, "--valid", self.valid, *short[:-1], "256", "--out",
                      self.folder / "other")
        self.fails(1, "cannot be merged", "report", self.folder / "seed-0", self.folder / "other")

    def test_compare_with_a_tokenizer(self):
        out, data = self.folder / "compare-bpe", self.folder / "data-to-compare"
        settings = ("--positions", "alibi,none", "--train-length", "8", "--lengths", "8,32", "--train-tokens", "512",
                    "--batch-tokens", "64", "--sample-tokens", "16", "--timing-rounds", "0", "--warmup-steps", "2",
                    "--schedule", "linear", "--dropout", "0.1", "--out", out)
        bpe = ("--tokenizer", "bpe", "--vocab-size", "300")
        text = self.succeeds("compare", self.text, "--valid", self.valid, *bpe, *settings)
        self.assertIn("bpe tokens", text)
        self.assertIn("Bits per byte", text)
        results = json.loads((out / "results.json").read_text())
        self.assertEqual(results["tokenizer"], {"kind": "bpe", "vocab_size": 300})
        self.assertIn("after 2 updates of warmup, linear schedule", results["settings"]["optimizer"])
        self.assertIn("dropout 0.1", results["settings"]["model"])
        points = [method["eval"] for method in results["methods"]]
        for point in (point for of_method in points for point in of_method):
            bits = point["nll"] * point["tokens"] / math.log(2) / self.valid.stat().st_size
            self.assertTrue(math.isclose(point["bits_per_byte"], bits, rel_tol=1e-9), point)
        self.assertIn("bpe", (out / "figure.svg").read_text())

        self.succeeds("tokenize", self.text, "--valid", self.valid, "-o", data, *bpe)
        again = self.folder / "compare-data"
        self.succeeds("compare", data, *settings[:-1], again)
        again = [method["eval"] for method in json.loads((again / "results.json").read_text())["methods"]]
        self.assertEqual([[p["nll"] for p in of_method] for of_method in again],
                         [[p["nll"] for p in of_method] for of_method in points])
        self.fails(2, "its own tokenizer", "compare", data, *bpe, *settings)
        self.fails(2, "expected byte", "compare", self.text, "--tokenizer", "letters", "--out", out)


if __name__ == "__main__":
    unittest.main(verbosity=1)
