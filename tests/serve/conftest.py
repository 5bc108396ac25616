"""What the tests of `alibi serve` share: a small trained model, a server of it, and tasks for lm-evaluation-harness.

ALIBI_COMMAND is the command. Called by scripts/test/serve.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest

COMMAND = os.environ.get("ALIBI_COMMAND", "build/alibi")
SENTENCE = "the quick brown fox jumps over the lazy dog and runs away from number {}\n"
LENGTH = 64  # that windows of rolling perplexity have here
KEY = "a-key"

CHOICES = [
    {"question": SENTENCE[:end], "choices": [SENTENCE[end : end + 5], " lazy", "é", "x" * (1 + i)], "answer": i % 3}
    for i, end in enumerate((9, 15, 20, 25, 30, 40))
]
# Texts of every relation to LENGTH, with white space of several kinds and characters of several bytes.
TEXTS = ["a", "two  words", "".join(SENTENCE.format(i) for i in range(9)), "é\u3000ü\n\n x\u2028y ", "z" * LENGTH,
         "y" * (LENGTH + 1), "x" * (2 * LENGTH), "the quick brown fox " * 17]  # fmt: skip
PROMPTS = [{"question": SENTENCE[:end], "answer": SENTENCE[end : end + 8]} for end in (9, 15, 25, 31, 47)]

TASKS = {
    "alibi_choice": (CHOICES, """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: choices
target_delimiter: ""
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
"""),
    "alibi_rolling": ([{"text": text} for text in TEXTS], """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
"""),
    "alibi_generate": (PROMPTS, """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n", " the lazy"], max_gen_toks: 24, do_sample: false}
metric_list: [{metric: exact_match}]
"""),
    "alibi_sample": (PROMPTS, """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 12, do_sample: true, temperature: 0.9, top_p: 0.9}
metric_list: [{metric: exact_match}]
"""),
}  # fmt: skip


def run(*arguments, **options):
    result = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="session")
def model(folder):
    """A model of bytes that has learned the sentence."""
    text, valid = folder / "text.txt", folder / "valid.txt"
    text.write_text("".join(SENTENCE.format(i) for i in range(1500)))
    valid.write_text("".join(SENTENCE.format(i) for i in range(2000, 2060)))
    run("train", text, "--valid", valid, "-o", folder / "small", "--layers", 2, "--d-model", 64, "--heads", 4,
        "--train-length", LENGTH, "--batch-tokens", "2k", "--train-tokens", "200k")  # fmt: skip
    return folder / "small"


@pytest.fixture(scope="session")
def tasks(folder):
    """The folder with the tasks; their data files are beside them."""
    where = folder / "tasks"
    where.mkdir()
    for name, (documents, rest) in TASKS.items():
        data = where / f"{name}.jsonl"
        data.write_text("".join(json.dumps(document) + "\n" for document in documents))
        (where / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {json.dumps(str(data))}}}}}\ntest_split: test{rest}"
        )
    return where


class Server:
    """A server on a free port. Its output is kept in `lines`."""

    def __init__(self, *arguments, key=None):
        environment = {**os.environ, **({"ALIBI_API_KEY": key} if key else {})}
        self.process = subprocess.Popen([COMMAND, "serve", *map(str, arguments), "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=environment)  # fmt: skip
        self.lines = []
        self.url = None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"https?://[0-9.]+:\d+", line):
                self.url = found[0]
                break
        assert self.url, f"the server did not start: {''.join(self.lines)}"
        # The pipe must not fill up.
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def serving(*arguments, key=None):
    server = Server(*arguments, key=key)
    try:
        yield server
    finally:
        assert server.stop() == 0, "".join(server.lines)


@pytest.fixture(scope="session")
def server(model):
    yield from serving(model)


@pytest.fixture(scope="session")
def name(model):
    return pathlib.Path(model).name


@pytest.fixture(scope="module")
def client(server):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
