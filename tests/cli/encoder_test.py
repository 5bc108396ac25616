"""Encoders and fine-tuning: trained, evaluated, embedded and continued by the command."""

import array
import json
import math
import os
import pathlib
import struct
import subprocess
import time
import unittest

from cli_case import COMMAND, CliTest, TINY_TRAINING, run


class Encoder(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train_encoder()

    def test_it_is_one(self):
        self.succeeds("info", self.encoder, "--json", self.folder / "info.json")
        info = self.json_of("info.json")
        self.assertEqual([info[key] for key in ("causal", "bidirectional", "mask_token", "vocab_size", "opened_as")],
                         [False, "symmetric", 257, 258, "alibi"])
        self.assertEqual(json.loads((self.encoder / "train.json").read_text())["causal"], False)
        again = self.folder / "again"
        self.succeeds("train", "--config", self.encoder / "train.json", "-o", again)
        self.assertEqual((again / "model.safetensors").read_bytes(), (self.encoder / "model.safetensors").read_bytes())
        for command, mentions in (("generate", "expected a causal"), ("score", "needs a causal")):
            self.fails(1, mentions, command, self.encoder)
        self.fails(1, "encoder", "eval", self.encoder, self.valid, "--one-pass")
        self.fails(2, "causal", "compare", self.text, "--no-causal", "--out", self.folder / "unused")
        self.fails(2, "true, false", "train", self.text, "-o", self.folder / "unused", "--causal", "maybe")

    def test_longer_texts_are_scored_on_the_same_tokens(self):
        self.succeeds("eval", self.encoder, self.valid, "--lengths", "16,64,100000", "--per-position", "--json",
                      self.folder / "eval.json")
        found = self.json_of("eval.json")
        (count,) = {entry["tokens"] for entry in found["eval"]}
        tokens = self.valid.stat().st_size + 1
        self.assertLess(abs(count / tokens - 0.15), 0.05)
        for entry in found["eval"]:
            bits = entry["nll"] * count / math.log(2)
            self.assertAlmostEqual(entry["bits_per_byte"], bits / (found["bytes"] * count / tokens), delta=0.02)  # bytes are whole
        self.succeeds("eval", self.encoder, "--held-out")

    def test_vectors(self):
        lines = self.valid.read_text().splitlines()
        said = [json.loads(line) for line in self.succeeds("embed", self.encoder, self.valid).splitlines()]
        self.assertEqual([entry["text"] for entry in said], lines)
        arrays = {}
        for name in ("x.npy", "x.safetensors"):
            self.succeeds("embed", self.encoder, self.valid, "-o", self.folder / name, "--normalize", "--json",
                          self.folder / "embed.json")
            arrays[name] = (self.folder / name).read_bytes()
        width = self.json_of("embed.json")["width"]
        header = arrays["x.npy"]
        self.assertEqual(header[:8], b"\x93NUMPY\x01\x00")
        begin = 10 + struct.unpack("<H", header[8:10])[0]
        self.assertEqual(begin % 64, 0)
        about = eval(header[10:begin].decode())  # a Python dictionary by the format's definition
        self.assertEqual(about, {"descr": "<f4", "fortran_order": False, "shape": (len(lines), width)})
        values = struct.unpack(f"<{len(lines) * width}f", header[begin:])
        self.assertTrue(arrays["x.safetensors"].endswith(header[begin:]))
        for i, entry in enumerate(said):
            vector = values[i * width:(i + 1) * width]
            norm = math.sqrt(sum(x * x for x in entry["embedding"]))
            self.assertAlmostEqual(sum(a * b / norm for a, b in zip(vector, entry["embedding"])), 1, places=4)
        whole = json.loads(self.succeeds("embed", self.encoder, "--whole-files", self.valid, "--pooling", "first"))
        self.assertEqual(pathlib.Path(whole["file"]).name, "valid.txt")
        piped = json.loads(self.succeeds("embed", self.model, "--pooling", "last", stdin="a line"))
        self.assertEqual((piped["text"], len(piped["embedding"])), ("a line", width))
        self.fails(2, "sees nothing", "embed", self.model, self.valid, "--pooling", "first")
        self.fails(2, "'.txt'", "embed", self.model, self.valid, "-o", self.folder / "x.txt")


    def test_an_interrupted_command_goes_on(self):
        out, part = self.folder / "kept.npy", self.folder / "kept.npy.part"
        lines = self.folder / "lines.txt"
        lines.write_text("".join(f"line {i} of many{'!' * (i * i % 23)}\n" for i in range(3000)))
        self.succeeds("embed", self.encoder, lines, "-o", out)
        expected = out.read_bytes()
        out.unlink()
        header = 10 + struct.unpack("<H", expected[8:10])[0]
        row_bytes = (len(expected) - header) // 3000
        process = subprocess.Popen([COMMAND, "embed", self.encoder, lines, "-o", out], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        row_bytes += 16  # the checksum
        while process.poll() is None and not (part.exists() and part.stat().st_size >= 64 + 2048 * row_bytes):
            time.sleep(0.002)
        process.kill()
        process.wait()
        if out.exists():
            self.skipTest("the command was faster than the test")
        kept = part.read_bytes()
        # Rows of other options are neither taken over nor removed.
        for other in (("--batch-tokens", "300"), ("--normalize",), ("--late-chunking",), ("--max-tokens", "5")):
            self.fails(1, "kept.npy.part has the rows of an interrupted command with another model, text or option",
                       "embed", self.encoder, lines, "-o", out, *other)
            self.assertEqual(part.read_bytes(), kept)

        def continues(size, damage=None):
            """With this size of the file, and after a damage at a place in it."""
            content = bytearray(kept[:size])
            if damage is not None:
                content[damage:damage + 64] = bytes(64)
            part.write_bytes(content)
            result = run("embed", self.encoder, lines, "-o", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(out.read_bytes(), expected)
            self.assertFalse(part.exists())
            out.unlink()
            return result
        # A kill inside a write leaves a part of a row, and a group of texts that is not whole. The command continues at a
        # group, of 1024 texts, because batches inside a group would begin elsewhere.
        for size in (64 + 1500 * row_bytes + 7, 64 + 1024 * row_bytes):
            result = continues(size)
            self.assertIn("continuing after 1,024 of", result.stdout)
            self.assertEqual(result.stderr, "")
        for size in (0, 7, 64, 64 + 1023 * row_bytes):
            self.assertNotIn("continuing", continues(size).stdout)
        # A crash of the machine leaves zeros, or the rows of another place.
        result = continues(64 + 2048 * row_bytes, 64 + 1100 * row_bytes)
        self.assertIn("continuing after 1,024 of", result.stdout)
        self.assertIn("948 rows of the interrupted command are damaged and are computed again", result.stderr)
        result = continues(64 + 2048 * row_bytes, 64 + 3 * row_bytes + 20)
        self.assertNotIn("continuing", result.stdout)
        # The same rows in another order.
        rows = [kept[at:at + row_bytes] for at in range(64, 64 + 2048 * row_bytes, row_bytes)]
        part.write_bytes(kept[:64] + b"".join(rows[1024:2048] + rows[:1024]))
        self.assertIn("2,048 rows", run("embed", self.encoder, lines, "-o", out).stderr)
        self.assertEqual(out.read_bytes(), expected)

    def test_other_forms_of_texts_and_results(self):
        records = self.folder / "records.jsonl"
        records.write_text('{"id": 7, "body": "the quick brown fox"}\n{"body": "over the lazy dog"}\n')
        said = [json.loads(line) for line in
                self.succeeds("embed", self.encoder, records, "--field", "body").splitlines()]
        self.assertEqual([(entry.get("id"), entry["text"]) for entry in said],
                         [(7, "the quick brown fox"), (None, "over the lazy dog")])
        self.succeeds("embed", self.encoder, records, "--field", "body", "-o", self.folder / "x.jsonl")
        self.assertEqual([json.loads(line) for line in (self.folder / "x.jsonl").read_text().splitlines()], said)
        self.fails(1, "records.jsonl, line 1: has no field 'text'; it has body, id", "embed", self.encoder, records)

        chunks = [json.loads(line) for line in
                  self.succeeds("embed", self.encoder, "--late-chunking", stdin="one line\n\nand another\n").splitlines()]
        self.assertEqual([(entry["line"], entry["text"], entry["tokens"]) for entry in chunks],
                         [(1, "one line", [1, 9]), (3, "and another", [9, 20])])
        self.succeeds("embed", self.encoder, "--late-chunking", "-o", self.folder / "l.jsonl", stdin="one line\n\nand another\n")
        self.assertEqual([json.loads(line) for line in (self.folder / "l.jsonl").read_text().splitlines()], chunks)
        # The same chunks as strings of a record's array, and as the lines of a record's text.
        array_of_chunks = self.folder / "chunks.jsonl"
        array_of_chunks.write_text('{"id": "a", "text": ["one line", "and another"]}\n{"text": "one line\\n\\nand another"}\n')
        of_records = [json.loads(line) for line in self.succeeds("embed", self.encoder, "--late-chunking", array_of_chunks).splitlines()]
        self.assertEqual([(entry.get("id"), entry.get("chunk"), entry.get("line"), entry["tokens"]) for entry in of_records],
                         [("a", 0, None, [1, 9]), ("a", 1, None, [9, 20]), (None, None, 1, [1, 9]), (None, None, 3, [9, 20])])
        self.assertEqual([entry["embedding"] for entry in of_records], 2 * [entry["embedding"] for entry in chunks])
        self.fails(1, "chunks.jsonl, line 1", "embed", self.encoder, array_of_chunks)
        array_of_chunks.write_text('{"text": ["one line", 2]}\n')
        self.fails(1, "or an array of strings", "embed", self.encoder, "--late-chunking", array_of_chunks)
        alone = json.loads(self.succeeds("embed", self.encoder, stdin="one line"))
        self.assertNotEqual(chunks[0]["embedding"], alone["embedding"])  # it has seen the other line

        tokens = json.loads(self.succeeds("embed", self.encoder, "--token-vectors", "--json", self.folder / "t.json", stdin="ab"))
        self.assertEqual(self.json_of("t.json")["texts"], 1)
        self.assertIn("1 texts were cut", run("embed", self.encoder, "--token-vectors", "--max-tokens", "2", stdin="ab").stderr)
        self.assertEqual((tokens["ids"], len(tokens["embeddings"])), ([256, 97, 98], 3))
        mean = json.loads(self.succeeds("embed", self.encoder, stdin="ab"))["embedding"]
        for value, a, b in zip(mean, *tokens["embeddings"][1:]):
            self.assertAlmostEqual(value, (a + b) / 2, places=5)

        (found,) = map(json.loads, self.succeeds("embed", self.encoder, "--similarity", records, "--field", "body",
                                                 "--top", "1", stdin="over the lazy dog").splitlines())
        self.assertEqual([(one["index"], one["text"]) for one in found["similar"]], [(1, "over the lazy dog")])
        self.assertAlmostEqual(found["similar"][0]["cosine"], 1, places=5)

        # The mean of the texts of --similarity is subtracted from all vectors, computed here from the vectors themselves.
        others = ["the quick brown fox", "over the lazy dog", "runs away", "number 7"]
        texts = self.folder / "others.txt"
        texts.write_text("".join(line + "\n" for line in others))
        vectors = [json.loads(line)["embedding"] for line in self.succeeds("embed", self.encoder, texts).splitlines()]
        query = json.loads(self.succeeds("embed", self.encoder, stdin="the fox"))["embedding"]
        mean = [sum(column) / len(others) for column in zip(*vectors)]
        centred = [[x - m for x, m in zip(vector, mean)] for vector in [query, *vectors]]
        expected = [sum(a * b for a, b in zip(centred[0], vector)) / (math.hypot(*centred[0]) * math.hypot(*vector))
                    for vector in centred[1:]]
        found = json.loads(self.succeeds("embed", self.encoder, "--similarity", texts, "--center", stdin="the fox"))["similar"]
        self.assertEqual([one["index"] for one in found], sorted(range(4), key=lambda i: -expected[i]))
        for one in found:
            self.assertAlmostEqual(one["cosine"], expected[one["index"]], places=4)
        self.fails(2, "--similarity", "embed", self.encoder, "--center", stdin="a")

        cut = run("embed", self.encoder, "--max-tokens", "3", stdin="abcdef\nab\n")
        self.assertIn("1 texts were cut to 3 tokens", cut.stderr)
        entries = [json.loads(line) for line in cut.stdout.splitlines()]
        self.assertEqual(entries[0]["embedding"], entries[1]["embedding"])
        self.fails(2, "--late-chunking", "embed", self.encoder, "--late-chunking", "--max-tokens", "3", stdin="a")
        self.fails(2, "--token-vectors", "embed", self.encoder, "--token-vectors", "-o", self.folder / "t.npy", stdin="a")

    def test_lines_of_every_system(self):
        """CRLF and a byte order mark change nothing, in each command that reads lines."""
        unix, windows, out = self.folder / "unix.txt", self.folder / "windows.txt", self.folder / "out.json"
        unix.write_bytes("whale\nthe sea\n\nthe ship\n".encode())
        windows.write_bytes(b"\xef\xbb\xbf" + unix.read_bytes().replace(b"\n", b"\r\n"))
        records = self.folder / "windows.jsonl"
        records.write_bytes(b"\xef\xbb\xbf" + "".join(json.dumps({"text": line}) + "\r\n"
                                                     for line in unix.read_text().splitlines()).encode())
        for words in (("embed", self.encoder), ("embed", self.encoder, "--late-chunking"), ("score", self.model),
                      ("score", self.model, "--per-token"), ("embed", self.encoder, unix, "--similarity")):
            expected = self.succeeds(*words, unix)
            self.assertNotEqual(expected, "")
            self.assertEqual(self.succeeds(*words, windows).replace("windows.txt", "unix.txt"), expected, words)
        self.assertEqual(self.succeeds("embed", self.encoder, records), self.succeeds("embed", self.encoder, unix))
        whole = [json.loads(self.succeeds("embed", self.encoder, "--whole-files", file))["embedding"] for file in (unix, windows)]
        self.assertEqual(whole[0], whole[1])
        prompt = ("generate", self.model, "--max-tokens", "5", "--temperature", "0")
        self.assertEqual(self.succeeds(*prompt, "--prompt-file", windows), self.succeeds(*prompt, "--prompt-file", unix))
        self.assertEqual(run(*prompt, "--prompt", "-", stdin=windows.read_text()).stdout,
                         self.succeeds(*prompt, "--prompt-file", unix))
        # A line that is divided because of its length keeps its end together.
        unix.write_bytes(b"a" * 65536 + b"\nb\n")
        windows.write_bytes(unix.read_bytes().replace(b"\n", b"\r\n"))
        for file in (unix, windows):
            self.succeeds("score", self.model, file, "--json", out)
            self.assertEqual(self.json_of("out.json")["bytes"], 65539)

    def test_ids_are_copied_as_they_are(self):
        records = self.folder / "ids.jsonl"
        ids = ["18446744073709551616", "18446744073709551617", "9007199254740993", "1.10", "1e30", "-0.0", '"a\\nb"', "null",
               '[1.50,{"k":123456789012345678901234567890}]']
        records.write_text("".join(f'{{"id": {one}, "text": "a line"}}\n' for one in ids))
        for text in (self.succeeds("embed", self.encoder, records),
                     self.succeeds("embed", self.encoder, "--token-vectors", records)):
            self.assertEqual([line.partition(',"text":')[0] for line in text.splitlines()], ['{"id":' + one for one in ids])
        self.succeeds("embed", self.encoder, records, "-o", self.folder / "ids-out.jsonl")
        lines = (self.folder / "ids-out.jsonl").read_text().splitlines()
        self.assertEqual([line.partition(',"text":')[0] for line in lines], ['{"id":' + one for one in ids])
        found = self.succeeds("embed", self.encoder, "--similarity", records, "--top", "9", stdin="a line")
        self.assertTrue(all(f'"id":{one},' in found for one in ids), found)
        # In a lower line than the first, the cause and its place are named.
        for wrong, cause in (('{"text": "a", }', "line 2: parse error at line 1, column 15"), ("[1]", "line 2: is not a JSON object"),
                             ('{"text": 1.5}', "line 2: the field 'text' is number, expected a string"),
                             ('{"text": "a", "text": "b"}', 'line 2: the key "text" occurs twice'),
                             ('{"text": "a" "b"}', "line 2: parse error")):
            records.write_text('{"text": "a"}\n' + wrong + "\n")
            self.fails(1, cause, "embed", self.encoder, records)

    def test_files_that_are_no_text_are_named(self):
        texts = self.folder / "some-texts"
        texts.mkdir()
        for name, content in (("a.txt", b"a line\n" * 50), ("b.txt", b""), ("c.bin", b"a\0b"), ("d.txt", b"\xff\xfe\x80" * 9),
                              ("e.txt", b"another line\n" * 50), (".hidden", b"hidden")):
            (texts / name).write_bytes(content)
        out = self.folder / "skipped.json"
        whole = run("embed", self.encoder, "--whole-files", texts, "--json", out)
        self.assertEqual(whole.returncode, 0)
        entries = [json.loads(line) for line in whole.stdout.splitlines()]
        self.assertEqual([entry["file"] for entry in entries], ["a.txt", "b.txt", "e.txt"])
        empty_line = json.loads(self.succeeds("embed", self.encoder, stdin="\n"))
        for a, b in zip(entries[1]["embedding"], empty_line["embedding"], strict=True):  # other texts of a call round
            self.assertAlmostEqual(a, b, places=4)
        self.assertEqual(json.loads(self.succeeds("embed", self.encoder, "--whole-files", texts / "b.txt"))["embedding"],
                         empty_line["embedding"])
        self.assertIn("3 of 5 files are used; skipped: ", whole.stderr)
        self.assertEqual([os.path.basename(one["file"]) for one in self.json_of("skipped.json")["skipped"]], ["c.bin", "d.txt"])
        for words in (("eval", self.model, texts, "--lengths", "32"), ("eval", self.model, texts, "--scoring", "harness"),
                      ("train", texts, "-o", self.folder / "of-texts", "--train-length", "16", "--train-tokens", "64"),
                      ("tokenize", texts, "-o", self.folder / "data-of-texts"), ("embed", self.encoder, texts)):
            result = run(*words, "--json", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stderr, r"alibi: warning: 2 of 5 files are used; skipped: [^ ]*/b.txt \(is empty\), "
                                            r"[^ ]*/c.bin \(is not text: it has a NUL byte\), [^ ]*/d.txt \(is not text: ")
            skipped = self.json_of("skipped.json")["skipped"]
            self.assertEqual([os.path.basename(one["file"]) for one in skipped], ["b.txt", "c.bin", "d.txt"])
        result = run("eval", self.folder / "of-texts", "--held-out", "--json", out)
        self.assertIn("2 of 5 files are used", result.stderr)

    def test_a_failure_leaves_no_rows(self):
        bare, out = self.folder / "bare", self.folder / "bare.npy"
        self.succeeds("train", self.text, "-o", bare, *TINY_TRAINING, "--no-causal", "--tokenizer", "bpe",
                      "--vocab-size", "300")
        config = json.loads((bare / "config.json").read_text())
        for name in ("tokenizer.json", "tokenizer.model"):
            (bare / name).unlink(missing_ok=True)
        del config["alibi"]["tokenizer"]
        (bare / "config.json").write_text(json.dumps(config))
        result = run("embed", bare, self.valid, "-o", out)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(list(self.folder.glob("bare.npy*")), [])
        self.fails(2, "positions", "embed", self.encoder, self.valid, "-o", out, "--pooling", "positions")
        self.assertEqual(list(self.folder.glob("bare.npy*")), [])

    def test_a_long_text_and_what_the_skip_rule_changes(self):
        long = self.folder / "long.txt"
        long.write_text("the quick brown fox jumps over the lazy dog. " * 60)  # more than four batches of 512 tokens
        out, results = self.folder / "long.npy", self.folder / "long.json"
        whole = json.loads(self.succeeds("embed", self.encoder, "--whole-files", long))["embedding"]
        self.succeeds("embed", self.encoder, "--whole-files", long, "--batch-tokens", "512", "-o", out, "--json", results,
                      "--check-skip", "2")
        values = array.array("f", out.read_bytes()[-4 * len(whole):])
        for a, b in zip(values, whole):
            self.assertAlmostEqual(a, b, places=5)
        found = self.json_of("long.json")
        self.assertEqual((found["cosine_to_float32"], found["cosine_to_every_key"]["texts"]), (None, 1))
        self.assertLess(found["cosine_to_every_key"]["largest_difference"], 1e-9)
        # The first texts of several, printed or written to a file.
        for out in ((), ("-o", self.folder / "several.npy")):
            self.succeeds("embed", self.encoder, "--json", results, "--check-skip", "2", "--check-float32", "3", *out,
                          stdin="the quick brown fox\njumps over\nthe lazy dog\nand sleeps\n")
            found = self.json_of("long.json")
            for key, texts in (("cosine_to_every_key", 2), ("cosine_to_float32", 3)):
                self.assertEqual((found[key]["texts"], found[key]["vectors"]), (texts, texts))
                self.assertLess(found[key]["largest_difference"], 1e-9)
        tokens = json.loads(self.succeeds("embed", self.encoder, "--whole-files", long, "--batch-tokens", "512",
                                          "--token-vectors", "--normalize"))
        self.assertEqual(len(tokens["embeddings"]), len(tokens["ids"]))
        self.assertAlmostEqual(sum(x * x for x in tokens["embeddings"][2000]), 1, places=5)

        plain = self.succeeds("embed", self.encoder, "--json", results, stdin="the quick brown fox")
        self.assertEqual(self.json_of("long.json")["interpolate"], 1)
        self.assertEqual(self.succeeds("embed", self.encoder, "--interpolate", "1", stdin="the quick brown fox"), plain)
        self.assertNotEqual(self.succeeds("embed", self.encoder, "--interpolate", "4", stdin="the quick brown fox"), plain)


class OfAnotherProgram(CliTest):
    """Encoders in the format of Jina embeddings v2 and of jina-reranker-v1, with random weights."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_jina("jina", 0)
        cls.make_jina("reranker", 1)

    def test_vectors(self):
        tokens = json.loads(self.succeeds("embed", self.folder / "jina", "--token-vectors", stdin="The quick fox"))
        self.assertEqual(tokens["tokens"], ["[CLS]", "the", "quick", "fox", "[SEP]"])
        states = tokens["embeddings"]
        for pooling, expected in (("mean", [sum(column) / len(states) for column in zip(*states)]), ("cls", states[0])):
            vector = json.loads(self.succeeds("embed", self.folder / "jina", "--pooling", pooling,
                                              stdin="The quick fox"))["embedding"]
            for a, b in zip(vector, expected):
                self.assertAlmostEqual(a, b, places=5)
        cut = json.loads(run("embed", self.folder / "jina", "--max-tokens", "4", "--token-vectors",
                             stdin="The quick fox jumps").stdout)
        self.assertEqual(cut["tokens"], ["[CLS]", "the", "quick", "[SEP]"])
        chunked = json.loads(self.succeeds("embed", self.folder / "jina", "--late-chunking", stdin="the quick\n"))
        self.assertEqual(chunked["tokens"], [1, 3])
        less = ("embed", self.folder / "jina", "-o", self.folder / "w.npy", "--check-float32", "5", "--json", self.folder / "w.json")
        for weights, least in (("bf16", 0.999), ("q8_0", 0.999), ("q4_0", 0.9), ("f32", 0.9999999)):
            self.succeeds(*less, "--weights", weights, stdin="the quick fox\nthe lazy dog\n")
            found = self.json_of("w.json")["cosine_to_float32"]
            self.assertEqual(found["texts"], 2)
            self.assertGreater(found["least"], least)
            self.assertLess(found["least"], 1.0000001)
        self.fails(2, "choose from f32, bf16, q8_0, q4_0, q4_k", *less, "--weights", "int4", stdin="a")
        for command, mentions in (("generate", "expected a causal"), ("score", "needs a causal"),
                                  ("eval", "no probabilities of tokens")):
            self.fails(1, mentions, command, self.folder / "jina", *([self.valid] if command == "eval" else []))
        self.fails(1, "cannot be trained", "train", self.text, "-o", self.folder / "unused", *TINY_TRAINING, "--from",
                   self.folder / "jina")

    def test_scores(self):
        texts = "the lazy dog\nthe quick brown fox\na line\n"
        said = self.succeeds("rerank", self.folder / "reranker", "--query", "a fox", "--json", self.folder / "r.json",
                             stdin=texts)
        scores = [(float(line.split("\t")[0]), line.split("\t")[1]) for line in said.splitlines()]
        self.assertEqual(sorted(text for _, text in scores), sorted(texts.splitlines()))
        self.assertEqual(scores, sorted(scores, key=lambda one: -one[0]))
        results = self.json_of("r.json")["results"]
        self.assertEqual([texts.splitlines()[one["index"]] for one in results], [text for _, text in scores])
        best = self.succeeds("rerank", self.folder / "reranker", "--query", "a fox", "--top", "1", stdin=texts)
        self.assertEqual(best, said.splitlines(keepends=True)[0])
        # A text cannot look like another result.
        records = self.folder / "forged.jsonl"
        records.write_text('{"text": "a line\\n9.999999\\tforged\\u001b[2J"}\n{"text": "the lazy dog"}\n')
        lines = self.succeeds("rerank", self.folder / "reranker", "--query", "a fox", records).splitlines()
        self.assertEqual(len(lines), 2)
        self.assertEqual({line.split("\t")[1] for line in lines}, {"a line\\n9.999999\\tforged\\x1b[2J", "the lazy dog"})
        records.write_text('{"id": 18446744073709551616, "text": "a line"}\n')
        self.succeeds("rerank", self.folder / "reranker", "--query", "a fox", records, "--json", self.folder / "r.json")
        self.assertIn('"id": 18446744073709551616,', (self.folder / "r.json").read_text())
        self.fails(1, "expected 1: a reranker", "rerank", self.folder / "jina", "--query", "a", stdin=texts)
        self.fails(2, "--query", "rerank", self.folder / "reranker", stdin=texts)
        self.fails(2, "a decoder", "rerank", self.model, "--query", "a", stdin=texts)


class FineTuning(CliTest):
    def test_it_begins_with_the_weights_of_another(self):
        other = self.folder / "other.txt"
        other.write_text("".join(f"{i} sheep sleep in the deep blue steep\n" for i in range(400)))
        begun, tuned = self.folder / "begun", self.folder / "tuned"
        train = ("train", other, "--valid", self.valid, *TINY_TRAINING, "--from", self.model)
        # A rate of almost nothing leaves them as they were.
        self.succeeds(*train, "-o", begun, "--learning-rate", "1e-12", "--weight-decay", "0")
        self.succeeds("eval", self.model, self.valid, "--lengths", "32", "--json", self.folder / "a.json")
        self.succeeds("eval", begun, self.valid, "--lengths", "32", "--json", self.folder / "b.json")
        nll = [self.json_of(name)["eval"][0]["nll"] for name in ("a.json", "b.json")]
        self.assertAlmostEqual(nll[0], nll[1], places=4)
        self.succeeds(*train, "-o", tuned)
        settings = json.loads((tuned / "train.json").read_text())
        self.assertEqual(settings["from"], str(self.model))
        self.assertNotIn("position", settings)
        # It is resumed without the model that it began with.
        settings["from"] = str(self.folder / "gone")
        (tuned / "train.json").write_text(json.dumps(settings))
        self.assertIn("training is complete", self.succeeds("train", "--resume", tuned))
        for wrong in (("--position", "none"), ("--heads", "2"), ("--tokenizer", "bpe")):
            self.fails(2, "--from", *train, "-o", self.folder / "unused", *wrong)
        self.fails(1, "no such folder", "train", other, "-o", self.folder / "unused", "--from", self.folder / "gone")


if __name__ == "__main__":
    unittest.main()
