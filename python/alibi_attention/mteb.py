"""Encoders and rerankers as models of mteb, the benchmark of text embeddings (mteb 2, from PyPI).

    import mteb
    from alibi_attention.mteb import Encoder
    results = mteb.evaluate(Encoder("jina-embeddings-v2-small-en"), mteb.get_tasks(["STSBenchmark"]))
"""

from __future__ import annotations

import importlib
import os
import pathlib
from typing import Any

import numpy as np

from ._core import UsageError
from ._encoder import EncoderModel
from ._model import Array


class _Model:
    def __init__(self, model: EncoderModel | str | os.PathLike[str], revision: str | None, name: str, device: str | None,
                 max_tokens: int) -> None:  # fmt: skip
        if device not in (None, "cpu"):
            raise UsageError(f"[mteb] device is {device!r}, expected cpu")
        if not name:
            name = "alibi/model" if isinstance(model, EncoderModel) else f"alibi/{pathlib.Path(model).resolve().name}"
        self.model = model if isinstance(model, EncoderModel) else EncoderModel.load(model)
        self.max_tokens = max_tokens
        self._described = {
            "name": name,
            "revision": revision,
            "n_parameters": self.model.config["parameters"],
            "memory_usage_mb": self.model.weight_bytes / 2**20,
            "max_tokens": max_tokens or None,
        }

    def _meta(self, **more: Any) -> Any:
        meta = importlib.import_module("mteb.models.model_meta")
        return meta.ModelMeta.create_empty({"loader": type(self), **self._described, **more})


class Encoder(_Model):
    """An encoder with mteb's EncoderProtocol. It gives vectors, which mteb compares by cosine.

    model       an EncoderModel, or what EncoderModel.load() reads
    name        in the results, ORGANIZATION/MODEL; "": alibi/ and the name of the folder or file
    max_tokens  longer texts are cut to this number of tokens; 0: never
    """

    def __init__(
        self,
        model: EncoderModel | str | os.PathLike[str],
        revision: str | None = None,
        *,
        name: str = "",
        device: str | None = None,
        pooling: str = "mean",
        max_tokens: int = 0,
    ) -> None:
        super().__init__(model, revision, name, device, max_tokens)
        self.pooling = pooling

    @property
    def mteb_model_meta(self) -> Any:
        """mteb's ModelMeta"""
        functions = importlib.import_module("mteb.models.model_meta").ScoringFunction
        return self._meta(embed_dim=self.model.config["d_model"], similarity_fn_name=functions.COSINE)

    def encode(self, inputs: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, prompt_type: Any = None,
               **options: Any) -> Array:  # fmt: skip
        """The vectors of the texts of a DataLoader: float32 (texts, d_model). options are those of EncoderModel.encode()."""
        texts = [text for batch in inputs for text in batch["text"]]
        return self.model.encode(texts, pooling=self.pooling, max_tokens=self.max_tokens, **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines, (vectors 1, vectors 2)"""
        return importlib.import_module("mteb.similarity_functions").cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of the pairs, (vectors,)"""
        return importlib.import_module("mteb.similarity_functions").pairwise_cos_sim(embeddings1, embeddings2)


class CrossEncoder(_Model):
    """A reranker with mteb's CrossEncoderProtocol. The arguments are those of Encoder."""

    def __init__(
        self,
        model: EncoderModel | str | os.PathLike[str],
        revision: str | None = None,
        device: str | None = None,
        *,
        name: str = "",
        max_tokens: int = 0,
    ) -> None:
        super().__init__(model, revision, name, device, max_tokens)
        if self.model.labels != 1:
            raise UsageError(f"[mteb] the model has {self.model.labels} outputs of a classifier, expected 1: a reranker")

    @property
    def mteb_model_meta(self) -> Any:
        """mteb's ModelMeta"""
        return self._meta(model_type=["cross-encoder"])

    def predict(self, inputs1: Any, inputs2: Any, *, task_metadata: Any, hf_split: str, hf_subset: str,
                prompt_type: Any = None, **options: Any) -> Array:  # fmt: skip
        """The relevance of each text of inputs2 for the one of inputs1 at its place: float32 (pairs,)."""
        scores = [np.empty(0, np.float32)]
        for queries, documents in zip(inputs1, inputs2, strict=True):
            pairs = zip(queries["text"], documents["text"], strict=True)
            read = [self.model.tokenize_pair(*pair, max_tokens=self.max_tokens) for pair in pairs]
            ids, types = [ids for ids, _ in read], [types for _, types in read]
            scores.append(self.model.score_ids(ids, token_type_ids=types)[:, 0])
        return np.concatenate(scores)
