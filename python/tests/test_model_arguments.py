"""Wrong values for every argument of the public functions of models, and arguments that are empty."""

import math
import pathlib

import numpy as np
import pytest

import alibi_attention as alibi
import wrong_values

if not alibi._core.has_models:
    pytest.skip("this build has the operator alone", allow_module_level=True)

TEXT = "".join(f"line {i} of a text that counts to {i * i % 97}, and continues\n" for i in range(600))
SMALL = {"layers": 1, "d_model": 32, "heads": 2, "train_length": 32, "batch_tokens": 1024, "train_tokens": 1024, "seed": 3}

WRONG = wrong_values.WRONG
HARMLESS = ("[-1]", "[999]", "[[[1]]]")  # where any ids are decoded
PATH = [x for x in ("", "a\0b", pathlib.PurePath, 1, 1.5, None, True, [], ["a"], (), np.array([1]), *wrong_values.NOTHING)]
OPTIONAL_PATH = [x for x in PATH if x is not None]
FUNCTION = [1, 1.5, "no", True, [], (), np.array([1]), {}, *[x for x in wrong_values.NOTHING if not callable(x)]]
TEXTS = [1, 1.5, True, None, {"a": 1}.values, [1], ["a", 1], [["a"]], [b"a"], pathlib.Path("a"), ["\ud800"], "\ud800",
         *[x for x in wrong_values.NOTHING if not isinstance(x, (dict, list)) and not isinstance(x, np.ndarray)]]  # fmt: skip
TEXTS_IN_A_LIST = ["one text", *TEXTS]
FILES = [1, 1.5, True, [], (), [1], ["a", None], [b"a"], {}, "\ud800", pathlib.Path("a\0b"),
         *[x for x in wrong_values.NOTHING if not isinstance(x, (dict, list)) and not isinstance(x, np.ndarray)]]  # fmt: skip
IDS = [None, 1.5, "no", True, [1.5], [True], [2**31], [-1], [2**70], [999], np.array([2**33]), np.array([2**32 - 1], np.uint32),
       np.array([2**64 - 1], np.uint64), [[[1]]], [[1, 2], [3]], *wrong_values.NOTHING]  # fmt: skip
SEED = ["1", 1.5, -1, 2**64, 2**70, [], [1], np.array([1, 2]), *wrong_values.NOTHING]
OPTIONAL_INTEGER = [x for x in WRONG["integer"] if x is not None]
LENGTH = [-1, -(2**63), "", *WRONG["integer"]]
CHOICE = WRONG["choice"]
POSITIVE = [-1, 0, *WRONG["integer"]]
# Of generation; 1e300 is a temperature.
TEMPERATURE = [-1.0, *[x for x in WRONG["number"] if repr(x) != "1e+300"]]
SHARE = [-0.5, 1.5, 2, *WRONG["number"]]
PENALTY = [0, -1.0, *[x for x in WRONG["number"] if repr(x) != "1e+300"]]
NUMBER = [x for x in WRONG["number"] if repr(x) not in ("1e+300", "-1e+300")]
BIASES = [None, 1, "no", [1], [(1, 1.0)], {"a": 1}, {1: "x"}, {-1: 1.0}, {2**40: 1.0}, {1.5: 1}, {1: math.nan}, {10**6: 1.0},
          {1: 1e300}, *[x for x in wrong_values.NOTHING if not isinstance(x, dict)]]  # fmt: skip
GENERATION = {
    "max_tokens": LENGTH, "temperature": TEMPERATURE, "top_k": LENGTH, "top_p": [0, *SHARE], "min_p": SHARE,
    "repetition_penalty": PENALTY, "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "logit_bias": BIASES, "seed": SEED, "stop": [[""], "", *TEXTS], "stop_at_end_of_text": "flag",
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return alibi.train(TEXT, **SMALL).model


@pytest.fixture(scope="module")
def encoder():
    return alibi.EncoderModel(alibi.train(TEXT, causal=False, **SMALL).model)


def table(function, given, kinds, without=(), **options):
    assert set(wrong_values.arguments_of(function)) == {*kinds, *without}
    return wrong_values.check(function, given, kinds, **options)


def test_language_model(model, tmp_path):
    table(alibi.LanguageModel, {"model": None}, {"model": [None, *TEXTS]}, named={"model": "LanguageModel"})
    model.save(tmp_path / "model")
    table(alibi.LanguageModel.load, {"folder": tmp_path / "model"},
          {"folder": PATH, "precision": CHOICE, "weights": [x for x in CHOICE if x is not None],
           "quantize_activations": "flag"})  # fmt: skip
    table(model.save, {}, {"folder": PATH})
    table(model.encode, {}, {"text": ["\ud800", *WRONG["text"]]})
    table(model.decode, {}, {"ids": [x for x in IDS if repr(x) not in HARMLESS]})
    for compute, mask in ((model.hidden, "key_padding_mask"), (model.logits, "attention_mask")):
        masks = [1.5, "no", [2], [[2, 0]], [1.5, 0], [["a", "b"]], [[0, 1], [1]], np.array([1, 0, 1]), *wrong_values.NOTHING]
        table(compute, {"ids": [97, 98]}, {"ids": IDS, mask: masks})
    table(model.generate_ids, {"ids": [97]}, {"ids": [[], *IDS], "max_tokens": LENGTH, "temperature": TEMPERATURE, "seed": SEED})
    table(model.embed, {"texts": "a"}, {"texts": TEXTS, "pooling": ["first", *CHOICE], "normalize": "flag"})
    table(model.generate, {"prompt": "a", "max_tokens": 1},
          {"prompt": WRONG["text"], "sample": "integer", "on_text": FUNCTION, **GENERATION})  # fmt: skip
    table(model.stream, {"prompt": "a"}, {"prompt": WRONG["text"], "sample": "integer"}, without=GENERATION)
    wrong_values.check(lambda **given: list(model.stream("a", **given)), {"max_tokens": 1}, GENERATION)
    wrong_values.check(model.stream, {"prompt": "a"}, {"on_text": [print] * 20, "max_token": [1] * 20})
    table(model.loglikelihoods, {"texts": [[97, 98]], "targets": [1]},
          {"texts": [1, "no", None, *[[x] for x in IDS]], "targets": [1, "1", ["1"], [1.5], None, [0], [2], [2**70], [[1]], []],
           "batch_tokens": POSITIVE})  # fmt: skip
    table(model.score, {"text": "abc"}, {"text": ["\ud800", *[x for x in IDS if not isinstance(x, str)]], "context_length": LENGTH})
    table(model.evaluate, {"text": TEXT[:500]},
          {"text": FILES, "length": LENGTH, "stride": LENGTH, "field": WRONG["text"], "on_progress": FUNCTION})  # fmt: skip


def test_encoder_model(encoder, model, tmp_path):
    table(alibi.EncoderModel, {}, {"model": [None, 1, "no", *wrong_values.NOTHING]})
    encoder._model.save(tmp_path / "model")
    table(alibi.EncoderModel.load, {"path": tmp_path / "model"},
          {"path": PATH, "precision": CHOICE, "weights": [x for x in CHOICE if x is not None],
           "quantize_activations": "flag"})  # fmt: skip
    table(encoder.tokenize, {"text": "a"}, {"text": WRONG["text"], "max_tokens": "integer"})
    pair = {"first": "a", "second": "b"}
    table(encoder.tokenize_pair, pair, {"first": WRONG["text"], "second": WRONG["text"], "max_tokens": "integer"})
    types = [1.5, "no", [1.5, 0.5], [0], [0, 99], [[0], [0, 1]], [2**70, 0], *wrong_values.NOTHING]
    masks = [1.5, "no", [2, 1], [1], [[1, 0, 1]], *wrong_values.NOTHING]
    table(encoder.hidden, {"ids": [97, 98]}, {"ids": IDS, "token_type_ids": types, "attention_mask": masks})
    rows = {"rows": [*[x for x in IDS if repr(x) not in ("[[1, 2], [3]]", "[[1], [2, 3]]")], *[[x] for x in IDS]], "token_type_ids": [*types, [types]], "attention_mask": masks}
    table(encoder.embed_ids, {"rows": [[97, 98]]}, {**rows, "pooling": CHOICE, "normalize": "flag"})
    table(encoder.score_ids, {"rows": [[97, 98]]}, {"activation": CHOICE}, without=["rows", "token_type_ids", "attention_mask"])
    table(encoder.embed, {"texts": "a"}, {"texts": TEXTS, "pooling": CHOICE, "normalize": "flag", "max_tokens": "integer"})
    table(encoder.encode, {"sentences": "a"},
          {"sentences": TEXTS, "batch_size": POSITIVE, "normalize_embeddings": "flag", "convert_to_numpy": "flag",
           "show_progress_bar": WRONG["flag"], "pooling": CHOICE, "max_tokens": "integer"},
          without=["options"])  # fmt: skip
    for name, value in (("device", "cuda"), ("precision", "int8"), ("prompt", "query: "), ("convert_to_tensor", True)):
        wrong_values.check(encoder.encode, {"sentences": "a"}, {name: [value, *wrong_values.NOTHING]})
    spans = [None, 1, "no", [1], [(0,)], [(0, 1, 2)], [(0.5, 1)], [(1, 0)], [(0, 99)], [(-1, 2)], [("a", "b")], [(0, 2**70)],
             *wrong_values.NOTHING]  # fmt: skip
    table(encoder.embed_spans, {"text": "abc", "spans": [(0, 1)]},
          {"text": [x for x in IDS if not isinstance(x, str)], "spans": spans, "pooling": CHOICE, "normalize": "flag"},
          named={"spans": "spans?"})  # fmt: skip
    reranked = {"query": WRONG["text"], "documents": TEXTS_IN_A_LIST, "max_tokens": "integer"}
    table(encoder.rerank, {"query": "a", "documents": ["b"]}, reranked)


def test_engine(model):
    sizes = {name: POSITIVE for name in ("slots", "step_tokens", "chunk_tokens")}
    sizes |= {name: LENGTH for name in ("queue", "max_tokens", "prefix_bytes")}
    limits = {"memory": [-1, 0, *OPTIONAL_INTEGER], "eviction_tolerance": [-1.0, *WRONG["number"]],
              "query_norm": [-1.0, 3.0, *WRONG["number"]]}  # no limit is given
    table(alibi.Engine, {"model": model}, {"model": [None, 1, "no", *wrong_values.NOTHING], **sizes, **limits})
    engine = alibi.Engine(model)
    table(engine.submit, {"prompt": [97], "max_tokens": 1},
          {"prompt": [[], *IDS], "samples": [17, *POSITIVE], "priority": WRONG["integer"], "logprobs": [-1, 258, *OPTIONAL_INTEGER],
           "prompt_logprobs": [-1, 258, *OPTIONAL_INTEGER], **GENERATION})  # fmt: skip
    assert engine.submit([97], max_tokens=1, top_k=2**40).result().samples[0].end == "tokens"


def test_tokenizer(model, tmp_path):
    model.save(tmp_path / "model")
    tokenizer = alibi.Tokenizer.load(tmp_path / "model")
    table(alibi.Tokenizer, {}, {"tokenizer": [None, 1, "no", *wrong_values.NOTHING]}, named={"tokenizer": "Tokenizer"})
    table(alibi.Tokenizer.load, {}, {"path": PATH})
    table(tokenizer.save, {}, {"folder": PATH})
    table(tokenizer.encode, {"text": "a"}, {"text": WRONG["text"], "add_special_tokens": "flag"})
    pair = {"first": WRONG["text"], "second": WRONG["text"], "add_special_tokens": "flag"}
    table(tokenizer.encode_pair, {"first": "a", "second": "b"}, pair)
    ids = [x for x in IDS if repr(x) not in HARMLESS]
    table(tokenizer.decode, {"ids": [97]}, {"ids": ids, "skip_special_tokens": "flag"})


def test_train_and_compare():
    flag, optional = WRONG["flag"], [x for x in WRONG["number"] if x is not None]
    shared = {
        "text": FILES, "valid": FILES, "preset": CHOICE, "tokenizer": CHOICE, "vocab_size": LENGTH, "min_count": "integer",
        "like": OPTIONAL_PATH, "dropout": [-0.5, 1, 2.0, *optional], "out": OPTIONAL_PATH, "overwrite": flag,
        "field": WRONG["text"], "on_progress": FUNCTION,
    }  # fmt: skip
    named = {"vocab_size": "vocab_size|vocabulary size", "min_count": "min_count|minimum word count"}
    table(alibi.train, {"text": TEXT, **SMALL},
          {**shared, "position": CHOICE, "from_model": OPTIONAL_PATH, "resume": flag}, without=["options"], named=named)  # fmt: skip
    integers = [1, ["1"], [1.5], [-1], [2**70], None, "no", [[1]], *wrong_values.NOTHING]
    named |= {"positions": "positions?", "train_lengths": "train_lengths?", "tasks": "tasks?", "windowed": "windowed|positions?"}
    table(alibi.compare, {"text": TEXT, "positions": "alibi", **SMALL},
          {**shared, "positions": ["no", ["no"], *[x for x in TEXTS if x is not None]], "seeds": POSITIVE,
           "train_lengths": integers, "lengths": integers, "stride": LENGTH, "one_pass": flag, "windowed": ["no", ["no"], *TEXTS], "eval_tokens": LENGTH,
           "sample_tokens": [-2, *WRONG["integer"]], "tune_rates": [1.0, ["1"], [-1.0], None, "no", *wrong_values.NOTHING],
           "tasks": ["no", ["no"], *TEXTS], "task_tokens": LENGTH, "task_questions": POSITIVE,
           "task_share": [-0.5, 1, 2.0, *WRONG["number"]], "timing_rounds": LENGTH}, without=["options"], named=named)  # fmt: skip
    options = {"train_length": POSITIVE, "layers": [-1, *WRONG["integer"]], "learning_rate": TEMPERATURE, "seed": SEED,
               "train_tokens": POSITIVE, "causal": flag, "precision": CHOICE, "length": ["", *POSITIVE]}  # fmt: skip
    for name, values in options.items():
        given = {key: value for key, value in SMALL.items() if key != name and (name, key) != ("length", "train_length")}
        wrong_values.check(alibi.train, {"text": TEXT, **given}, {name: values}, named={"length": "length|train_length"})


def test_empty_is_not_the_default(tmp_path):
    for function in (alibi.train, alibi.compare):
        for name in ("text", "valid"):
            given = {"text": TEXT, **SMALL, name: []}
            with pytest.raises(alibi.UsageError, match=rf"\[{function.__name__}\] {name} is an empty list"):
                function(**given)
        for name in ("like", "out", *["from_model"] * (function is alibi.train)):
            with pytest.raises(alibi.UsageError, match=rf"\[{function.__name__}\] {name} is ''"):
                function(TEXT, **SMALL, **{name: ""})
    with pytest.raises(TypeError, match="train_length is ''"):
        alibi.train(TEXT, train_length="")
    assert list(tmp_path.iterdir()) == []


def test_show_progress():
    wrong_values.check(alibi.show_progress, {}, {"progress": [None, 1, "no", *wrong_values.NOTHING]})
