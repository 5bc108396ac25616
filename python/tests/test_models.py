"""Language models, training and comparing: small ones, on text that is made here."""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import alibi_attention as alibi

if not alibi._core.has_models:
    pytest.skip("this build has the operator alone", allow_module_level=True)

TEXT = "".join(f"line {i} of a text that counts to {i * i % 97}, and continues\n" for i in range(600))
SMALL = {"layers": 1, "d_model": 32, "heads": 2, "train_length": 32, "batch_tokens": 1024, "seed": 3}


@pytest.fixture(scope="module")
def trained():
    return alibi.train(TEXT, train_tokens=8192, eval_steps=4, **SMALL)


def test_training_is_told_and_repeats(trained):
    seen = []
    again = alibi.train(TEXT, train_tokens=8192, eval_steps=4, on_progress=seen.append, **SMALL)
    assert np.array_equal(again.loss, trained.loss) and again.evaluations == trained.evaluations
    assert trained.steps == 8 and trained.loss[-1] < trained.loss[0] < 7 and trained.end == "all_tokens"
    assert [progress.step for progress in seen] == list(range(1, 9)) and seen[-1].fraction == 1
    assert seen[3].valid_loss == trained.evaluations[0][1] and seen[0].valid_loss is None
    assert str(seen[0]).startswith("train   12 %  loss ")


def test_a_folder_is_loaded_with_the_same_numbers(trained, tmp_path):
    trained.model.save(tmp_path / "model")
    model = alibi.LanguageModel.load(tmp_path / "model")
    ids = model.encode("line 12 of a text")
    assert np.array_equal(model.hidden(ids), trained.model.hidden(ids)) and model.hidden(ids).shape == (len(ids), 32)
    assert model.config == trained.model.config and model.config["position"] == "alibi"
    assert model.slopes == [[2.0**-4, 2.0**-8]] and "alibi, layers=1, d_model=32" in repr(model)
    assert model.decode(ids) == "line 12 of a text" and ids.dtype == np.int32
    q8_0 = alibi.LanguageModel.load(tmp_path / "model", weights="q8_0")
    integers = alibi.LanguageModel.load(tmp_path / "model", weights="q8_0", quantize_activations=True)
    changed = np.abs(integers.hidden(ids) - q8_0.hidden(ids)).max()
    assert 0 < changed < 0.1 * np.abs(q8_0.hidden(ids)).max()
    with pytest.raises(alibi.Error, match="no such folder"):
        alibi.LanguageModel.load(tmp_path / "nothing")


def test_names_of_the_hub_mean_the_local_cache(trained, tmp_path, monkeypatch):
    repository, commit = tmp_path / "hub" / "models--org--name", "a" * 40
    trained.model.save(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "v1").write_text(commit)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    ids = trained.model.encode("line 12")
    assert np.array_equal(alibi.LanguageModel.load("hf:org/name@v1").hidden(ids), trained.model.hidden(ids))
    assert alibi.Tokenizer.load(f"hf:org/name@{commit}").vocab_size == 257
    tuned = alibi.train(TEXT, from_model="hf:org/name@v1", train_tokens=1024, batch_tokens=512, train_length=32)
    assert tuned.model.config["d_model"] == 32
    with pytest.raises(alibi.Error, match="hf download org/name --exclude"):
        alibi.LanguageModel.load("org/name")


def test_loglikelihoods_are_those_of_the_logits(trained):
    model = trained.model
    texts = [model.encode("line 12 of a text"), model.encode("li"), np.arange(90, 130)]
    targets = [4, 1, 39]
    sums, greedy = model.loglikelihoods(texts, targets, batch_tokens=30)
    for ids, count, total, largest in zip(texts, targets, sums, greedy):
        rows = model.logits(ids[:-1]).astype(np.float64)[-count:]
        of_targets = rows[np.arange(count), ids[-count:]]
        assert abs(total - (of_targets - np.log(np.exp(rows).sum(-1))).sum()) <= 1e-4
        assert largest == (of_targets == rows.max(-1)).all()
    assert len(model.loglikelihoods([], [])[0]) == 0
    with pytest.raises(alibi.UsageError, match="2 targets"):
        model.loglikelihoods([[1, 2]], [1, 1])
    with pytest.raises(alibi.Error, match="expected 1 to 1"):
        model.loglikelihoods([[1, 2]], [2])


def test_the_harness_is_named_if_it_is_absent():
    if importlib.util.find_spec("lm_eval"):
        pytest.skip("lm_eval is installed; tests/serve uses it")
    with pytest.raises(ModuleNotFoundError, match="pip install lm_eval"):
        importlib.import_module("alibi_attention.lm_eval")


def test_scores_are_those_of_the_logits(trained):
    model = trained.model
    scores = model.score("line 7 of", context_length=32)
    ids = np.concatenate([[256], scores.ids])
    logits = model.logits(ids[:-1]).astype(np.float64)
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(logits)), scores.ids]
    assert np.abs(scores.nll - expected).max() <= 1e-5
    assert np.isclose(scores.perplexity, np.exp(expected.mean()))
    assert scores.pieces == tuple("line 7 of") and scores._repr_html_().count("<span") == 9
    batch = np.stack([ids[:-1], ids[:-1][::-1]])
    assert np.abs(model.logits(batch)[0] - model.logits(ids[:-1])).max() <= 1e-5


def test_evaluation_of_text_files_and_tokens(trained, tmp_path):
    model = trained.model
    (tmp_path / "a.txt").write_text(TEXT[:3000], encoding="utf-8")
    found = model.evaluate(TEXT[:3000], length=64)
    of_file = model.evaluate(tmp_path / "a.txt", length=64)
    ids = np.append(model.encode(TEXT[:3000]), 256)
    of_tokens = model.evaluate(ids, length=64)
    assert found.nll == of_file.nll == of_tokens.nll and found.tokens == 3001 and np.isnan(of_tokens.bits_per_byte)
    assert np.isclose(found.bits_per_byte, found.nll / np.log(2) * 3001 / 3000)
    mean = np.nansum(found.position_nll * found.position_tokens) / found.tokens
    assert found.position_nll.shape == (64,) and np.isclose(mean, found.nll)
    assert model.evaluate(TEXT[:3000], length=64, stride=1).nll < found.nll + 0.1
    fractions = []
    model.evaluate(ids, length=8, on_progress=lambda progress: fractions.append(progress.fraction))
    assert fractions and fractions == sorted(fractions) and fractions[-1] <= 1
    with pytest.raises(alibi.UsageError, match="pathlib.Path"):
        model.evaluate(str(tmp_path / "a.txt"))
    held_out = trained.evaluate()
    assert held_out.length == 32 and held_out.bits_per_byte > 0


def test_generation_streams_the_text_that_it_returns(trained):
    model = trained.model
    options = {"max_tokens": 200, "seed": 5, "temperature": 0.8}
    whole = model.generate("line ", **options)
    pieces = list(model.stream("line ", **options))
    assert "".join(pieces) == whole.text and len(pieces) > 20 and whole.tokens == 200 and whole.end == "tokens"
    assert str(whole) == "line " + whole.text
    assert model.generate("line ", sample=1, **options).text != whole.text
    told = []
    stopped = model.generate("line ", on_text=lambda text: told.append(text) or len(told) < 3, **options)
    assert len(told) == 3 and stopped.end == "callback"
    assert model.generate("line ", stop=" ", **options).text == whole.text.split(" ")[0]


def test_a_stream_that_is_left_stops(trained):
    threads = threading.active_count()
    for _ in trained.model.stream("line ", max_tokens=10_000_000):
        break
    assert threading.active_count() == threads
    with pytest.raises(alibi.UsageError, match="temperature"):
        list(trained.model.stream("line ", temperature=-1.0))


def test_what_a_callback_raises_is_what_the_caller_gets(trained):
    def fail(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        alibi.train(TEXT, train_tokens=8192, on_progress=fail, **SMALL)
    with pytest.raises(KeyError, match="mine"):
        alibi.compare(TEXT, train_tokens=4096, positions=["alibi"], on_progress=fail, **SMALL)
    with pytest.raises(KeyError, match="mine"):
        trained.model.evaluate(TEXT, length=32, on_progress=fail)
    with pytest.raises(KeyError, match="mine"):
        trained.model.generate("x", on_text=fail)
    ended = alibi.train(TEXT, train_tokens=8192, on_progress=lambda progress: progress.step < 2, **SMALL)
    assert ended.end == "asked" and ended.steps == 2


def test_other_threads_run_meanwhile(trained):
    counted = 0
    done = threading.Event()

    def count():
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    trained.model.generate("x", max_tokens=400)
    done.set()
    thread.join()
    assert counted > 5


def test_threads_share_a_model(trained):
    expected = trained.model.generate("line ", max_tokens=100, seed=1).text
    found = []
    threads = [threading.Thread(target=lambda: found.append(trained.model.generate("line ", max_tokens=100, seed=1).text))
               for _ in range(4)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_an_encoder():
    encoder = alibi.train(TEXT, causal=False, train_tokens=4096, **SMALL)
    assert encoder.model.config["causal"] is False and encoder.evaluate().bits_per_byte > 0
    assert encoder.model.embed(["one", "two"], pooling="first").shape == (2, 32)
    with pytest.raises(TypeError, match=r"\[embed\] texts is a PosixPath, expected texts"):
        encoder.model.embed(pathlib.Path("one.txt"))
    with pytest.raises(alibi.Error, match="causal"):
        encoder.model.generate("x")


def test_ctrl_c_ends_training_with_a_checkpoint(tmp_path):
    program = f"""
import alibi_attention as alibi
try:
    alibi.train("a line of text\\n" * 3000, train_tokens=10**9, layers=1, d_model=32, heads=2, train_length=32, batch_tokens=1024,
                out={str(tmp_path / "run")!r}, on_progress=lambda p: p.step == 3 and print("go", flush=True) or True)
except KeyboardInterrupt:
    print("interrupted")
"""
    # Where a shell started the tests in the background, interrupts are ignored, and would be in the child.
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    try:
        assert child.stdout.readline() == "go\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted\n" and child.returncode == 0
    finally:
        child.kill()
    assert any("checkpoint" in name for name in os.listdir(tmp_path / "run"))


def test_training_goes_on_and_from_another_model(trained, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    whole = alibi.train(text, train_tokens=8192, out=tmp_path / "whole", **SMALL)
    stopped = alibi.train(text, train_tokens=8192, out=tmp_path / "part", on_progress=lambda p: p.step < 3, **SMALL)
    assert stopped.end == "asked"
    resumed = alibi.train(text, train_tokens=8192, out=tmp_path / "part", resume=True, **SMALL)
    ids = whole.model.encode("line")
    assert np.array_equal(whole.model.hidden(ids), resumed.model.hidden(ids))
    tuned = alibi.train(text, from_model=tmp_path / "whole", train_tokens=2048, train_length=32, batch_tokens=1024)
    assert tuned.loss[0] < trained.loss[0] and tuned.model.config["d_model"] == 32
    with pytest.raises(alibi.UsageError, match="from_model"):
        alibi.train(text, from_model=tmp_path / "whole", layers=3)


def test_compare_shows_what_the_paper_does(tmp_path):
    phases = []
    results = alibi.compare(
        TEXT, positions=["alibi", "learned"], train_tokens=4096, lengths=[32, 64], eval_tokens=2048, out=tmp_path / "out",
        on_progress=lambda progress: phases.append(progress.phase), **SMALL,
    )  # fmt: skip
    assert [method.name for method in results.methods] == ["alibi", "learned"] and results.train_length == 32
    points = results.methods[0].evaluations
    assert [point.length for point in points] == [32, 64] and all(point.perplexity > 1 for point in points)
    gap = results.methods[1].evaluations[1]
    assert gap.gap and np.isnan(gap.perplexity)
    assert {"train", "evaluate"} <= set(phases) and (tmp_path / "out" / "report.html").exists()
    html = results._repr_html_()
    assert "<th>64</th>" in html and "–" in html and f"{points[0].perplexity:.4g}" in html
    assert results.to_dict()["methods"][0]["evaluations"][0]["nll"] == points[0].nll
    assert alibi.LanguageModel.load(results.methods[0].model_folder).config["position"] == "alibi"


def test_compare_asks_how_far_methods_answer(tmp_path):
    small = {**SMALL, "batch_tokens": 256, "task_questions": 40}
    alone = alibi.compare(tasks="repeat", positions=["alibi", "learned"], task_tokens=1024, **small)
    assert alone.methods == () and alone.runs_done == 2
    (task,) = alone.tasks
    assert (task.name, task.chance, task.beside_text) == ("repeat", 1 / 16, False)
    assert [answers.name for answers in task.methods] == ["alibi", "learned"]
    point = task.methods[0].points[-1]
    assert (point.length, point.questions) == (512, 40) and 0 <= point.low <= point.accuracy <= point.high <= 1
    assert len(task.methods[1].points) == 1
    assert "repeat: how far" in alone._repr_html_() and "Perplexity" not in alone._repr_html_()
    both = alibi.compare(
        TEXT, tasks=["recall", "repeat"], task_share=0.25, positions="alibi", lengths=[32], eval_tokens=1024, train_tokens=1024,
        out=tmp_path / "out", **small,
    )  # fmt: skip
    assert both.runs_done == 1 and both.methods[0].evaluations[0].perplexity > 1
    assert [task.beside_text for task in both.tasks] == [True, True] and (tmp_path / "out" / "map.svg").exists()
    assert both.to_dict()["tasks"][1]["methods"][0]["points"]


def test_frames_and_figures(trained):
    results = alibi.compare(TEXT, positions="alibi", train_tokens=4096, lengths=[32, 64], eval_tokens=2048, **SMALL)
    scores, evaluation = trained.model.score(TEXT[:300]), trained.model.evaluate(TEXT[:3000])
    pandas = pytest.importorskip("pandas")
    for result, rows in ((trained, 8), (results, 2), (scores, 300), (evaluation, 32)):
        table = result.to_pandas()
        assert isinstance(table, pandas.DataFrame) and len(table) == rows
    assert list(results.to_pandas()["perplexity"]) == [point.perplexity for point in results.methods[0].evaluations]
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for result in (trained, results, scores, evaluation):
        ax = result.plot()
        assert ax.lines and result.plot(ax=ax) is ax


def test_the_line_of_progress(trained, capsys):
    alibi.train(TEXT, train_tokens=4096, on_progress=alibi.show_progress, **SMALL)
    assert "train  100 %  loss " in capsys.readouterr().out.split("\r")[-1]


def test_wrong_options_are_named():
    for given, error, words in (
        ({"lenght": 3}, alibi.UsageError, "no option 'lenght'; choose from train_length, train_tokens"),
        ({"train_length": 0}, alibi.UsageError, "train_length is 0.* at least 1"),
        ({"train_length": "x"}, TypeError, "train_length is 'x' of type str, expected an integer"),
        ({"preset": "huge"}, alibi.UsageError, "tiny"),
        ({"position": "absolute"}, alibi.UsageError, "alibi"),
        ({"tokenizer": "letters"}, alibi.UsageError, "byte"),
    ):
        with pytest.raises(error, match=words):
            alibi.train(TEXT, **given)
    with pytest.raises(alibi.UsageError, match="LanguageModel.load"):
        alibi.LanguageModel("folder")


def test_held_out_text_that_is_trained_on_is_warned_of():
    options = {**SMALL, "train_tokens": 1024}
    with pytest.warns(UserWarning, match=r"\[train\] 100 % of the held-out text is in the training text"):
        alibi.train(TEXT, valid=TEXT[5000:9000], **options)
    with pytest.warns(UserWarning, match=r"\[compare\] 100 % of the held-out text") as told:
        alibi.compare(TEXT, valid=TEXT[5000:9000], positions="alibi", lengths=[32], eval_tokens=256, **options)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alibi.train(TEXT, valid="".join(f"another line, {i * i}\n" for i in range(1000, 1100)), **options)


def test_the_engine_evicts_by_the_bound_on_the_norm_of_queries(trained):
    model = alibi.train(TEXT, train_tokens=2048, position="gates", **SMALL).model
    prompt = model.encode(TEXT[:900])

    def evicted(query_norm):
        engine = alibi.Engine(model, eviction_tolerance=1e-2, query_norm=query_norm)
        return engine.submit(prompt, max_tokens=4, temperature=0.0).result().samples[0].evicted_keys

    assert evicted(1e-3) > evicted(1e6)
    with pytest.raises(alibi.UsageError, match="query_norm is set for alibi positions"):
        alibi.Engine(trained.model, memory=1 << 26, query_norm=3.0)


def test_the_engine_generates_many_texts_at_once(trained):
    model = trained.model
    prompts = [model.encode("line 4 of a text"), model.encode("a"), model.encode("line " * 40)]
    options = {"max_tokens": 12, "seed": 5, "logprobs": 2, "prompt_logprobs": 1, "samples": 2}
    alone = []
    for prompt in prompts:
        engine = alibi.Engine(model, chunk_tokens=32, step_tokens=64)
        alone.append(engine.submit(prompt, **options).result())
    engine = alibi.Engine(model, chunk_tokens=32, step_tokens=64)
    requests = [engine.submit(prompt, **options) for prompt in prompts]
    for request, expected in zip(requests, alone):
        texts = ["", ""]
        for sample, text in request:
            texts[sample] += text
        found = request.result()
        assert [s.tokens for s in found.samples] == [s.tokens for s in expected.samples] and found.prompt == expected.prompt
        assert texts == [sample.text for sample in found.samples] and not found.cancelled
        assert found.prompt[0].logprob is None and all(token.logprob <= 0 for token in found.prompt[1:])
    assert engine.stats()["requests"] == 3
    endless = engine.submit(prompts[0], max_tokens=10**9)
    next(iter(endless))
    endless.cancel()
    assert endless.result().cancelled
    with pytest.raises(alibi.UsageError, match="prompt contain 999, expected integers from 0 to"):
        engine.submit([999])
    engine.close()
    with pytest.raises(alibi.Error, match="stopping"):
        engine.submit([1])
