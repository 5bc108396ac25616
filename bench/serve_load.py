#!/usr/bin/env python3
"""Load for a running `alibi serve`: throughput, time to the first token, and what the server holds over time.

    bench/serve_load.py URL [--clients 1,8,64] [--seconds 60] [--leave 0.05] [--json FILE]

For each number of clients, that number of threads send completions of mixed sizes as streams, one after the other, for
the given time; a part of them disconnects midway. Meanwhile the server's resident memory and file descriptors are read
from /metrics. URL must be on 127.0.0.1. Exits with 1 if a request failed, if requests are still running 30 seconds
after the last client has left, or if descriptors or memory grew. Only Python's standard library is needed. The server
may be another one with the same API (--other: without /metrics), to compare.
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

WORDS = "the quick brown fox jumps over the lazy dog and runs away from number".split()
PROMPTS = ((8, 0.5), (64, 0.3), (400, 0.15), (1500, 0.05))  # words, and the part of the requests
TOKENS = ((8, 0.3), (32, 0.4), (128, 0.3))


def drawn(random_numbers, choices):
    return random_numbers.choices([size for size, _ in choices], [part for _, part in choices])[0]


class Client(threading.Thread):
    def __init__(self, host, port, number, end, leave):
        super().__init__()
        self.host, self.port, self.end, self.leave = host, port, end, leave
        self.random = random.Random(number)
        self.first, self.tokens, self.requests, self.left, self.prompt_tokens, self.errors = [], 0, 0, 0, 0, []

    def run(self):
        while time.monotonic() < self.end:
            try:
                self.complete()
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.errors.append(repr(error))
                if len(self.errors) > 10:
                    return

    def complete(self):
        tokens = drawn(self.random, TOKENS)
        prompt = " ".join(self.random.choices(WORDS, k=drawn(self.random, PROMPTS)))
        leaves_after = self.random.randrange(1, tokens) if self.random.random() < self.leave else None
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "seed": self.random.randrange(1 << 30), "stream": True,
                           "ignore_eos": True, "stream_options": {"include_usage": True}})
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        try:
            begin = time.monotonic()
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise ValueError(f"status {answer.status}: {answer.read()[:200]}")
            events, complete = 0, False
            for line in answer:
                if not line.startswith(b"data: "):
                    continue
                data = line[len(b"data: "):].strip()
                if data == b"[DONE]":
                    complete = True
                    continue
                event = json.loads(data)
                if event.get("usage"):
                    self.tokens += event["usage"]["completion_tokens"]
                    self.prompt_tokens += event["usage"]["prompt_tokens"]
                if "error" in event:
                    raise ValueError(event["error"])
                events += 1
                if events == 1:
                    self.first.append(time.monotonic() - begin)
                if leaves_after is not None and events >= leaves_after:
                    self.left += 1
                    return
            if not complete:
                raise ValueError("the stream ended without [DONE]")
            self.requests += 1
        finally:
            connection.close()


def metrics(host, port):
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        found = {}
        for line in connection.getresponse().read().decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                found[name] = found.get(name, 0) + float(value)
        return found
    finally:
        connection.close()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def measure(host, port, clients, seconds, leave, other):
    end = time.monotonic() + seconds
    threads = [Client(host, port, number, end, leave) for number in range(clients)]
    before = {} if other else metrics(host, port)
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    held = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(5, max(0.5, seconds / 20)))
        if not other:
            now = metrics(host, port)
            held.append({"seconds": round(time.monotonic() - begin, 1),
                         "resident_bytes": now["process_resident_memory_bytes"],
                         "cache_bytes": now["alibi_cache_bytes"] + now["alibi_prefix_bytes"], "descriptors": now["process_open_fds"],
                         "running": now["alibi_running"], "waiting": now["alibi_waiting"]})
    took = time.monotonic() - begin
    first = [value for thread in threads for value in thread.first]
    result = {"clients": clients, "seconds": took, "requests": sum(thread.requests for thread in threads),
              "left": sum(thread.left for thread in threads),
              "generated_tokens_per_second": sum(thread.tokens for thread in threads) / took,
              "prompt_tokens_per_second": sum(thread.prompt_tokens for thread in threads) / took,
              "first_token_p50": percentile(first, 0.5), "first_token_p99": percentile(first, 0.99),
              "errors": [error for thread in threads for error in thread.errors][:20], "held": held}
    if other:
        return result
    limit = time.monotonic() + 30
    while (after := metrics(host, port))["alibi_running"] + after["alibi_waiting"] > 0 and time.monotonic() < limit:
        time.sleep(0.2)
    steps = after["alibi_engine_steps_total"] - before["alibi_engine_steps_total"]
    spent = after["alibi_engine_seconds_total"] - before["alibi_engine_seconds_total"]
    result.update(running_at_the_end=after["alibi_running"] + after["alibi_waiting"], steps=steps,
                  steps_per_second=steps / max(spent, 1e-9), engine_share=spent / took,
                  processor_seconds=after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", default="1,8,64", help="numbers of clients, one run each")
    parser.add_argument("--seconds", type=float, default=60, help="of each run, at most 1200")
    parser.add_argument("--leave", type=float, default=0.05, help="part of the requests that disconnect midway")
    parser.add_argument("--other", action="store_true", help="the server is not alibi's, so it has no such /metrics")
    parser.add_argument("--json", help="file for the results")
    options = parser.parse_args()
    address = urllib.parse.urlparse(options.url)
    if address.hostname != "127.0.0.1" or not address.port:
        parser.error("the URL must be http://127.0.0.1:PORT")
    if not 0 < options.seconds <= 1200 or any(int(count) > 256 for count in options.clients.split(",")):
        parser.error("at most 1200 seconds and 256 clients")
    weights = 0
    if not options.other:
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        connection.request("GET", "/v1/models")
        weights = json.loads(connection.getresponse().read())["data"][0]["weight_bytes"]
        connection.close()
        print(f"weights {weights / 1e9:.3f} GB, read once per step")
    results, good = [], True
    for clients in map(int, options.clients.split(",")):
        result = measure(address.hostname, address.port, clients, options.seconds, options.leave, options.other)
        results.append(result)
        print(f"{clients:3} clients: {result['generated_tokens_per_second']:8.1f} generated and "
              f"{result['prompt_tokens_per_second']:8.1f} prompt tokens/s, first token "
              f"{1000 * result['first_token_p50']:.0f} ms (50 %) {1000 * result['first_token_p99']:.0f} ms (99 %), "
              f"{result['requests']} requests, {result['left']} left, {len(result['errors'])} errors")
        if result["errors"]:
            print("    " + "\n    ".join(result["errors"][:3]))
            good = False
        if options.other:
            continue
        print(f"    {result['steps_per_second']:.1f} steps/s of the engine's time = "
              f"{result['steps_per_second'] * weights / 1e9:.2f} GB/s of weights; "
              f"{result['processor_seconds'] / result['seconds']:.2f} cores busy")
        held = result["held"][len(result["held"]) // 4:]  # after the beginning
        if len(held) >= 4:
            early, late = ({name: max(one[name] for one in part) for name in ("resident_bytes", "cache_bytes", "descriptors")}
                           for part in (held[:len(held) // 2], held[len(held) // 2:]))
            for name in early:
                print(f"    {name}: at most {early[name]:.0f} in the first half, {late[name]:.0f} in the second")
            # Larger keys and values need more memory; it is not a leak.
            grown = late["resident_bytes"] - early["resident_bytes"] - max(0, late["cache_bytes"] - early["cache_bytes"])
            if grown > 32e6 + 0.05 * early["resident_bytes"] or late["descriptors"] > early["descriptors"] + 4:
                good = False
                print("    the server's memory or its number of descriptors grew")
        if result["running_at_the_end"]:
            good = False
            print(f"    {result['running_at_the_end']:.0f} requests are still there after 30 seconds")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
