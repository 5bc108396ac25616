"""MTEB's wrappers for OpenAI-compatible servers encode and rerank."""

import pathlib
import sys

import numpy as np
import pytest
from conftest import serving

mteb = pytest.importorskip("mteb", reason="mteb is not installed")
alibi = pytest.importorskip("alibi_attention", reason="the Python package is not installed")
from datasets import Dataset  # noqa: E402
from mteb.models.openai_wrappers import (  # noqa: E402
    OpenAIAPIEncodeWrapper,
    OpenAIAPIRerankWrapper,
    OpenAIAPITokenEmbedWrapper,
)
from torch.utils.data import DataLoader  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).parents[2] / "python/tests"))
from test_encoders import write_encoder  # noqa: E402

TEXTS = ["the sea", "a ship on the sea", "", "two words", "the quick brown fox " * 9]


def inputs(texts):
    return DataLoader(Dataset.from_dict({"text": texts}), batch_size=2)


WHERE = {"task_metadata": None, "hf_split": "test", "hf_subset": "default", "show_progress_bar": False}


@pytest.fixture(scope="module")
def encoder(folder):
    path = write_encoder(folder / "encoder")
    for server in serving(path):
        yield server, alibi.EncoderModel.load(path)


def test_texts_are_encoded(encoder):
    server, model = encoder
    wrapper = OpenAIAPIEncodeWrapper(server.url, "encoder", use_chat_template=False)
    vectors = wrapper.encode(inputs(TEXTS), batch_size=2, **WHERE)
    expected = model.embed(TEXTS)
    cosines = (vectors * expected).sum(-1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
    assert vectors.shape == expected.shape and np.abs(cosines - 1).max() <= 1e-5


def test_token_vectors_are_given(encoder):
    server, model = encoder
    wrapper = OpenAIAPITokenEmbedWrapper(server.url, "encoder", use_chat_template=False)
    found = wrapper._encode(inputs(TEXTS[:2]), batch_size=2, **WHERE)
    for vectors, text in zip(found, TEXTS, strict=False):
        ids, _ = model._core.encode(text, 0)
        assert vectors.shape == (len(ids), model.config["d_model"])
        assert np.abs(vectors - model.hidden(ids)).max() <= 1e-4


def test_texts_are_reranked(folder):
    path = write_encoder(folder / "reranker", labels=1)
    model = alibi.EncoderModel.load(path)
    for server in serving(path):
        wrapper = OpenAIAPIRerankWrapper(server.url, "reranker")
        scores = wrapper.predict(inputs(["the sea"] * len(TEXTS)), inputs(TEXTS), **WHERE)
        assert np.abs(scores - model.rerank("the sea", TEXTS)).max() <= 1e-5
