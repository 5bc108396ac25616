"""alibi serve: every endpoint, streams, limits, and clients that behave badly. Python's standard library is the client;
traffic goes to 127.0.0.1 only."""

import base64
import http.client
import json
import math
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

from cli_case import COMMAND, CliTest, run


class Server:
    """A server on a free port."""

    def __init__(self, *arguments, environment=None, reads_log=True):
        words = [COMMAND, "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line + self.process.stderr.read()
        assert "in a browser" in line, line
        self.port = int(line.split(" ")[2].rsplit(":", 1)[1])
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        if reads_log:
            self.reader.start()

    def request(self, method, path, body=None, headers=None, timeout=60):
        """The status, the headers and the body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        assert status == 200, (status, body)
        return json.loads(body)

    def post(self, path, body, expect=200, headers=None):
        status, found, answer = self.request("POST", path, body, headers)
        assert status == expect, (status, answer)
        assert found["Content-Type"] == "application/json", found
        return json.loads(answer)

    def events(self, path, body):
        """The data of each event of a stream."""
        status, headers, answer = self.request("POST", path, body)
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), (status, answer)
        events = [part for part in answer.decode().split("\n\n") if part]
        assert all(event.startswith("data: ") for event in events), events
        assert events[-1] == "data: [DONE]", events
        return [json.loads(event[len("data: "):]) for event in events[:-1]]

    def metric(self, name):
        _, _, body = self.request("GET", "/metrics")
        values = [float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines()
                  if line.split("{")[0].split(" ")[0] == name]
        assert values, name
        return sum(values)

    def raw(self, data, half_close=False, timeout=10):
        """Sends bytes as they are, and returns all bytes of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while True:
                more = connection.recv(65536)
                if not more:
                    return answer
                answer += more

    def wait_until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "too late"
            time.sleep(0.05)

    def stop(self, sent=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sent)
        code = self.process.wait(timeout=60)
        if self.reader.ident:
            self.reader.join(timeout=10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


def request_bytes(path, body, headers=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n{headers}\r\n".encode() + data


class Serve(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train_encoder()
        cls.reranker = cls.make_jina("reranker", 1)
        cls.server = Server(cls.model, cls.encoder, cls.reranker, "--slots", "4", "--header-timeout", "1", "--body-timeout", "1",
                            "--max-body", "100000", "--max-header", "4096", "--max-inputs", "20", "--chunk-tokens", "64")
        cls.addClassCleanup(cls.server.stop)

    def tearDown(self):
        # Whatever the test did, no request runs any more, and the server still answers.
        self.server.wait_until(lambda: self.server.metric("alibi_running") + self.server.metric("alibi_waiting") == 0)
        self.assertEqual(self.server.get("/health"), {"status": "ok"})

    def complete(self, expect=200, **fields):
        return self.server.post("/v1/completions", fields, expect)

    def is_error(self, answer, mentions, param=None):
        self.assertEqual(set(answer), {"error"})
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        self.assertIn(mentions, answer["error"]["message"])
        if param:
            self.assertEqual(answer["error"]["param"], param)

    def test_completions(self):
        fields = {"prompt": "the quick brown", "max_tokens": 12, "temperature": 0, "seed": 1, "ignore_eos": True}
        one = self.complete(**fields)
        self.assertEqual(one["object"], "text_completion")
        self.assertEqual(one["model"], "model")
        self.assertEqual([(c["index"], c["finish_reason"]) for c in one["choices"]], [(0, "length")])
        self.assertEqual(one["usage"]["completion_tokens"], 12)
        self.assertEqual(one["usage"]["prompt_tokens"], 16)  # with the end of text before it
        self.assertEqual(self.complete(**fields)["choices"], one["choices"])
        # A list of prompts and samples of each: the same texts as alone.
        many = self.complete(**{**fields, "prompt": ["the quick brown", "a"], "n": 2, "temperature": 1})
        self.assertEqual([c["index"] for c in many["choices"]], [0, 1, 2, 3])
        alone = self.complete(**{**fields, "prompt": "a", "n": 2, "temperature": 1})
        self.assertEqual([c["text"] for c in many["choices"][2:]], [c["text"] for c in alone["choices"]])
        # Tokens in place of the text, and several of them.
        ids = self.server.post("/tokenize", {"prompt": "the quick brown", "add_special_tokens": True})["tokens"]
        self.assertEqual(self.complete(**{**fields, "prompt": ids})["choices"], one["choices"])
        self.assertEqual(self.complete(**{**fields, "prompt": [ids, ids]})["choices"][1]["text"],
                         one["choices"][0]["text"])
        # A text ends before a stop string.
        stop = one["choices"][0]["text"][4:6]
        stopped = self.complete(**{**fields, "stop": [stop, "\0"]})["choices"][0]
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(stopped["text"], one["choices"][0]["text"].split(stop)[0])

    def test_log_probabilities_as_evaluation_harnesses_need_them(self):
        ids = self.server.post("/tokenize", {"prompt": "the quick brown fox", "add_special_tokens": True})["tokens"]
        answer = self.complete(prompt=ids, echo=True, max_tokens=1, logprobs=1, temperature=0)
        found = answer["choices"][0]["logprobs"]
        self.assertEqual({len(found[key]) for key in found}, {len(ids) + 1})
        self.assertIsNone(found["token_logprobs"][0])
        self.assertIsNone(found["top_logprobs"][0])
        for logprob, top in list(zip(found["token_logprobs"], found["top_logprobs"]))[1:]:
            self.assertLessEqual(logprob, max(top.values()))
        self.assertEqual(found["token_logprobs"][-1], max(found["top_logprobs"][-1].values()))  # greedy, bit for bit
        # A greedy continuation is greedy when it is scored, and the sum agrees with alibi score.
        drawn = self.complete(prompt=ids, max_tokens=8, temperature=0, logprobs=1)["choices"][0]
        text = "the quick brown fox" + drawn["text"]
        again = self.server.post("/tokenize", {"prompt": text, "add_special_tokens": True})["tokens"]
        scored = self.complete(prompt=again, echo=True, max_tokens=0, logprobs=2)["choices"][0]
        self.assertEqual(scored["text"], text)
        self.assertEqual(len(scored["logprobs"]["tokens"]), len(again))
        for logprob, top in zip(scored["logprobs"]["token_logprobs"][len(ids):],
                                scored["logprobs"]["top_logprobs"][len(ids):]):
            self.assertEqual(logprob, max(top.values()))
        for a, b in zip(drawn["logprobs"]["token_logprobs"], scored["logprobs"]["token_logprobs"][len(ids):]):
            self.assertAlmostEqual(a, b, places=4)
        bits = float(self.succeeds("score", self.model, stdin=text + "\n").split("\t")[1])
        sum_of_line = -sum(scored["logprobs"]["token_logprobs"][1:]) / math.log(2)
        self.assertLess(sum_of_line, bits + 1e-3)  # alibi score adds the end of the line or text
        self.assertEqual("".join(scored["logprobs"]["tokens"][1:]), text)
        self.assertEqual(scored["logprobs"]["text_offset"][:3], [0, 0, 1])  # the end of text is not in the text

    def test_streams(self):
        fields = {"prompt": "the quick", "max_tokens": 10, "temperature": 0.8, "seed": 3, "n": 2, "ignore_eos": True}
        whole = self.complete(**fields)
        events = self.server.events("/v1/completions",
                                    {**fields, "stream": True, "stream_options": {"include_usage": True}})
        texts, ends = ["", ""], [None, None]
        for event in events[:-1]:
            (choice,) = event["choices"]
            texts[choice["index"]] += choice["text"]
            ends[choice["index"]] = choice["finish_reason"] or ends[choice["index"]]
        self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
        self.assertEqual(ends, ["length", "length"])
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 20)
        self.assertEqual(events[-1]["alibi"][0]["samples"][1]["tokens"], 10)

    def test_chats(self):
        messages = [{"role": "system", "content": "You are a fox."},
                    {"role": "user", "content": [{"type": "text", "text": "the quick"}]}]
        fields = {"messages": messages, "max_tokens": 9, "temperature": 0, "ignore_eos": True}
        answer = self.server.post("/v1/chat/completions", {**fields, "logprobs": True, "top_logprobs": 2})
        self.assertEqual(answer["object"], "chat.completion")
        choice = answer["choices"][0]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual(len(choice["logprobs"]["content"]), 9)
        self.assertEqual(len(choice["logprobs"]["content"][0]["top_logprobs"]), 2)
        events = self.server.events("/v1/chat/completions", {**fields, "stream": True})
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual("".join(event["choices"][0]["delta"].get("content", "") for event in events),
                         choice["message"]["content"])
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        other = self.server.post("/v1/chat/completions", {**fields, "chat_template": "chatml"})
        self.assertNotEqual(other["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens"])
        self.is_error(self.server.post("/v1/chat/completions", {**fields, "chat_template": "x"}, 400), "chatml")
        self.is_error(self.server.post("/v1/chat/completions", {"messages": []}, 400), "messages", "messages")
        self.is_error(self.server.post("/v1/chat/completions", {"messages": [{"role": "x", "content": "a"}]}, 400),
                      "role")

    def test_vectors(self):
        lines = self.valid.read_text().splitlines()[:3]
        for model in ("encoder", "model"):
            answer = self.server.post("/v1/embeddings", {"model": model, "input": lines})
            vectors = [entry["embedding"] for entry in answer["data"]]
            self.assertEqual([entry["index"] for entry in answer["data"]], [0, 1, 2])
            said = self.succeeds("embed", self.folder / model, "--normalize", stdin="\n".join(lines) + "\n")
            for found, line in zip(vectors, said.splitlines()):
                expected = json.loads(line)["embedding"]
                self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 1e-5)
            packed = self.server.post("/v1/embeddings", {"model": model, "input": lines, "encoding_format": "base64"})
            for found, entry in zip(vectors, packed["data"]):
                self.assertEqual(list(struct.unpack(f"<{len(found)}f", base64.b64decode(entry["embedding"]))), found)
            ids = self.server.post("/tokenize", {"model": model, "prompt": lines[0], "add_special_tokens": True})["tokens"]
            self.server.post("/v1/embeddings", {"model": model, "input": [ids, ids]})
            pooled = self.server.post("/pooling", {"model": model, "input": lines[0], "pooling": "mean"})["data"][0]["data"]
            norm = math.sqrt(sum(x * x for x in pooled))
            self.assertLess(max(abs(a / norm - b) for a, b in zip(pooled, vectors[0])), 1e-5)
            last = self.server.post("/pooling", {"model": model, "input": [ids], "pooling": "last"})["data"][0]["data"]
            states = self.server.post("/pooling", {"model": model, "input": [ids]})["data"][0]["data"]
            self.assertEqual(len(states), len(ids))
            self.assertLess(max(abs(a - b) for a, b in zip(states[-1], last)), 1e-5)
        self.is_error(self.server.post("/v1/embeddings", {"input": "a", "encoding_format": "x"}, 400), "base64",
                      "encoding_format")
        self.is_error(self.server.post("/v1/embeddings", {"input": ["a"] * 21}, 400), "at most 20", "input")
        self.is_error(self.server.post("/v1/embeddings", {"input": "a", "dimensions": 3}, 400), "dimensions")
        self.is_error(self.server.post("/v1/rerank", {"query": "a", "documents": ["b"]}, 400), "no reranker")
        self.is_error(self.complete(400, model="encoder", prompt="a"), "encoder")

    def test_scores_of_documents(self):
        documents = ["the lazy dog", "the quick brown fox", "a line"]
        fields = {"model": "reranker", "query": "a fox", "documents": documents}
        results = self.server.post("/v1/rerank", fields)["results"]
        said = self.succeeds("rerank", self.reranker, "--query", "a fox", stdin="\n".join(documents) + "\n")
        expected = [(line.split("\t")[1], float(line.split("\t")[0])) for line in said.splitlines()]
        self.assertEqual([one["document"]["text"] for one in results], [text for text, _ in expected])
        for one, (_, score) in zip(results, expected):
            self.assertEqual(documents[one["index"]], one["document"]["text"])
            self.assertAlmostEqual(one["relevance_score"], score, places=5)
        objects = [{"text": text} for text in documents]
        best = self.server.post("/rerank", {**fields, "documents": objects, "top_n": 1, "return_documents": False})
        self.assertEqual(best["results"], [{key: results[0][key] for key in ("index", "relevance_score")}])
        self.assertEqual(self.server.post("/v2/rerank", {**fields, "top_n": 1, "return_documents": False})["results"], best["results"])
        self.is_error(self.server.post("/v1/rerank", {**fields, "documents": []}, 400), "documents", "documents")
        self.is_error(self.server.post("/v1/rerank", {**fields, "query": 1}, 400), "query", "query")

    def test_information(self):
        models = self.server.get("/v1/models")["data"]
        self.assertEqual([model["id"] for model in models], ["model", "encoder", "reranker"])
        for name, at in (("reranker", 2), ("%6dodel", 0)):
            self.assertEqual(self.server.get(f"/v1/models/{name}"), models[at])
        for name in ("none", "model%", "model%2", "%zzodel", ""):
            status, _, body = self.server.request("GET", f"/v1/models/{name}")
            self.assertEqual((status, json.loads(body)["error"]["code"]), (404, "model_not_found"), name)
        counters = self.server.request("GET", "/metrics")[2].decode()
        self.assertIn('alibi_http_requests_total{path="/v1/models/",status="404"} 5\n', counters)
        info = self.server.get("/tokenizer_info")
        self.assertEqual(info["eos_token"], "<|endoftext|>")
        props = self.server.get("/props")
        self.assertEqual(props["models"][0]["slots"], 4)
        self.assertIn("chatml", props["chat_templates"])
        text = "tête-à-tête\n"
        for field in ("prompt", "content"):
            ids = self.server.post("/tokenize", {field: text})["tokens"]
            self.assertEqual(ids, list(text.encode()))
        back = self.server.post("/detokenize", {"tokens": ids})
        self.assertEqual((back["prompt"], back["content"]), (text, text))
        self.is_error(self.server.post("/detokenize", {"tokens": [1, 257]}, 400), "257", "tokens")
        before = self.server.metric("alibi_generated_tokens_total")
        self.complete(prompt="a", max_tokens=5, ignore_eos=True)
        self.assertEqual(self.server.metric("alibi_generated_tokens_total"), before + 4)  # the last one is not read
        self.assertGreater(self.server.metric("process_resident_memory_bytes"), 1e6)

    def test_errors(self):
        for method, path, expected in (("GET", "/none", 404), ("GET", "/v1/completions", 405), ("DELETE", "/health", 405),
                                       ("POST", "/v1/none", 404)):
            status, headers, body = self.server.request(method, path, "{}")
            self.assertEqual(status, expected)
            self.is_error(json.loads(body), "")
            self.assertEqual("Allow" in headers, expected == 405)
        # HEAD is GET without the body. The next answer on the same connection is read correctly.
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        self.addCleanup(connection.close)
        for path, expected in (("/health", 200), ("/", 200), ("/none", 404), ("/v1/completions", 405)):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (expected, b""), path)
            self.assertGreater(int(answer.headers["Content-Length"]), 0)
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
        self.assertEqual(self.server.raw(b"HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n").split(b"\r\n\r\n")[1], b"")
        for body, mentions in ((b"", "body"), (b"[]", "object"), (b"{", "body"), (b'{"prompt": "\xff"}', "body"),
                               (b'{"prompt": "\xed\xa0\x80"}', "body"), (b"[" * 50000, "body"), (b'{"a":' * 5000, "body"),
                               (b'{"prompt": "a", "prompt": "b"}', "body"), (b"\0" * 100, "body"), (b"nan", "body")):
            status, _, answer = self.server.request("POST", "/v1/completions", body)
            self.assertEqual(status, 400, body[:20])
            self.is_error(json.loads(answer), mentions)
        for field, value in (("prompt", None), ("prompt", 5), ("prompt", []), ("prompt", [[]]), ("prompt", [1, "a"]),
                             ("prompt", [-1]), ("prompt", [300]), ("prompt", [[1], [2**40]]), ("max_tokens", -1),
                             ("max_tokens", "a"), ("max_tokens", 1e300), ("temperature", -1), ("temperature", "hot"),
                             ("top_p", 0), ("top_p", 2), ("n", 0), ("n", 5), ("stop", ""), ("stop", [1]), ("stop", {}),
                             ("stream", 1), ("logprobs", -1), ("logprobs", True), ("echo", "yes"), ("seed", "x"),
                             ("logit_bias", {"1": 200}), ("presence_penalty", 9), ("best_of", 7), ("suffix", "x"),
                             ("max_tokens", 2**63)):
            self.is_error(self.complete(400, **{"prompt": "a", "max_tokens": 2, field: value}), "")
        self.is_error(self.complete(404, prompt="a", model="none"), "none", "model")
        self.complete(prompt="a", max_tokens=1, user="me", unknown=[1])  # other fields are ignored

    def test_clients_that_behave_badly(self):
        def status(answer):
            return int(answer.split(b" ")[1])

        self.assertEqual(status(self.server.raw(b"HELLO\r\n\r\n")), 400)
        self.assertEqual(status(self.server.raw(b"GET /health HTTP/1.1\r\nA: " + b"b" * 5000 + b"\r\n\r\n")), 431)
        self.assertEqual(status(self.server.raw(request_bytes("/v1/completions", b"x" * 100001))), 413)
        # 1 GiB is announced, and nothing of it is sent.
        self.assertEqual(status(self.server.raw(b"POST /tokenize HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n")), 413)
        self.assertEqual(status(self.server.raw(b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                                                + b"10000\r\n" + b"x" * 65536 + b"\r\n" + b"10000\r\n" + b"x" * 65536)), 413)
        # Trailers and lines between chunks have the limit of the header.
        chunked = b"POST /tokenize HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        for size, expected in ((3000, 200), (4100, 431), (70000, 431)):
            self.assertEqual(status(self.server.raw(chunked + b'10\r\n{"prompt": "ab"}\r\n0\r\nX: ' + b"y" * size + b"\r\n\r\n")),
                             expected)
            self.assertEqual(status(self.server.raw(chunked + b"10;x=" + b"y" * size + b'\r\n{"prompt": "ab"}\r\n0\r\n\r\n')),
                             expected)
        both = chunked.replace(b"Conn", b"X: " + b"y" * 2000 + b"\r\nConn") + b'10\r\n{"prompt": "ab"}\r\n0\r\n'
        self.assertEqual(status(self.server.raw(both + b"X: " + b"y" * 1900 + b"\r\n\r\n")), 200)
        self.assertEqual(status(self.server.raw(both + b"X: " + b"y" * 2100 + b"\r\n\r\n")), 431)
        self.assertEqual(status(self.server.raw(b"GET /hea")), 408)  # a header that never ends
        self.assertEqual(status(self.server.raw(b"POST /tokenize HTTP/1.1\r\nContent-Length: 50\r\n\r\n{")), 408)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as slow:  # slow-loris
            begin = time.monotonic()
            try:
                for byte in b"GET /health HTTP/1.1\r\nA: " + b"b" * 100:
                    slow.sendall(bytes([byte]))
                    time.sleep(0.05)
            except OSError:
                pass
            self.assertLess(time.monotonic() - begin, 4)
        # A client that has ended its sending side still gets the answer.
        answer = self.server.raw(request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 400, "ignore_eos": True}), half_close=True)
        self.assertIn(b"HTTP/1.1 200 ", answer)
        answer = self.server.raw(b"POST /tokenize HTTP/1.1\r\nContent-Length: 50\r\n\r\n{", half_close=True)
        self.assertEqual(status(answer), 400)
        # Two requests at once, and an old version of HTTP.
        two = b"GET /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
        self.assertEqual(self.server.raw(two).count(b"HTTP/1.1 200 "), 2)
        self.assertEqual(status(self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")), 200)
        old = request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True}).replace(b"/1.1", b"/1.0")
        answer = self.server.raw(old)
        self.assertNotIn(b"chunked", answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"))
        expects = request_bytes("/tokenize", {"prompt": "a"}, "Expect: 100-continue\r\nConnection: close\r\n")
        header, body = expects.split(b"\r\n\r\n")
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as connection:
            connection.sendall(header + b"\r\n\r\n")
            self.assertEqual(connection.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(body)
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200 "))
        self.assertTrue(self.server.raw(expects).startswith(b"HTTP/1.1 200 "))  # the body is there already

    def test_requests_of_clients_that_leave_are_cancelled(self):
        endless = {"prompt": "a", "max_tokens": 10**9, "n": 2, "ignore_eos": True}
        # Clients may have sent bytes of a next request: one, or more than the server reads ahead.
        for body, more in (({**endless, "stream": True}, b""), (endless, b""), ({**endless, "stream": True}, b"G"),
                           (endless, b"G"), (endless, b"x" * 100000)):
            before = self.server.metric("alibi_engine_cancelled_total")
            connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
            connection.sendall(request_bytes("/v1/completions", body) + more)
            self.server.wait_until(lambda: self.server.metric("alibi_running") == 2)
            if "stream" in body:
                self.assertIn(b"HTTP/1.1 200 ", connection.recv(1000))
            connection.close()
            self.server.wait_until(lambda: self.server.metric("alibi_running") == 0)
            self.assertEqual(self.server.metric("alibi_engine_cancelled_total"), before + 1)

    def test_many_clients_at_once(self):
        fields = {"prompt": "the quick brown fox", "max_tokens": 12, "seed": 5}
        expected = self.complete(**fields)["choices"]
        found, descriptors = [], self.server.metric("process_open_fds")
        threads = [threading.Thread(target=lambda: found.append(self.complete(**fields)["choices"])) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 24)
        self.server.wait_until(lambda: self.server.metric("process_open_fds") <= descriptors + 2)


class Limits(CliTest):
    def serve(self, *arguments, environment=None, reads_log=True):
        server = Server(self.model, *arguments, environment=environment, reads_log=reads_log)
        self.addCleanup(server.stop)
        return server

    def test_keys(self):
        key = self.folder / "key.txt"
        key.write_text("secret\n")
        for server in (self.serve("--api-key-file", key), self.serve(environment={"ALIBI_API_KEY": "secret"})):
            for headers, expected in (({}, 401), ({"Authorization": "Bearer secre"}, 401),
                                      ({"Authorization": "Bearer secretx"}, 401), ({"Authorization": "secret"}, 401),
                                      ({"Authorization": "Bearer secret"}, 200)):
                status, found, _ = server.request("GET", "/v1/models", headers=headers)
                self.assertEqual(status, expected, headers)
                self.assertEqual(found.get("WWW-Authenticate"), "Bearer" if expected == 401 else None)
            self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_pages_of_another_origin(self):
        asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
        for given, answered in (("https://example.org", "https://example.org"), ("*", "*"), (None, None)):
            server = self.serve(*(("--allow-origin", given) if given else ()), environment={"ALIBI_API_KEY": "secret"})
            status, headers, body = server.request("OPTIONS", "/v1/completions", headers=asked)  # without the key
            self.assertEqual((status, headers.get("Access-Control-Allow-Origin")), (204 if given else 405, answered))
            self.assertEqual(headers.get("Access-Control-Allow-Methods"), "POST" if given else None)
            if given:
                self.assertIn("Authorization", headers["Access-Control-Allow-Headers"])
            self.assertEqual(server.request("OPTIONS", "/none", headers=asked)[0], 404)
            # Plain answers, errors and streams: the connection continues after each.
            for key, body, expected in (("secret", {"prompt": "a", "max_tokens": 2}, 200), ("wrong", {}, 401),
                                        ("secret", {"prompt": "a", "max_tokens": 2, "stream": True}, 200)):
                status, headers, _ = server.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
                self.assertEqual((status, headers.get("Access-Control-Allow-Origin")), (expected, answered))
                self.assertEqual(headers.get("Vary"), "Origin" if answered and answered != "*" else None)
        for wrong in ("example.org", "https://example.org/", "https://a.org,https://b.org", "https://", "a b://c", "**"):
            self.fails(2, "[--allow-origin]", "serve", self.model, "--port", "0", "--allow-origin", wrong)

    def test_keys_that_no_client_can_send_are_refused(self):
        key = self.folder / "key.txt"
        for found, mentions in ((b"", "empty"), (b"\n", "empty"), (b"a b\n", "0x20"), (b"a\nb\n", "0x0a"),
                                (b"\xef\xbb\xbfsecret\n", "0xef"), (b"secret \n", "0x20"), (b"s\0", "0x00")):
            key.write_bytes(found)
            self.fails(2, mentions, "serve", self.model, "--port", "0", "--api-key-file", key)
        result = run("serve", self.model, "--port", "0", environment={"ALIBI_API_KEY": ""})
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("ALIBI_API_KEY is empty", result.stderr)
        key.write_bytes(b"secret\r\n")
        server = self.serve("--api-key-file", key, environment={"ALIBI_API_KEY": ""})  # the file is used
        self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"})[0], 200)

    def test_limits_that_mean_never(self):
        huge = ["1e10", "1e300"]
        for seconds in huge:
            server = self.serve("--request-timeout", seconds, "--body-timeout", seconds, "--idle-timeout", seconds,
                                "--header-timeout", seconds, "--write-timeout", seconds, "--grace", seconds,
                                "--max-header", "100KiB", "--max-connections", "9000000000000000000",
                                "--queue", "9223372036854775807")
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                data = request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 200, "ignore_eos": True})
                for part in (data[:3], data[3:-3], data[-3:]):
                    time.sleep(0.1)
                    connection.sendall(part)
                self.assertIn(b"200 OK", connection.recv(100))
            # A field may be larger than 64 KiB if the limit is.
            self.assertIn(b"200 OK", server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\nX: " + b"y" * 90000 + b"\r\n\r\n"))
            self.assertIn(b"431", server.raw(b"GET /health HTTP/1.1\r\nX: " + b"y" * 110000 + b"\r\n\r\n")[:20])
            self.assertEqual(server.stop(), 0)

    def test_a_log_that_nobody_reads_stops_nothing(self):
        server = self.serve(reads_log=False)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        self.addCleanup(connection.close)
        for _ in range(3000):  # a pipe holds 64 KiB
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=60), 0)
        self.assertLess(time.monotonic() - begin, 10)

    def test_queue_time_and_connections(self):
        server = self.serve("--slots", "1", "--queue", "1", "--request-timeout", "3", "--max-connections", "8",
                            "--max-length", "1000000")
        answers = []
        endless = {"prompt": "a", "max_tokens": 900000, "ignore_eos": True}
        threads = [threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/completions", endless)))
                   for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        statuses = sorted(status for status, _, _ in answers)
        self.assertEqual(set(statuses), {429, 503})
        for status, headers, body in answers:
            self.assertEqual(headers["Retry-After"], "1")
            self.assertEqual(json.loads(body)["error"]["code"], "queue_full" if status == 429 else "timeout")
        status, _, body = server.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1000001})
        self.assertEqual((status, b"at most 1000000" in body), (400, True))
        # Streams that run out of time end with an error.
        status, _, body = server.request("POST", "/v1/completions", {**endless, "stream": True})
        self.assertEqual(status, 200)
        self.assertIn(b'"code":"timeout"', body.split(b"data: ")[-1])
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
        server.wait_until(lambda: True)
        time.sleep(0.2)
        answer = server.raw(b"GET /health HTTP/1.1\r\n\r\n")
        self.assertIn(b"503", answer.split(b"\r\n")[0])
        for connection in idle:
            connection.close()
        server.wait_until(lambda: server.request("GET", "/health")[0] == 200)

    def test_it_stops_gracefully(self):
        server = self.serve("--grace", "55")  # a busy machine needs long
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(server.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1000, "ignore_eos": True})))
        idle = http.client.HTTPConnection("127.0.0.1", server.port)
        idle.request("GET", "/health")
        self.assertEqual(idle.getresponse().read(), b'{"status":"ok"}')
        thread.start()
        server.wait_until(lambda: server.metric("alibi_running") == 1)
        self.assertEqual(server.stop(), 0)
        thread.join()
        self.assertEqual(answers[0][0], 200)
        self.assertEqual(json.loads(answers[0][2])["usage"]["completion_tokens"], 1000)
        lines = [json.loads(line) for line in server.errors]
        self.assertTrue(all({"time"} <= set(line) for line in lines))
        (of_request,) = [line for line in lines if line.get("path") == "/v1/completions"]
        self.assertEqual((of_request["status"], of_request["completion_tokens"]), (200, 1000))
        self.assertTrue([line for line in lines if line.get("event") == "stopping"])

    def test_requests_that_do_not_end_in_time_are_cancelled_at_the_stop(self):
        server = self.serve("--grace", "0.5")
        thread = threading.Thread(target=lambda: self.assertRaises(
            (OSError, http.client.HTTPException), server.request, "POST", "/v1/completions",
            {"prompt": "a", "max_tokens": 10**9, "ignore_eos": True}))
        thread.start()
        server.wait_until(lambda: server.metric("alibi_running") == 1)
        begin = time.monotonic()
        self.assertEqual(server.stop(signal.SIGINT), 0)
        self.assertLess(time.monotonic() - begin, 15)
        thread.join()

    def test_evicted_keys_are_reported(self):
        server = self.serve("--memory", "2MiB", "--slots", "2")
        answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 700, "ignore_eos": True})
        evicted = answer["alibi"][0]["samples"][0]["evicted"]
        self.assertGreater(evicted["keys"], 0)
        self.assertGreater(server.metric("alibi_evicted_keys_total"), 0)
        self.assertLessEqual(answer["alibi"][0]["samples"][0]["cache_bytes"], 2 << 20)

    def test_it_refuses_wrong_options(self):
        self.fails(2, "names", "serve", self.model, "--name", "a", "--name", "b")
        self.fails(2, "named", "serve", self.model, self.model)
        self.fails(2, "name of a model is empty", "serve", self.model, "--name", "")
        self.fails(2, "4294967295 bytes", "serve", self.model, "--max-header", "4GiB")
        self.fails(2, "step_tokens", "serve", self.model, "--step-tokens", "10")
        self.fails(2, "chatml", "serve", self.model, "--chat-template", "x")
        self.fails(2, "--port", "serve", self.model, "--port", "70000")
        self.fails(1, "no address", "serve", self.model, "--host", "256.1.1.1")
        with socket.create_server(("127.0.0.1", 0)) as used:
            self.fails(1, "cannot listen", "serve", self.model, "--port", used.getsockname()[1])


if __name__ == "__main__":
    unittest.main()
