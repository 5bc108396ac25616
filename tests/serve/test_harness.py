"""lm-evaluation-harness: the model class without a server, a server through local-completions, `alibi eval`, and
definitions written here in NumPy."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import CHOICES, COMMAND, LENGTH, PROMPTS, TEXTS, run

os.environ["HF_HUB_OFFLINE"] = "1"
lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed")
alibi = pytest.importorskip("alibi_attention", reason="the Python package is not installed")
from alibi_attention.lm_eval import AlibiLM  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

END = 256  # end of text of models of bytes


def evaluate(model, tasks, names, **options):
    found = lm_eval.simple_evaluate(
        model, tasks=names, task_manager=TaskManager(include_path=str(tasks), include_defaults=False), bootstrap_iters=0, **options
    )
    return found["results"], {name: [sample["resps"] for sample in found["samples"][name]] for name in names}


def numbers(responses):
    """The (log-likelihood, is greedy) pairs or log-likelihoods in what the harness keeps of a task."""
    pairs = [part for response in responses for part in np.array(response, dtype=object).reshape(len(response), -1)]
    return np.array([[float(x) for x in pair] if not isinstance(pair[-1], str) else [float(pair[0]), pair[-1] == "True"]
                     for pair in pairs])  # fmt: skip


@pytest.fixture(scope="module")
def ours(model):
    return AlibiLM(model, max_length=LENGTH)


@pytest.fixture(scope="module")
def found(ours, tasks):
    return evaluate(ours, tasks, ["alibi_choice", "alibi_rolling", "alibi_generate", "alibi_sample"])


def log_probabilities(model, ids):
    logits = model.logits(np.array(ids, np.int32)).astype(np.float64)
    return logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)


def loglikelihood(model, context, continuation):
    """Of a continuation after a context, both token ids: one target at a time."""
    total, greedy = 0.0, True
    for i, target in enumerate(continuation):
        row = log_probabilities(model, [*context, *continuation[:i]][-LENGTH:])[-1]
        total += row[target]
        greedy = greedy and row[target] == row.max()
    return total, greedy


def rolling(model, text):
    """As LM.loglikelihood_rolling documents it: full windows, the last one too; each token is predicted once."""
    ids, total = list(text.encode()), 0.0
    for begin in range(0, len(ids), LENGTH):
        targets = ids[begin : begin + LENGTH]
        inputs = [END, *ids][max(0, begin + len(targets) - LENGTH) : begin + len(targets)]
        rows = log_probabilities(model, inputs)[-len(targets) :]
        total += rows[np.arange(len(targets)), targets].sum()
    return total


def test_the_class_gives_what_the_definitions_give(ours, found):
    results, responses = found
    core = alibi.LanguageModel.load(ours._name)
    expected = []
    for document in CHOICES:
        for choice in document["choices"]:
            # The harness moves white space at the end of a context into the continuation.
            context = document["question"].rstrip()
            continuation = document["question"][len(context) :] + choice
            expected.append(loglikelihood(core, context.encode(), continuation.encode()))
    got = numbers(responses["alibi_choice"])
    assert np.abs(got[:, 0] - [total for total, _ in expected]).max() <= 1e-4
    assert got[:, 1].astype(bool).tolist() == [greedy for _, greedy in expected] and 0 < got[:, 1].sum() < len(got)
    totals = np.array([rolling(core, text) for text in TEXTS])
    assert np.allclose(numbers(responses["alibi_rolling"])[:, 0], totals, rtol=1e-5)
    words = sum(len(re.split(r"\s+", text)) for text in TEXTS)
    size = sum(len(text.encode()) for text in TEXTS)
    of_task = results["alibi_rolling"]
    assert of_task["word_perplexity,none"] == pytest.approx(np.exp(-totals.sum() / words), rel=1e-5)
    assert of_task["bits_per_byte,none"] == pytest.approx(-totals.sum() / size / np.log(2), rel=1e-5)
    for document, (response,) in zip(PROMPTS, responses["alibi_generate"], strict=True):
        ids = list(document["question"].encode())
        made = core.generate_ids(ids, max_tokens=24, temperature=0).tolist()
        text = bytes(made[: made.index(END)] if END in made else made).decode(errors="replace")
        assert response[0] == re.split("\n| the lazy", text)[0]
    assert any(response[0] for (response,) in responses["alibi_generate"])


def test_rolling_perplexity_is_that_of_the_command(found, tasks, model, folder):
    run("eval", model, tasks / "alibi_rolling.jsonl", "--scoring", "harness", "--lengths", LENGTH, "--json", folder / "eval.json")
    (evaluated,) = json.loads((folder / "eval.json").read_text())["eval"]
    of_task = found[0]["alibi_rolling"]
    for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        assert evaluated[metric] == pytest.approx(of_task[f"{metric},none"], rel=1e-6), metric
    assert evaluated["documents"] == len(TEXTS) and evaluated["tokens"] == sum(len(text.encode()) for text in TEXTS)


def test_llama_perplexity_is_its_definition(model, tasks, folder):
    text = "".join(TEXTS) + "\n"
    (folder / "all.txt").write_text(text)
    core = alibi.LanguageModel.load(model)
    for length in (7, 64, 100):
        run("eval", model, folder / "all.txt", "--scoring", "llama", "--lengths", length, "--json", folder / "eval.json")
        (evaluated,) = json.loads((folder / "eval.json").read_text())["eval"]
        ids = [END, *text[:-1].encode()]
        losses = []
        for begin in range(0, len(ids) - length + 1, length):
            chunk = [END, *ids[begin + 1 : begin + length]]
            rows = log_probabilities(core, chunk)
            losses += [-rows[at][chunk[at + 1]] for at in range(length // 2, length - 1)]
        losses = np.array(losses)
        assert evaluated["tokens"] == len(losses) and evaluated["chunks"] == len(ids) // length
        assert evaluated["perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-5)
        error = np.sqrt(losses.var() / (len(losses) - 1)) * np.exp(losses.mean())
        assert evaluated["perplexity_error"] == pytest.approx(error, rel=1e-4)


def test_an_empty_context_is_the_prefix(ours):
    """And a context that is longer than max_length loses its beginning."""
    core = alibi.LanguageModel.load(ours._name)
    long = "the quick brown fox " * 9
    requests = [("", "abc"), (long, " dog"), ("a ", "b"), ("x", "")]
    instances = [Instance("loglikelihood", {}, args, 0) for args in requests[:3]]
    (empty, cut, moved) = ours.loglikelihood(instances, disable_tqdm=True)
    assert empty[0] == pytest.approx(loglikelihood(core, [END], b"abc")[0], rel=1e-5)
    ids = (long.encode() + b" dog")[-(LENGTH + 1) :]
    rows = log_probabilities(core, list(ids[:-1]))
    assert cut[0] == pytest.approx(sum(rows[-5 + i][target] for i, target in enumerate(ids[-5:])), rel=1e-5)
    assert moved[0] == pytest.approx(loglikelihood(core, b"a", b" b")[0], rel=1e-5)
    assert ours.tok_encode("ab") == [97, 98] and AlibiLM(ours._name, add_bos_token=True).tok_encode("ab") == [END, 97, 98]
    with pytest.raises(alibi.UsageError, match="max_length"):
        ours._loglikelihood_tokens([(None, [1], [2] * (LENGTH + 1))], disable_tqdm=True)


def test_a_server_gives_what_the_class_gives(found, server, name, tasks):
    results, responses = found
    arguments = {
        "base_url": f"{server.url}/v1/completions", "model": name, "max_length": LENGTH + 2, "num_concurrent": 1, "max_retries": 1
    }  # fmt: skip
    names = ["alibi_choice", "alibi_rolling", "alibi_generate", "alibi_sample"]
    got_results, got = evaluate("local-completions", tasks, names, model_args=arguments, batch_size=3)
    for task in ("alibi_choice", "alibi_rolling"):
        a, b = numbers(responses[task]), numbers(got[task])
        assert np.allclose(a[:, 0], b[:, 0], rtol=1e-5, atol=1e-4) and np.array_equal(a[:, 1:], b[:, 1:]), task
    assert got_results["alibi_choice"]["acc,none"] == results["alibi_choice"]["acc,none"]
    for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        assert got_results["alibi_rolling"][f"{metric},none"] == pytest.approx(results["alibi_rolling"][f"{metric},none"], rel=1e-6)
    assert got["alibi_generate"] == responses["alibi_generate"]
    assert got["alibi_sample"] == responses["alibi_sample"]
    # The same with many requests at a time.
    _, together = evaluate("local-completions", tasks, names, model_args={**arguments, "num_concurrent": 8})
    assert np.array_equal(numbers(together["alibi_choice"]), numbers(got["alibi_choice"]))
    assert together["alibi_generate"] == got["alibi_generate"]


def test_the_model_is_one_of_the_harness(model, tasks, folder):
    """python -m alibi_attention.lm_eval is the harness's command, which then knows the model "alibi"."""
    result = subprocess.run(
        [sys.executable, "-m", "alibi_attention.lm_eval", "run", "--model", "alibi", "--model_args", f"pretrained={model},max_length={LENGTH}",
         "--tasks", "alibi_choice", "--include_path", str(tasks), "--output_path", str(folder / "out")],
        capture_output=True, text=True, timeout=300, cwd=folder, check=False,
    )  # fmt: skip
    assert result.returncode == 0 and "acc_norm" in result.stdout, result.stderr[-2000:]


def test_transformers_gives_the_same(found, model, tasks):
    """The harness's own model class, which computes with PyTorch."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(pretrained=str(model), max_length=LENGTH, device="cpu", dtype="float32", batch_size=4)
    _, got = evaluate(theirs, tasks, ["alibi_choice", "alibi_rolling", "alibi_generate"])
    for task in ("alibi_choice", "alibi_rolling"):
        a, b = numbers(found[1][task]), numbers(got[task])
        assert np.allclose(a[:, 0], b[:, 0], rtol=1e-5, atol=1e-4) and np.array_equal(a[:, 1:], b[:, 1:]), task
    assert got["alibi_generate"] == found[1]["alibi_generate"]


def test_what_cannot_be_scored_is_refused(model, tasks):
    for arguments, message in (
        (["--stride", "8"], "--stride"),
        (["--one-pass"], "--one-pass"),
        (["--lengths", "0"], "--lengths"),
    ):
        result = subprocess.run([COMMAND, "eval", model, tasks / "alibi_rolling.jsonl", "--scoring", "harness", *arguments],
                                capture_output=True, text=True, check=False)  # fmt: skip
        assert result.returncode == 2 and message in result.stderr, result.stderr
