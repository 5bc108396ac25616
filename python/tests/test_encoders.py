"""Encoders: the states, vectors and scores that their formulas give, and encoders that are made here."""

import inspect
import json
import math
import pathlib

import numpy as np
import pytest

import alibi_attention as alibi

if not alibi._core.has_models:
    pytest.skip("this build has the operator alone", allow_module_level=True)

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "fixtures"
MODELS = ("dnabert2", "jina-code", "jina-en", "jina-original", "jina-reranker", "mosaic-bert")
needs_fixtures = pytest.mark.skipif(not FIXTURES.exists(), reason=f"there is no {FIXTURES}")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *("##" + c for c in "abcdefghijklmnopqrstuvwxyz")]
TEXTS = ["a river that is wide", "the sea", "bread and butter", "a river and the sea", "b", "butter that is bread"]


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in tensors.values()))


def read_tensors(path):
    read = path.read_bytes()
    size = int.from_bytes(read[:8], "little")
    types = {"F32": np.float32, "I64": np.int64}
    return {
        name: np.frombuffer(read[8 + size :][slice(*info["data_offsets"])], types[info["dtype"]]).reshape(info["shape"])
        for name, info in json.loads(read[8 : 8 + size]).items()
        if name != "__metadata__"
    }


def write_encoder(folder, labels=0, width=24, layers=2, hidden=32):
    """A jina-bert-v2 with random weights, and a WordPiece tokenizer of letters."""
    random = np.random.default_rng(5)
    folder.mkdir()

    def tensor(*shape):
        return (random.standard_normal(shape) / math.sqrt(shape[-1])).astype(np.float32)

    def linear(name, rows, columns, bias=True):
        return {f"{name}.weight": tensor(rows, columns), **({f"{name}.bias": tensor(rows)} if bias else {})}

    def norm(name):
        return {f"{name}.weight": 1 + tensor(width), f"{name}.bias": tensor(width)}

    tensors = {"word_embeddings.weight": tensor(len(WORDS), width), "token_type_embeddings.weight": tensor(2, width)}
    tensors = {f"embeddings.{name}": values for name, values in {**tensors, **norm("LayerNorm")}.items()}
    for layer in (f"encoder.layer.{i}" for i in range(layers)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            tensors |= linear(f"{layer}.attention.{name}", width, width)
        tensors |= norm(f"{layer}.attention.output.LayerNorm") | norm(f"{layer}.mlp.layernorm")
        tensors |= linear(f"{layer}.mlp.gated_layers", 2 * hidden, width, bias=False) | linear(f"{layer}.mlp.wo", width, hidden)
    tensors |= linear("pooler.dense", width, width)
    if labels:
        tensors = {f"bert.{name}": values for name, values in tensors.items()} | linear("classifier", labels, width)
    write_tensors(folder / "model.safetensors", tensors)
    config = {"architectures": ["JinaBertForSequenceClassification" if labels else "JinaBertForMaskedLM"], "model_type": "bert",
              "hidden_act": "gelu", "hidden_size": width, "intermediate_size": hidden, "num_attention_heads": 4,
              "num_hidden_layers": layers, "max_position_embeddings": 32, "position_embedding_type": "alibi",
              "type_vocab_size": 2, "vocab_size": len(WORDS), "feed_forward_type": "geglu", "layer_norm_eps": 1e-12,
              "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": labels}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))

    def template(*parts):
        return [{"SpecialToken" if name[0] == "[" else "Sequence": {"id": name, "type_id": i}} for name, i in parts]

    single, second = (("[CLS]", 0), ("A", 0), ("[SEP]", 0)), (("B", 1), ("[SEP]", 1))
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": {"type": "BertNormalizer", "clean_text": True,
            "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "added_tokens": [{"id": i, "content": WORDS[i], "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True} for i in range(5)],
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "post_processor": {"type": "TemplateProcessing", "single": template(*single), "pair": template(*single, *second),
            "special_tokens": {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
    }))  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return alibi.EncoderModel.load(write_encoder(tmp_path_factory.mktemp("encoder") / "jina"))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    return alibi.EncoderModel.load(write_encoder(tmp_path_factory.mktemp("reranker") / "jina", labels=1))


def assert_close(found, expected, tolerance):
    assert found.shape == expected.shape and found.dtype == np.float32
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference <= tolerance, difference


def assert_same_direction(found, expected):
    assert found.shape == expected.shape
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    lengths = np.linalg.norm(found, axis=-1)
    assert np.abs(lengths - 1).max() <= 1e-6
    distance = 1 - (found * expected).sum(-1) / lengths / np.linalg.norm(expected, axis=-1)
    assert distance.max() <= 1e-10, distance


@needs_fixtures
@pytest.mark.parametrize("name", MODELS)
def test_encoders_give_what_their_formulas_give(name):
    folder = FIXTURES / "models" / name
    model, expected = alibi.EncoderModel.load(folder), read_tensors(folder / "expected.safetensors")
    batch, mask = expected["batch.ids"], expected["batch.mask"]
    rows = [ids[counts != 0] for ids, counts in zip(batch, mask)]
    for case in ("short", "long"):
        ids = expected[f"{case}.ids"]
        assert_close(model.hidden(ids), expected[f"{case}.hidden"], 1e-5)
        assert_close(model.hidden(ids[None].tolist()), expected[f"{case}.hidden"][None], 1e-5)
        for pooling, of in (("mean", "mean"), ("cls", "cls"), ("first", "cls")):
            assert_same_direction(model.embed_ids([ids], pooling=pooling)[0], expected[f"{case}.{of}"])
    assert_close(model.hidden(batch, attention_mask=mask), expected["batch.hidden"] * mask[..., None], 1e-5)
    on_the_left, left_mask = np.zeros_like(batch), np.zeros_like(mask)
    for i, row in enumerate(rows):
        on_the_left[i, -len(row) :], left_mask[i, -len(row) :] = row, 1
    states = model.hidden(on_the_left, attention_mask=left_mask == 1)
    assert not states[left_mask == 0].any()
    assert_close(states[left_mask == 1], expected["batch.hidden"][mask == 1], 1e-5)
    last = np.stack([of_row[len(row) - 1] for of_row, row in zip(expected["batch.hidden"], rows)])
    for pooling, vectors in (("mean", expected["batch.mean"]), ("cls", expected["batch.cls"]), ("last", last)):
        assert_same_direction(model.embed_ids(rows, pooling=pooling), vectors)
        assert_same_direction(model.embed_ids(batch, pooling=pooling, attention_mask=mask), vectors)
        assert_same_direction(model.embed_ids(on_the_left, pooling=pooling, attention_mask=left_mask), vectors)
    ids, types = expected["typed.ids"], expected["typed.types"]
    assert_close(model.hidden(ids, token_type_ids=types), expected["typed.hidden"], 1e-5)
    if types.any():
        assert np.abs(model.hidden(ids) - expected["typed.hidden"]).max() > 1e-3
    mean = expected["typed.hidden"].mean(0)
    assert_same_direction(model.embed_ids([ids, ids[:5]], token_type_ids=[types, types[:5]])[0], mean)
    assert_close(model.embed_ids([ids], token_type_ids=[types], normalize=False), mean[None], 1e-5)


@needs_fixtures
def test_a_reranker_gives_the_scores_of_its_formulas():
    folder = FIXTURES / "models" / "jina-reranker"
    model, expected = alibi.EncoderModel.load(folder), read_tensors(folder / "expected.safetensors")
    ids, types, mask = (expected[f"pairs.{name}"] for name in ("ids", "types", "mask"))
    assert model.labels == 1
    found = model.score_ids(ids, token_type_ids=types, attention_mask=mask)
    assert_close(found, expected["pairs.scores"], 1e-5)
    assert_close(model.score_ids(ids, token_type_ids=types, attention_mask=mask, activation="none"), expected["pairs.logits"], 1e-5)
    rows, row_types = ([row[of == 1].tolist() for row, of in zip(values, mask)] for values in (ids, types))
    assert np.abs(model.score_ids(rows, token_type_ids=row_types) - found).max() <= 1e-6
    assert np.abs(model.score_ids(rows) - found).max() > 1e-4


@needs_fixtures
def test_an_encoder_of_a_gguf_file():
    path = FIXTURES / "gguf" / "jina-bert-v2-f16.gguf"
    model, expected = alibi.EncoderModel.load(path), read_tensors(path.with_suffix(".expected.safetensors"))
    for case in ("short", "long"):
        assert_close(model.hidden(expected[f"{case}.ids"]), expected[f"{case}.hidden"], 1e-4)
    text = "It was the best of times."
    assert_same_direction(model.embed(text), model.hidden(model.tokenize(text)).mean(0))
    assert model.weight_bytes < 4 * model.config["parameters"]  # float16 as in the file


def test_vectors_of_texts_are_the_pooled_states_of_their_tokens(encoder):
    rows = [encoder.tokenize(text) for text in TEXTS]
    assert rows[1].tolist() == [2, *(WORDS.index(w) for w in ("t", "##h", "##e", "s", "##e", "##a")), 3]
    assert rows[1].dtype == np.int32
    for pooling, place in (("mean", slice(None)), ("cls", slice(0, 1)), ("last", slice(-1, None))):
        expected = np.stack([encoder.hidden(row)[place].mean(0) for row in rows])
        assert_same_direction(encoder.embed(TEXTS, pooling=pooling), expected)
        assert_close(encoder.embed(TEXTS, pooling=pooling, normalize=False), expected, 1e-5)
    vector = encoder.embed(TEXTS[0])
    assert vector.shape == (24,) and np.abs(vector - encoder.embed(TEXTS)[0]).max() <= 1e-6
    assert encoder.embed([]).shape == encoder.embed_ids([]).shape == encoder.encode([]).shape == (0, 24)
    assert encoder.tokenize(TEXTS[0], max_tokens=6).tolist() == [*rows[0][:5], 3]
    cut = encoder.embed_ids([encoder.tokenize(TEXTS[0], max_tokens=6)])[0]
    assert np.abs(encoder.embed(TEXTS[0], max_tokens=6) - cut).max() <= 1e-6 < np.abs(vector - cut).max()


def test_encode_takes_what_sentence_transformers_does(encoder, capsys):
    vectors = encoder.encode(TEXTS, batch_size=4)
    assert np.abs(vectors - encoder.embed(TEXTS, normalize=False)).max() <= 1e-5
    assert_same_direction(encoder.encode(TEXTS, normalize_embeddings=True, device="cpu", convert_to_tensor=False), vectors)
    assert encoder.encode(TEXTS[0]).shape == (24,) and encoder.encode(tuple(TEXTS), batch_size=1).shape == (6, 24)
    assert capsys.readouterr().out == ""
    encoder.encode(TEXTS, batch_size=4, show_progress_bar=True)
    assert "encode  100 %" in capsys.readouterr().out
    for options, words in (
        ({"precision": "int8"}, r"\[encode\] precision is 'int8', expected 'float32'"),
        ({"convert_to_numpy": False}, "convert_to_numpy is False, expected True"),
        ({"device": "cuda"}, "expected None or 'cpu'"),
        ({"normalise": True}, "no option 'normalise'"),
        ({"batch_size": 0}, "batch_size is 0, expected at least 1"),
    ):
        with pytest.raises((alibi.UsageError, TypeError), match=words):
            encoder.encode(TEXTS, **options)


def test_late_chunking_pools_spans_of_one_text(encoder):
    text = "a river that is wide and the sea"
    states = encoder.hidden(encoder.tokenize(text))
    spans = [(1, 7), (5, 9), (0, len(states))]
    expected = np.stack([states[begin:end].mean(0) for begin, end in spans])
    assert_same_direction(encoder.embed_spans(text, spans), expected)
    found = encoder.embed_spans(encoder.tokenize(text), np.array(spans), pooling="last", normalize=False)
    assert_close(found, np.stack([states[end - 1] for _, end in spans]), 1e-6)
    assert encoder.embed_spans(text, []).shape == (0, 24)
    for wrong, words in (([(3, 3)], "tokens 3 to 3"), ([(0, 99)], "tokens 0 to 99"), ([1, 2], r"shape \(2,\)"), ([(0.5, 2)], "float64")):
        with pytest.raises((alibi.UsageError, TypeError), match=words):
            encoder.embed_spans(text, wrong)


def test_a_reranker_scores_documents(reranker):
    scores = reranker.rerank("the sea", TEXTS)
    pairs = [reranker.tokenize_pair("the sea", text) for text in TEXTS]
    assert [sum(of == 0 for of in types) for _, types in pairs] == [8] * 6 and pairs[4][0].tolist()[-2:] == [WORDS.index("b"), 3]
    ids, types = zip(*pairs)
    expected = reranker.score_ids(ids, token_type_ids=types)[:, 0]
    assert scores.shape == (6,) and np.abs(scores - expected).max() <= 1e-6 and np.ptp(scores) > 1e-3
    logits = reranker.score_ids(ids, token_type_ids=types, activation="none")[:, 0]
    assert np.abs(scores - 1 / (1 + np.exp(-logits))).max() <= 1e-6
    assert len(reranker.tokenize_pair("the sea", TEXTS[0], max_tokens=12)[0]) == 12
    cut = reranker.rerank("the sea", TEXTS, max_tokens=12)
    assert cut[4] == pytest.approx(scores[4], abs=1e-6) and abs(cut[0] - scores[0]) > 1e-4
    assert reranker.rerank("the sea", []).shape == (0,) and reranker.score_ids([]).shape == (0, 1)
    with pytest.raises(TypeError, match=r"\[rerank\] documents is a str"):
        reranker.rerank("the sea", "the sea")
    with pytest.raises(alibi.UsageError, match="max_tokens is 4, but the first text"):
        reranker.rerank("the sea", TEXTS, max_tokens=4)


def test_an_encoder_that_alibi_trained(tmp_path):
    text = "".join(f"line {i} of a text that counts to {i * i % 97}\n" for i in range(300))
    trained = alibi.train(text, causal=False, train_tokens=2048, layers=1, d_model=32, heads=2, train_length=32, batch_tokens=512).model
    trained.save(tmp_path / "model")
    model, loaded = alibi.EncoderModel(trained), alibi.EncoderModel.load(tmp_path / "model")
    assert model.labels == 0 and model.config == trained.config and repr(model).startswith("EncoderModel(alibi, layers=1")
    assert model.weight_bytes == trained.weight_bytes == 4 * trained.config["parameters"]
    ids = model.tokenize("line 7 of")
    assert ids.tolist() == [256, *b"line 7 of"]
    assert np.array_equal(model.hidden(ids), loaded.hidden(ids))
    assert np.abs(model.hidden(ids) - trained.hidden(ids)).max() <= 1e-5
    assert_same_direction(model.embed("line 7 of"), model.hidden(ids)[1:].mean(0))  # without the end-of-text token
    assert_same_direction(model.embed_ids([ids]), model.hidden(ids).mean(0)[None])
    with pytest.raises(alibi.Error, match="no classifier"):
        model.score_ids([ids])
    with pytest.raises(alibi.Error, match="outputs of a classifier, expected 1"):
        model.rerank("line", ["a", "b"])
    decoder = alibi.train(text, train_tokens=512, layers=1, d_model=32, heads=2, train_length=32, batch_tokens=512).model
    with pytest.raises(alibi.UsageError, match="is a decoder, expected an encoder"):
        alibi.EncoderModel(decoder)
    with pytest.raises(TypeError, match="model is a str, expected a LanguageModel"):
        alibi.EncoderModel(str(tmp_path / "model"))


def test_misuse_is_named(encoder):
    ids, mask = [[2, 5, 6, 3], [2, 7, 3, 0]], [[1, 1, 1, 1], [1, 1, 1, 0]]
    for call, words in (
        (lambda: encoder.hidden([[2.0, 3.0]]), "ids are float64, expected integers"),
        (lambda: encoder.hidden([True, False]), "ids are bool, expected integers"),
        (lambda: encoder.hidden("a text"), "ids are <U6, expected integers"),
        (lambda: encoder.hidden([[[2]]]), r"ids have shape \(1, 1, 1\)"),
        (lambda: encoder.hidden([[2, 3], [2]]), "ids have rows of different lengths"),
        (lambda: encoder.hidden([2**32 + 2]), "ids contain 4294967298, expected integers from 0 to 56"),
        (lambda: encoder.hidden(ids, token_type_ids=[[0, 0], [0, 0]]), r"token_type_ids have shape \(2, 2\).*\(2, 4\)"),
        (lambda: encoder.hidden(ids, attention_mask=[1, 1, 1, 1]), r"attention_mask has shape \(4,\).*\(2, 4\)"),
        (lambda: encoder.hidden(ids, attention_mask=[[1, 0, 1, 1], [1, 1, 1, 0]]), "attention_mask has padding between the tokens of row 0"),
        (lambda: encoder.hidden(ids, attention_mask=[[0, 0, -1e9, 0]] * 2), "attention_mask has other values than 1"),
        (lambda: encoder.embed_ids([2, 5, 3]), r"row of shape \(\), expected a list of sequences.* one sequence is \[rows\]"),
        (lambda: encoder.embed_ids([[2.5]]), r"rows\[0\] are float64"),
        (lambda: encoder.embed_ids("a text"), "rows are a str, expected a list of sequences"),
        (lambda: encoder.embed_ids(7), "rows are a int, expected a list of sequences"),
        (lambda: encoder.embed_ids(ids, token_type_ids=[[0, 0, 1], [0, 0, 1, 1]]), r"rows of \[3, 4\] tokens.*\[4, 4\]"),
        (lambda: encoder.embed_ids([2, 5], attention_mask=[1, 1]), r"rows have shape \(2,\), expected \(rows, length\)"),
        (lambda: encoder.embed_ids(ids, pooling="max"), "pooling.*mean"),
        (lambda: encoder.score_ids(ids, activation="softmax"), "activation is 'softmax', expected sigmoid or none"),
        (lambda: encoder.embed(pathlib.Path("a.txt")), "texts is a PosixPath, expected texts"),
        (lambda: encoder.embed(["a", 3]), r"\[embed\] texts\[1\] is an int, expected a str"),
        (lambda: encoder.tokenize(3), r"\[tokenize\] text is an int, expected a str"),
        (lambda: encoder.rerank(["a"], ["b"]), r"\[rerank\] query is a list, expected a str"),
        (lambda: encoder.embed(["a"], max_tokens=2), "max_tokens is 2, expected more than 2"),
    ):
        with pytest.raises((alibi.UsageError, TypeError), match=words):
            call()
    last = len(WORDS) - 1
    for call, words in (
        (lambda: encoder.hidden([[2, 3], [last + 1, 3]]), f"ids contain {last + 1}, expected integers from 0 to {last}"),
        (lambda: encoder.embed_ids([[2], [-1]]), rf"rows\[1\] contain -1, expected integers from 0 to {last}"),
        (lambda: encoder.embed_ids([[2], []]), "input 1 has no ids"),
        (lambda: encoder.embed_ids(ids, attention_mask=np.multiply(mask, [[1], [0]])), "input 1 has no ids"),
        (lambda: encoder.embed_ids(ids, token_type_ids=np.full((2, 4), 2)), "token_type_ids of input 0 have 2, expected 0 to 1"),
    ):
        with pytest.raises(alibi.Error, match=words):
            call()
    padded = encoder.hidden(ids, attention_mask=[[0, 0, 0, 0], [1, 1, 1, 0]])
    assert not padded[0].any() and not padded[1, 3].any()
    assert np.abs(padded[1, :3] - encoder.hidden([2, 7, 3])).max() <= 1e-6
    assert encoder.hidden(ids, attention_mask=np.zeros((2, 4))).shape == (2, 4, 24)


def test_mteb_takes_them_as_its_models(encoder, reranker, tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from datasets import Dataset
    from mteb.models import CrossEncoderProtocol, EncoderProtocol
    from torch.utils.data import DataLoader

    from alibi_attention.mteb import CrossEncoder, Encoder

    model, cross = Encoder(encoder, name="alibi/random"), CrossEncoder(reranker)
    assert isinstance(model, EncoderProtocol) and not isinstance(model, CrossEncoderProtocol)
    assert isinstance(cross, CrossEncoderProtocol) and not isinstance(cross, EncoderProtocol)
    for ours, protocol in ((Encoder.encode, EncoderProtocol.encode), (CrossEncoder.predict, CrossEncoderProtocol.predict)):
        names = [name for name, of in inspect.signature(protocol).parameters.items() if of.kind != of.VAR_KEYWORD]
        assert [name for name in inspect.signature(ours).parameters if name in names] == names
    meta = model.mteb_model_meta
    assert meta.name == "alibi/random" and meta.embed_dim == 24 and meta.n_parameters == encoder.config["parameters"]
    assert Encoder(write_encoder(tmp_path / "folder")).mteb_model_meta.name == "alibi/folder"
    with pytest.raises(alibi.UsageError, match="outputs of a classifier, expected 1"):
        CrossEncoder(encoder)

    where = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    loader = DataLoader(Dataset.from_dict({"text": TEXTS}), batch_size=4)
    vectors = model.encode(loader, batch_size=4, **where)
    assert np.abs(vectors - encoder.embed(TEXTS, normalize=False)).max() <= 1e-5
    queries = DataLoader(Dataset.from_dict({"text": ["the sea"] * 6}), batch_size=4)
    assert np.abs(cross.predict(queries, loader, **where) - reranker.rerank("the sea", TEXTS)).max() <= 1e-6

    class Pairs(mteb.abstasks.AbsTaskSTS):
        metadata = mteb.TaskMetadata(
            name="Pairs", dataset={"path": "made/here", "revision": "1"}, description="Made here.", reference=None, type="STS",
            category="t2t", modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score="cosine_spearman",
            date=None, domains=None, task_subtypes=None, license=None, annotations_creators=None, dialect=None,
            sample_creation=None, bibtex_citation="",
        )  # fmt: skip

        def load_data(self, **_):
            # Scores are the cosines of the model itself, so that their correlation is known.
            pairs = {"sentence1": TEXTS[:-1], "sentence2": TEXTS[1:], "score": (vectors_1 * vectors_2).sum(-1).tolist()}
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(pairs)}, True

    normalized = encoder.embed(TEXTS).astype(np.float64)
    vectors_1, vectors_2 = normalized[:-1], normalized[1:]
    found = mteb.evaluate(model, Pairs(), cache=None, encode_kwargs={"batch_size": 4}, show_progress_bar=False)
    scores = found.task_results[0].scores["test"][0]
    assert scores["cosine_spearman"] == pytest.approx(1) and scores["cosine_pearson"] == pytest.approx(1, abs=1e-5)
    assert scores["spearman"] == pytest.approx(1)


def test_precision_and_types_of_weights_change_the_vectors_a_little(tmp_path: pathlib.Path) -> None:
    folder = write_encoder(tmp_path / "jina")
    rows = [list(range(5, 45)), list(range(9, 20))]
    exact = alibi.EncoderModel.load(folder).embed_ids(rows)
    q8_0 = alibi.EncoderModel.load(folder, weights="q8_0").embed_ids(rows)
    for options in ({"precision": "bf16"}, {"weights": "bf16"}, {"weights": "q8_0", "quantize_activations": True}):
        model = alibi.EncoderModel.load(folder, **options)
        found = model.embed_ids(rows)
        assert not np.array_equal(found, exact) and not np.array_equal(found, q8_0), options
        assert (found * exact).sum(axis=1).min() > 0.999, options
    assert (q8_0 * exact).sum(axis=1).min() > 0.999
    assert np.array_equal(alibi.EncoderModel.load(folder, precision="f32", weights="f32").embed_ids(rows), exact)
    with pytest.raises(alibi.UsageError, match="q8_0"):
        alibi.EncoderModel.load(folder, weights="q4")
    with pytest.raises(alibi.UsageError, match="bf16"):
        alibi.EncoderModel.load(folder, precision="half")
