#!/usr/bin/env python3
"""Speed of `alibi serve` and of llama.cpp's server on the same model, alternately.

    bench/peers/serve.py --alibi build/alibi MODEL [--llama-server PATH] [--types f16,q8_0] [--quantize-activations]

MODEL is a folder that `alibi convert --to gguf` can write, such as a trained preset. Both servers read the same GGUF
file, one server at a time. llama.cpp is the program llama-server if its path is given, else the server of the package
llama-cpp-python[server] of this Python, which answers one request at a time. Traffic goes to 127.0.0.1 only.

Generated tokens/s: 1 and 8 clients, 128 tokens each after a short prompt. Prompt tokens/s: prompts of about 512 and
8192 tokens, each of which is new. The best of --rounds rounds counts, which alternate between the servers.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

WORDS = "the quick brown fox jumps over the lazy dog and runs away from number one two three".split()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {data[:300]}")
        return json.loads(data)
    finally:
        connection.close()


def text_of(words, seed):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


class Server:
    def __init__(self, command, port):
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                post(port, {"prompt": "a", "max_tokens": 1})
                return
            except (OSError, RuntimeError, http.client.HTTPException):
                if self.process.poll() is not None:
                    raise SystemExit(f"{command[0]} ended with {self.process.returncode}") from None
                time.sleep(0.1)
        raise SystemExit(f"{command[0]} does not answer")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def generated(port, clients, seed, tokens=128):
    counts = []

    def one(number):
        answer = post(port, {"prompt": text_of(8, seed + number), "max_tokens": tokens, "ignore_eos": True,
                             "temperature": 0.8, "seed": number})
        counts.append(answer["usage"]["completion_tokens"])

    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(counts) < clients:
        raise RuntimeError("a request failed")
    return sum(counts) / (time.monotonic() - begin)


def read(port, words, seed):
    begin = time.monotonic()
    answer = post(port, {"prompt": text_of(words, seed), "max_tokens": 1})
    return answer["usage"]["prompt_tokens"] / (time.monotonic() - begin)


def words_for(port, tokens):
    """The number of words that has about this number of tokens."""
    used = post(port, {"prompt": text_of(64, 1), "max_tokens": 1})["usage"]["prompt_tokens"]
    return max(1, round(64 * tokens / used))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--alibi", default="build/alibi")
    parser.add_argument("--llama-server", help="the program of llama.cpp")
    parser.add_argument("--types", default="f16,q8_0")
    parser.add_argument("--precision", default="f32", help="of alibi: data type of activations and products")
    parser.add_argument("--quantize-activations", action="store_true", help="of alibi, as llama.cpp does")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.types.split(","):
            file = pathlib.Path(folder) / f"{kind}.gguf"
            subprocess.run([options.alibi, "convert", options.model, file, "--to", "gguf", "--type", kind], check=True,
                           stdout=subprocess.DEVNULL)
            best = {}
            for turn in range(options.rounds):
                for name in ("alibi", "llama.cpp"):
                    port = free_port()
                    threads = ("--threads", str(options.threads))
                    if name == "alibi":
                        command = [options.alibi, "serve", file, "--port", str(port), "--slots", "8", "--quiet",
                                   "--precision", options.precision, *threads,
                                   *["--quantize-activations"] * options.quantize_activations]
                    elif options.llama_server:
                        command = [options.llama_server, "-m", file, "--port", str(port), "-c", str(8 * 9216), "-np", "8",
                                   # llama-server cuts the context to the trained length that the file has
                                   "--override-kv", "mpt.context_length=int:9216", *threads]
                    else:
                        command = [sys.executable, "-m", "llama_cpp.server", "--model", file, "--port", str(port),
                                   "--n_ctx", "9216", "--n_threads", str(options.threads)]
                    server = Server([str(word) for word in command], port)
                    try:
                        found = {f"generated, {clients} client{'s' * (clients > 1)}":
                                 generated(port, clients, 1000 * turn) for clients in (1, 8)}
                        for tokens in (512, 8192):
                            found[f"prompt of {tokens}"] = read(port, words_for(port, tokens), 77 + turn)
                    finally:
                        server.stop()
                    for what, rate in found.items():
                        best[name, what] = max(rate, best.get((name, what), 0))
            for (name, what), rate in sorted(best.items(), key=lambda one: one[0][1]):
                print(f"{kind:5} {what:22} {name:10} {rate:8.1f} tokens/s", flush=True)
                results.append({"type": kind, "what": what, "server": name, "tokens_per_second": rate})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
