"""Where work ends early: Ctrl-C, an exit of Python in the middle, dropped requests, a fork."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import alibi_attention as alibi

if not alibi._core.has_models:
    pytest.skip("this build has the operator alone", allow_module_level=True)

TEXT = "".join(f"line {i} of a text that counts to {i * i % 97}, and continues\n" for i in range(600))
SMALL = {"layers": 1, "d_model": 32, "heads": 2, "train_length": 32, "batch_tokens": 1024, "train_tokens": 2048, "seed": 3}
ENDLESS = 10**9


@pytest.fixture(scope="module")
def model():
    return alibi.train(TEXT, **SMALL).model


@pytest.fixture(scope="module")
def encoder():
    return alibi.EncoderModel(alibi.train(TEXT, causal=False, **SMALL).model)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    found = tmp_path_factory.mktemp("model") / "model"
    model.save(found)
    return found


class Interrupted(Exception):
    pass


def interrupted(work):
    """Seconds from a signal, whose handler raises, to the end of the work."""
    at = []

    def handle(*_):
        at.append(time.perf_counter())
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Interrupted):
            work()
        return time.perf_counter() - at[0], at[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


LONG = 300_000  # tokens: attention over them takes far longer than the test
IDS = np.full(LONG, 97, np.int32)


def words(size):
    """Text of random words, whose tokenizer takes long to learn."""
    letters = np.random.default_rng(0).integers(97, 123, size, np.uint8)
    letters[np.random.default_rng(1).integers(0, size, size // 6)] = 32
    letters[::80] = 10
    return letters.tobytes().decode()


@pytest.mark.parametrize("name", ["embed", "hidden", "logits", "generate", "stream", "generate_ids", "score", "evaluate",
                                  "loglikelihoods", "embed_many"])  # fmt: skip
def test_ctrl_c_is_served_in_a_language_model(model, name):
    text = "a" * LONG
    begin = time.perf_counter()
    seconds, at = interrupted({
        "embed": lambda: model.embed(text),
        "embed_many": lambda: model.embed(["a" * 2000] * 20000),
        "hidden": lambda: model.hidden(IDS),
        "logits": lambda: model.logits(IDS),
        "generate": lambda: model.generate(text),
        "stream": lambda: list(model.stream(text)),
        "generate_ids": lambda: model.generate_ids(IDS),
        "score": lambda: model.score(IDS, context_length=LONG),
        "evaluate": lambda: model.evaluate(IDS, length=LONG),
        "loglikelihoods": lambda: model.loglikelihoods([IDS], [LONG - 1]),
    }[name])  # fmt: skip
    assert at - begin < 5, "the handler was called late"
    assert seconds < 5
    assert len(model.embed("after it")) == 32


@pytest.mark.parametrize("name", ["embed", "encode", "embed_ids", "hidden", "embed_spans"])
def test_ctrl_c_is_served_in_an_encoder(encoder, name):
    text = "a" * LONG
    begin = time.perf_counter()
    seconds, at = interrupted({
        "embed": lambda: encoder.embed(text),
        "encode": lambda: encoder.encode(text),
        "embed_ids": lambda: encoder.embed_ids([IDS]),
        "hidden": lambda: encoder.hidden(IDS),
        "embed_spans": lambda: encoder.embed_spans(text, [(0, 5)]),
    }[name])  # fmt: skip
    assert at - begin < 5 and seconds < 5
    assert encoder.embed("after it").shape == (32,)


@pytest.mark.parametrize("name", ["train", "compare"])
def test_ctrl_c_is_served_while_a_tokenizer_is_learned(name):
    text = words(20_000_000)
    options = {"tokenizer": "unigram", "vocab_size": 20000, **SMALL}
    begin = time.perf_counter()
    seconds, at = interrupted(lambda: getattr(alibi, name)(text, **options))
    assert at - begin < 10 and seconds < 5


def test_numpy_false_stops_as_false_does(model):
    told = []
    made = model.generate("line ", max_tokens=200, on_text=lambda text: np.False_ if told.append(text) else np.False_)
    assert len(told) == 1 and made.end == "callback"
    assert model.generate("line ", max_tokens=20, on_text=lambda text: np.True_).end == "tokens"
    assert model.generate("line ", max_tokens=20, on_text=lambda text: 0).end == "tokens"
    with pytest.raises(alibi.Error, match="on_progress returned False"):
        model.evaluate(TEXT, on_progress=lambda progress: np.False_)
    assert alibi.train(TEXT, on_progress=lambda progress: np.bool_(progress.step < 1), **SMALL).end == "asked"


def test_the_lock_is_released_while_text_is_tokenized(tmp_path):
    text = words(600_000)
    trained = alibi.train(text[:50_000], tokenizer="bpe", vocab_size=1000, **SMALL).model
    trained.save(tmp_path / "model")
    tokenizer = alibi.Tokenizer.load(tmp_path / "model")
    ids = np.tile(trained.encode(text), 10)
    for work in (lambda: trained.encode(text), lambda: trained.decode(ids), lambda: tokenizer.encode(text),
                 lambda: tokenizer.decode(ids)):  # fmt: skip
        counted, done = [], threading.Event()

        def count(counted=counted, done=done):
            while not done.is_set():
                counted.append(time.perf_counter())
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        begin = time.perf_counter()
        work()
        end = time.perf_counter()
        done.set()
        thread.join()
        within = [at for at in counted if begin < at < end]
        assert len(within) > 5, f"{len(within)} in {end - begin:.3f} s"


def failing(folder, tmp_path):
    """A model whose logits are not finite."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        content = file.read_bytes()
        if file.suffix == ".safetensors":
            size = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + size])
            begin, end = next(entry["data_offsets"] for name, entry in header.items() if "ln_f" in name or "norm_f" in name)
            content = bytearray(content)
            content[8 + size + begin : 8 + size + end] = np.full((end - begin) // 4, 3e38, np.float32).tobytes()
        (broken / file.name).write_bytes(content)
    return alibi.LanguageModel.load(broken)


def test_a_failed_request_raises_from_its_iteration_too(folder, tmp_path):
    engine = alibi.Engine(failing(folder, tmp_path))
    request = engine.submit([97, 98], max_tokens=5)
    with pytest.raises(alibi.Error, match="finite"):
        list(request)
    with pytest.raises(alibi.Error, match="finite"):
        list(request)
    with pytest.raises(alibi.Error, match="finite"):
        request.result()
    assert engine.stats()["failed"] == 1


def soon(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_dropped_request_frees_its_slot(model):
    engine = alibi.Engine(model, slots=1)
    request = engine.submit([97], max_tokens=ENDLESS)
    next(iter(request))
    del request
    assert soon(lambda: engine.stats()["running"] == 0) and engine.stats()["cancelled"] == 1
    for wait in (lambda request: request.result(), lambda request: list(request)):
        request = engine.submit([97], max_tokens=ENDLESS)
        seconds, _ = interrupted(lambda request=request, wait=wait: wait(request))
        assert seconds < 5 and soon(lambda: engine.stats()["running"] == 0)
        assert request.result().cancelled
    assert len(engine.submit([97], max_tokens=3).result().samples[0].tokens) == 3


def test_a_request_that_is_cancelled_before_its_first_step_has_empty_texts(model):
    engine = alibi.Engine(model, slots=3)
    running = [engine.submit([97], max_tokens=ENDLESS) for _ in range(3)]
    waiting = engine.submit([97], samples=2)
    waiting.cancel()
    result = waiting.result()
    assert result.text == "" and result.cancelled and [s.end for s in result.samples] == ["callback"] * 2
    long = engine.submit(IDS, samples=3, max_tokens=1)  # is cancelled while the prompt is read
    running.clear()
    assert soon(lambda: engine.stats()["prompt_tokens"] > 1000)
    long.cancel()
    assert [s.text for s in long.result().samples] == [""] * 3


def in_child(work):
    """What work() returns in a child made by fork(), as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = f"{work()}"
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    try:
        assert soon(lambda: os.waitpid(child, os.WNOHANG)[0] == child), "the child waits for ever"
        return os.read(read, 10000).decode()
    finally:
        os.close(read)


def test_an_engine_of_the_parent_raises_in_a_child(model):
    engine = alibi.Engine(model)
    request = engine.submit([97], max_tokens=ENDLESS)
    stream = model.stream("line ", max_tokens=ENDLESS)
    next(stream)
    for use in (lambda: engine.submit([97]), request.result, lambda: next(iter(request)), request.cancel, engine.stats,
                engine.close):  # fmt: skip
        assert "[Engine] it was made before fork()" in in_child(use)
    assert "[stream] it was made before fork()" in in_child(lambda: next(stream))

    def drop():
        nonlocal engine, request, stream
        del engine, request, stream
        return alibi.Engine(model).submit([97], max_tokens=3).result().samples[0].end

    assert in_child(drop) == "tokens"
    stream.close()


# Scripts that end in the middle of something. `model` is loaded, and `started` is an event.
ENDS = {
    "a stream that is half used": "it = model.stream('line ', max_tokens=10**9); next(it)",
    "a stream that reads a long prompt": "it = model.stream('a' * 300000); thread(lambda: next(it)); time.sleep(0.3)",
    "a stream in a cycle": "it = model.stream('line ', max_tokens=10**9); next(it); cycle = [it]; cycle.append(cycle); del it",
    "generate": "thread(lambda: model.generate('line ', max_tokens=10**9)); time.sleep(0.2)",
    "generate with on_text": "thread(lambda: model.generate('line ', max_tokens=10**9, on_text=lambda text: started.set() or sum(range(300)) > 0)); started.wait()",
    "generate with an on_text that waits": "thread(lambda: model.generate('line ', max_tokens=10**9, on_text=lambda text: (started.set(), time.sleep(1000)))); started.wait()",
    "train": "thread(lambda: alibi.train(TEXT, **{**SMALL, 'train_tokens': 10**9}, on_progress=lambda p: started.set() or True)); started.wait()",
    "train without on_progress": "thread(lambda: alibi.train(TEXT, **{**SMALL, 'train_tokens': 10**9})); time.sleep(0.3)",
    "compare": "thread(lambda: alibi.compare(TEXT, **{**SMALL, 'train_tokens': 10**9}, on_progress=lambda p: started.set() or True)); started.wait()",
    "the training of a tokenizer": "thread(lambda: alibi.train(TEXT * 300, tokenizer='unigram', **SMALL)); time.sleep(0.3)",
    "evaluate": "thread(lambda: model.evaluate(TEXT * 300, length=32, on_progress=lambda p: started.set() or True)); started.wait()",
    "embed": "thread(lambda: model.embed('a' * 300000)); time.sleep(0.2)",
    "score": "thread(lambda: model.score('a' * 300000, context_length=300001)); time.sleep(0.2)",
    "many threads": "[thread(lambda: model.generate('line ', max_tokens=10**9, on_text=lambda text: started.set() or True)) for _ in range(8)]; started.wait()",
    "attention": "x = np.ones((1, 20000, 8, 64), np.float32); thread(lambda: alibi.attention(x, x, x)); time.sleep(0.1)",
    "an engine": "engine = alibi.Engine(model); kept = [engine.submit([97], max_tokens=10**9) for _ in range(20)]; next(iter(kept[0]))",
    "an engine whose result is waited for": "engine = alibi.Engine(model); thread(lambda: engine.submit([97], max_tokens=10**9).result()); time.sleep(0.2)",
    "an engine whose texts are read": "engine = alibi.Engine(model); thread(lambda: [started.set() for _ in engine.submit([97], max_tokens=10**9)]); started.wait()",
    "an exit in a callback": "model.generate('line ', max_tokens=10**9, on_text=lambda text: sys.exit(0))",
    "work in an exit handler": "print(model.generate('line ', max_tokens=3).tokens)",
}
PROGRAM = """
import atexit, sys, threading, time
LATER
import numpy as np
import alibi_attention as alibi
from test_ends import SMALL, TEXT
model = alibi.LanguageModel.load(FOLDER)
started = threading.Event()
def thread(work):
    threading.Thread(target=work, daemon=True).start()
"""


@pytest.mark.parametrize("name", ENDS)
def test_a_script_may_end_in_the_middle(folder, name):
    handler = name == "work in an exit handler"  # one that was registered before the package was imported runs after its own
    program = PROGRAM.replace("FOLDER", repr(str(folder)))
    program = program.replace("LATER", f"atexit.register(lambda: {ENDS[name]})" if handler else "")
    program += "" if handler else ENDS[name] + "\n"
    package = pathlib.Path(alibi.__file__).parents[1]
    paths = [str(pathlib.Path(__file__).parent), str(package), *os.environ.get("PYTHONPATH", "").split(":")]
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": ":".join(paths)}, cwd="/")  # fmt: skip
    seconds = time.monotonic() - begin
    assert done.returncode == 0 and done.stdout == ("3\n" if handler else "")
    # What a thread of the program raises because it was ended is shown as Python shows it.
    assert "terminate" not in done.stderr and "Fatal" not in done.stderr and "nanobind" not in done.stderr, done.stderr
    assert seconds < 60, seconds


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_opening_and_closing_keeps_memory_and_files_flat(folder):
    def use(times):
        for i in range(times):
            opened = alibi.LanguageModel.load(folder)
            if i % 10 == 0:
                stream = opened.stream("line ", max_tokens=ENDLESS)
                next(stream)
                engine = alibi.Engine(opened)
                engine.submit([97], max_tokens=ENDLESS)
                del stream, engine

    use(200)
    before, files, threads = resident(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    use(1000)
    assert len(os.listdir("/proc/self/fd")) == files and len(os.listdir("/proc/self/task")) <= threads
    assert resident() - before < 8 << 20
