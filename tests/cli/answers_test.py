"""What is inside the answers of alibi serve: tokens without a text, log-probabilities of streams, offsets of characters,
fields that change nothing, limits of encoders, and the cancellation of vectors."""

import itertools
import json
import shutil
import socket
import struct
import threading
import time
import unittest

from cli_case import CliTest
from serve_test import request_bytes, Server

BUSY_SECONDS = 10  # a machine that also compiles; alone the slowest answer takes a tenth of a second
PADDING = 15


def pad(folder):
    """Makes the folder like those of other programs: no key of alibi, and a table with more rows than tokens."""
    config = json.loads((folder / "config.json").read_text())
    del config["alibi"]
    config["vocab_size"] += PADDING
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors, values = json.loads(data[8:8 + size]), data[8 + size:]
    tensors.pop("__metadata__", None)
    begin, parts = 0, []
    for name, tensor in tensors.items():
        first, last = tensor["data_offsets"]
        part = values[first:last]
        if name.endswith("wte.weight"):
            part += bytes(PADDING * tensor["shape"][1] * 4)
            tensor["shape"][0] += PADDING
        tensor["data_offsets"] = [begin, begin + len(part)]
        begin += len(part)
        parts.append(part)
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    file.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(parts))


class OneConnection:
    """Sends requests one after the other on one connection, so that a second answer to one of them would be taken for
    the next answer."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.received = self.socket.makefile("rb")

    def close(self):
        self.received.close()
        self.socket.close()

    def ask(self, path, body):
        """The status and the body, or the events of a stream."""
        self.socket.sendall(request_bytes(path, body))
        status = int(self.received.readline().split(b" ")[1])
        headers = {}
        while line := self.received.readline().strip():
            key, value = line.split(b": ", 1)
            headers[key.lower()] = value
        if b"content-length" in headers:
            return status, json.loads(self.received.read(int(headers[b"content-length"])))
        data = b""
        while size := int(self.received.readline(), 16):
            data += self.received.read(size + 2)[:-2]
        self.received.readline()
        return status, [event[len("data: "):] for event in data.decode().split("\n\n") if event]


class Padded(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.padded = cls.folder / "padded"
        shutil.copytree(cls.model, cls.padded)
        pad(cls.padded)
        cls.server = Server(cls.padded, "--slots", "8", "--prefix-memory", "0", "--quiet", "--name", "padded")
        cls.addClassCleanup(cls.server.stop)

    def complete(self, **fields):
        return self.server.post("/v1/completions", fields)["choices"][0]

    def streamed(self, path, fields):
        """The texts and the lists of log-probabilities of a stream, joined, and the reason of its end."""
        text, lists, end = "", None, None
        for event in self.server.events(path, {**fields, "stream": True}):
            (choice,) = event["choices"]
            text += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            end = choice["finish_reason"] or end
            for key, more in (choice.get("logprobs") or {}).items():
                if lists is None:
                    lists = {}
                lists[key] = lists[key] + more if lists.get(key) else more
        return text, lists, end

    def test_ids_without_a_token_have_no_text(self):
        # tokenizers.decode gives "th" for these ids.
        self.assertEqual(self.server.post("/detokenize", {"tokens": [116, 260, 104]})["content"], "th")
        self.assertEqual(self.complete(prompt=[116, 260, 104], echo=True, max_tokens=0)["text"], "th")
        one = self.complete(prompt="the cat", max_tokens=3, temperature=0, logprobs=40)
        self.assertEqual(len(one["logprobs"]["tokens"]), 3)
        self.assertEqual(self.server.get("/props")["models"][0]["prefix_bytes"], 0)
        everything = self.complete(prompt="the cat", max_tokens=2, temperature=0, logprobs=257 + PADDING)
        self.assertIn("", everything["logprobs"]["top_logprobs"][0])
        # Drawn at a high temperature, such ids do not end a text.
        drawn = self.complete(prompt="the cat", max_tokens=400, temperature=50, seed=1, logprobs=0, ignore_eos=True)
        self.assertEqual(len(drawn["logprobs"]["tokens"]), 400)
        self.assertGreater(drawn["logprobs"]["tokens"].count(""), 5)
        said = self.succeeds("generate", self.padded, "--prompt", "the cat", "--max-tokens", "300", "--temperature", "50",
                             "--seed", "1")
        self.assertGreater(len(said), 200)
        options = ("--max-tokens", "300", "--temperature", "50", "--json", self.folder / "generated.json")
        self.succeeds("generate", self.padded, "--prompt", "the cat", *options)
        self.assertEqual(self.json_of("generated.json")["tokens"], 300)

    def test_best_of_are_the_most_likely_texts(self):
        plain = {"prompt": "the cat", "max_tokens": 9, "temperature": 2, "seed": 5, "ignore_eos": True}
        all_choices = self.server.post("/v1/completions", {**plain, "n": 6, "logprobs": 0})["choices"]
        texts = [choice["text"] for choice in sorted(all_choices, key=lambda one: -sum(one["logprobs"]["token_logprobs"]))]
        best = self.server.post("/v1/completions", {**plain, "n": 2, "best_of": 6})
        self.assertEqual([choice["text"] for choice in best["choices"]], texts[:2])
        self.assertEqual([choice["index"] for choice in best["choices"]], [0, 1])
        self.assertEqual(best["usage"]["completion_tokens"], 6 * 9)
        answer = self.server.post("/v1/completions", {**plain, "best_of": 2, "stream": True}, 400)["error"]
        self.assertIn("not supported in a stream", answer["message"])

    def test_biases_and_penalties_change_the_text(self):
        plain = {"prompt": "the cat", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
        self.assertEqual(self.complete(**plain, logit_bias={"101": 100})["text"], "e" * 20)
        varied = self.complete(**plain, logit_bias={"101": 100}, frequency_penalty=2, priority=-1)["text"]
        self.assertEqual(varied, "e" * 20)
        self.assertLess(self.complete(**plain, frequency_penalty=2)["text"].count("e"), 20)

    def test_200_requests_of_every_shape_are_answered_once(self):
        shapes = itertools.product(
            ("the cat", [116, 260, 104], [256, 271], ["a", [258, 98, 271]]),
            ({}, {"logprobs": 0}, {"logprobs": 40}, {"logprobs": 257 + PADDING}, {"logprobs": 1, "echo": True}),
            ({"max_tokens": 3, "temperature": 0}, {"max_tokens": 7, "temperature": 50, "n": 2},
             {"max_tokens": 0}, {"max_tokens": 5, "temperature": 50, "ignore_eos": True, "stop": ["e", "th"]},
             {"max_tokens": 4, "temperature": 50, "repetition_penalty": 1.5, "top_k": 270}),
            (False, True))
        connection = OneConnection(self.server.port)
        self.addCleanup(connection.close)
        slowest, count = 0, 0
        for prompt, lists, sampling, streams in shapes:
            body = {"prompt": prompt, "seed": count, "stream": streams, **lists, **sampling}
            begin = time.monotonic()
            status, answer = connection.ask("/v1/completions", body)
            slowest = max(slowest, time.monotonic() - begin)
            count += 1
            refused = streams and body.get("echo") and "logprobs" in body
            self.assertEqual(status, 400 if refused else 200, (body, answer))
            if streams and not refused:
                self.assertEqual(answer.count("[DONE]"), 1, body)
                self.assertEqual(answer[-1], "[DONE]")
                ends = [json.loads(event)["choices"][0]["finish_reason"] for event in answer[:-1]]
            elif not refused:
                ends = [choice["finish_reason"] for choice in answer["choices"]]
            if not refused:
                prompts = len(prompt) if isinstance(prompt, list) and "a" in prompt else 1
                self.assertEqual(len([end for end in ends if end]), prompts * body.get("n", 1), body)
            self.assertEqual(connection.ask("/tokenize", {"prompt": f"{count}"})[1]["tokens"], list(f"{count}".encode()))
        self.assertEqual(count, 200)
        self.assertLess(slowest, BUSY_SECONDS)

    def test_a_stream_has_the_log_probabilities_of_the_plain_answer(self):
        plain = {"prompt": "the quick", "max_tokens": 30, "temperature": 0, "ignore_eos": True, "logprobs": 2}
        text = self.complete(**plain)["text"]
        chat = {"messages": [{"role": "user", "content": "the quick"}], "max_tokens": 30, "temperature": 0,
                "ignore_eos": True, "logprobs": True, "top_logprobs": 2}
        replied = self.server.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
        for begin, length in itertools.product((0, 3, 9), (1, 2, 3, 4)):
            # A token is a byte. The second stop text holds tokens back and never ends.
            stops = [text[begin:begin + length], text[begin:begin + 1] + "no such text"]
            one = self.complete(**plain, stop=stops)
            self.assertEqual(one["text"], text.split(stops[0])[0])
            self.assertEqual(len(one["logprobs"]["tokens"]), len(one["text"].encode()))
            self.assertEqual(self.streamed("/v1/completions", {**plain, "stop": stops}),
                             (one["text"], one["logprobs"] if one["text"] else None, "stop"))
            stops = [replied[begin:begin + length]]
            one = self.server.post("/v1/chat/completions", {**chat, "stop": stops})["choices"][0]
            content = one["message"]["content"]
            self.assertEqual(content, replied.split(stops[0])[0])
            self.assertEqual(len(one["logprobs"]["content"]), len(content.encode()))
            said, lists, end = self.streamed("/v1/chat/completions", {**chat, "stop": stops})
            self.assertEqual((said, end), (content, "stop"))
            self.assertEqual(lists["content"] if lists else [], one["logprobs"]["content"])
        # Bytes that are no characters, ids without a text, and the end of a text.
        for seed in range(12):
            drawn = {**plain, "temperature": 30, "seed": seed, "ignore_eos": seed % 2 == 0, "stop": ["e", "q\u00e9"]}
            one = self.complete(**drawn)
            said, lists, end = self.streamed("/v1/completions", drawn)
            self.assertEqual((said, end), (one["text"], one["finish_reason"]))
            self.assertEqual(lists or {key: [] for key in one["logprobs"]}, one["logprobs"])

    def test_offsets_are_those_of_the_characters_of_the_text(self):
        ids = [256, *"né €".encode(), 0x80, 0xFF, 260, 0xE2, 0x82, *"x😀y".encode()]
        one = self.complete(prompt=ids, echo=True, logprobs=0, max_tokens=0)
        text = one["text"]
        self.assertEqual(text, bytes(id for id in ids if id < 256).decode(errors="replace"))
        # The character in which the token's byte is; a token without a text is before the next one.
        expected, before = [], b""
        for id in ids:
            expected.append(len((before + bytes([id])).decode(errors="replace")) - 1 if id < 256 else
                            len(before.decode(errors="replace")))
            before += bytes([id]) if id < 256 else b""
        self.assertEqual(one["logprobs"]["text_offset"], expected)
        for token, offset in zip(one["logprobs"]["tokens"], one["logprobs"]["text_offset"]):
            if not token.startswith("bytes:") and token != "<|endoftext|>":
                self.assertEqual(text[offset:offset + len(token)], token)

    def test_fields_that_change_nothing_are_accepted(self):
        plain = {"prompt": "a", "max_tokens": 2, "temperature": 0}
        expected = self.complete(**plain)
        for field, value in (("suffix", ""), ("suffix", None), ("logit_bias", {"101": 0}), ("logit_bias", {"101": 0.0}),
                             ("max_tokens", 2.0), ("n", 1.0), ("seed", -2**63), ("best_of", 1), ("presence_penalty", 0.0)):
            self.assertEqual(self.complete(**{**plain, field: value}), expected, (field, value))
        for field, value, mentions in (("logprobs", 1000, f"logprobs is 1000, expected an integer from 0 to {257 + PADDING}"),
                                       ("n", 9, "n is 9, expected an integer from 1 to 8"),
                                       ("seed", 2**63, f"seed is {2**63}, expected an integer of at most {2**63 - 1}"),
                                       ("logit_bias", {"x": 1}, "expected tokens from 0 to"), ("logit_bias", [0], "expected an object"),
                                       ("logit_bias", {"9999": 1}, "expected tokens from 0 to"),
                                       ("presence_penalty", 3, "expected a number from -2 to 2"),
                                       ("best_of", 9, "expected an integer from 1 to 8"),
                                       ("max_tokens", 2.5, "integer"), ("stop", "x" * 1025, "1 to 1024 bytes")):
            answer = self.server.post("/v1/completions", {**plain, field: value}, 400)["error"]
            self.assertIn(mentions, answer["message"])
            self.assertEqual(answer["param"], field)
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}, {"role": "user", "content": "b"}]
        chat = {"messages": messages, "max_tokens": 1, "modalities": ["text"]}
        self.server.post("/v1/chat/completions", chat)
        messages[2]["content"] = None
        answer = self.server.post("/v1/chat/completions", chat, 400)["error"]
        self.assertEqual(answer["message"], "messages[2].content is null")
        answer = self.server.post("/v1/chat/completions", {**chat, "messages": messages[:1], "logprobs": True, "top_logprobs": 1000}, 400)
        self.assertIn(f"from 0 to {257 + PADDING}", answer["error"]["message"])

    def test_products_of_limited_numbers_are_limited(self):
        refused = lambda path, body: self.server.post(path, body, 400)["error"]["message"]
        long = "a" * 12000
        self.assertIn("expected at most 524288 in an answer",
                      refused("/v1/completions", {"prompt": long, "echo": True, "logprobs": 100, "max_tokens": 0}))
        self.assertIn("expected at most 524288 in an answer",
                      refused("/v1/completions", {"prompt": "a", "n": 4, "logprobs": 200, "max_tokens": 10**18}))
        self.assertIn("bytes of prompts", refused("/v1/completions", {"prompt": ["a" * 1700000] * 2, "echo": True, "n": 8, "max_tokens": 0}))
        for field in ("with_pieces", "return_token_strs"):
            self.assertIn("expected at most 131072", refused("/tokenize", {"prompt": "a" * 131073, field: True}))
        self.assertEqual(self.server.post("/tokenize", {"prompt": "a" * 131073})["count"], 131073)
        self.assertIn("vectors of 128 numbers, expected at most 131072", refused("/pooling", {"input": "a" * 131073}))
        pieces = self.server.post("/tokenize", {"prompt": "é!", "with_pieces": True})["tokens"]
        self.assertEqual([piece["id"] for piece in pieces], [0xC3, 0xA9, 0x21])
        self.assertEqual(pieces[2]["piece"], "!")


class Vectors(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train_encoder()
        cls.reranker = cls.make_jina("reranker", 1)

    def serve(self, *arguments):
        server = Server(*arguments)
        self.addCleanup(server.stop)
        return server

    def test_the_limits_hold_for_encoders_and_rerankers(self):
        server = self.serve(self.encoder, self.reranker, "--max-length", "64", "--slots", "2", "--queue", "3")
        self.assertEqual([model["max_model_len"] for model in server.get("/v1/models")["data"]], [64, 64])
        self.assertEqual([(model["slots"], model["queue"]) for model in server.get("/props")["models"]], [(2, 3)] * 2)
        for path in ("/v1/embeddings", "/pooling"):
            server.post(path, {"input": "a" * 63})
            for many in ("a" * 64, [97] * 65):
                error = server.post(path, {"input": many}, 400)["error"]
                self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", "input"))
                self.assertIn("65 tokens, expected at most 64", error["message"])
        rerank = {"model": "reranker", "query": "a fox", "documents": ["fox", "fox " * 15000]}
        self.assertIn("expected at most 64", server.post("/v1/rerank", rerank, 400)["error"]["message"])
        for cut in (64, -1):
            answer = server.post("/v1/rerank", {**rerank, "truncate_prompt_tokens": cut})
            self.assertLessEqual(answer["usage"]["prompt_tokens"], 128)
            self.assertEqual(server.post("/v1/embeddings", {"input": ["a" * 1000, [97] * 999], "truncate_prompt_tokens": cut})
                             ["usage"]["prompt_tokens"], 128)
        for path, body in (("/v1/rerank", rerank), ("/v1/embeddings", {"input": "a"})):
            error = server.post(path, {**body, "truncate_prompt_tokens": 0}, 400)["error"]
            self.assertEqual(error["param"], "truncate_prompt_tokens")
            self.assertIn("is 0, expected at least 1", error["message"])

    def test_vectors_of_a_long_text_end_in_time_and_short_texts_overtake_them(self):
        for model in (self.model, self.encoder):
            server = self.serve(model, "--request-timeout", "3", "--grace", "0.5", "--max-body", "5MiB")
            long = {"input": "the quick brown fox " * 175000}  # 3.5 MB, which take minutes
            answers = []
            thread = threading.Thread(target=lambda: answers.append((server.request("POST", "/v1/embeddings", long), time.monotonic())))
            begin = time.monotonic()
            thread.start()
            time.sleep(1)
            server.post("/v1/embeddings", {"input": ["a short text", "and another"]})
            self.assertEqual(answers, [])  # the short texts came first
            thread.join()
            (status, _, body), end = answers[0]
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "timeout"))
            self.assertLess(end - begin, 3 + BUSY_SECONDS)
            # It does not continue: the processor is idle.

            def is_idle(server=server):
                before = server.metric("process_cpu_seconds_total")
                time.sleep(0.3)
                return server.metric("process_cpu_seconds_total") - before < 0.1

            server.wait_until(is_idle, BUSY_SECONDS)
            # A client that leaves, and the end of the server.
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(request_bytes("/v1/embeddings", long))
                time.sleep(1)
            server.wait_until(is_idle, BUSY_SECONDS)
            thread = threading.Thread(target=lambda: answers.append(server.raw(request_bytes("/v1/embeddings", long), timeout=60)))
            thread.start()
            time.sleep(1)
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 0.5 + BUSY_SECONDS)
            thread.join()


if __name__ == "__main__":
    unittest.main()
