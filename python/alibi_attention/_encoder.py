"""Encoders: states of tokens, vectors of texts, and scores of rerankers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _core
from ._arguments import checked, naming, token_ids, wrong_type
from ._core import UsageError
from ._model import Array, LanguageModel
from ._padding import padding_of, tokens_of
from ._progress import Progress, show_progress

# Options of encode() in sentence-transformers, with the values that mean what is done here.
_OF_SENTENCE_TRANSFORMERS: dict[str, tuple[Any, ...]] = {
    "convert_to_tensor": (False,),
    "device": (None, "cpu"),
    "output_value": ("sentence_embedding",),
    "precision": ("float32",),
    "prompt": (None, ""),
    "prompt_name": (None,),
}


class EncoderModel:
    """An encoder: EncoderModel.load(path), or EncoderModel(train(..., causal=False).model). Threads may share it.

    It reads Jina embeddings v2, Jina's code models, jina-reranker-v1, MosaicBERT, DNABERT-2, and encoders that alibi
    trained. Rows of different lengths are computed together without padding. The other rows of a call change a result
    by rounding only.
    """

    def __init__(self, model: LanguageModel) -> None:
        if not isinstance(model, LanguageModel):
            raise wrong_type("EncoderModel", "model", model, "a LanguageModel; EncoderModel.load(path) reads a file")
        self._model = model
        self._core = _core.EncoderModel(model._core)

    @classmethod
    @checked
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        precision: str = "f32",
        weights: str | None = None,
        quantize_activations: bool = False,
    ) -> EncoderModel:
        """Reads a model folder or a GGUF file. Raises UsageError for a decoder.

        precision, weights,   as in LanguageModel.load(). On processors with fast bfloat16 products "auto" takes about
        quantize_activations  half the time, and the cosine to the vectors of "f32" is above 0.9999 for usual models
        """
        return cls(LanguageModel.load(path, precision=precision, weights=weights, quantize_activations=quantize_activations))

    @property
    def config(self) -> dict[str, Any]:
        """layers, d_model, heads, vocab_size, train_length, parameters, tokenizer, and the other fields of the model"""
        return self._model.config

    @property
    def labels(self) -> int:
        """Number of outputs of the classifier; 0: the model has none."""
        labels: int = self._core.labels()
        return labels

    @property
    def weight_bytes(self) -> int:
        """See LanguageModel.weight_bytes."""
        return self._model.weight_bytes

    @checked
    def tokenize(self, text: str, *, max_tokens: int = 0) -> Array:
        """Token ids of a text as the model reads it, with special tokens: int32 (tokens,).

        max_tokens  above 0: longer texts are cut to this number of ids; the special tokens after the text are kept
        """
        ids: Array = self._core.encode(text, max_tokens)[0]
        return ids

    @checked
    def tokenize_pair(self, first: str, second: str, *, max_tokens: int = 0) -> tuple[Array, Array]:
        """Token ids and token types of two texts that a reranker reads as one input: int32 (tokens,) each.

        max_tokens  above 0: the second text is cut so that both have at most this number of ids together
        """
        ids, types = self._core.encode_pair(first, second, max_tokens)
        return ids, types

    def hidden(self, ids: Any, token_type_ids: Any = None, attention_mask: Any = None) -> Array:
        """Final hidden states of ids (length,) or (batch, length): float32 (..., length, d_model).

        token_type_ids  segments, of the shape of ids (None: all are 0)
        attention_mask  of the shape of ids, 1 or True for tokens and 0 for padding before or after the tokens of a row:
                        each row gives what its tokens alone give, and zeros at its padding
        """
        found = token_ids(ids, "hidden", vocab_size=self.config["vocab_size"])
        if found.ndim not in (1, 2):
            raise UsageError(f"[hidden] ids have shape {found.shape}, expected (length,) or (batch, length)")
        batch, types, tokens = (
            None if x is None else np.atleast_2d(x) for x in _padded(found, token_type_ids, attention_mask, "hidden")
        )
        assert batch is not None and tokens is not None
        counts = tokens.sum(axis=1)
        states = self._core.hidden(batch[tokens], None if types is None else types[tokens], counts[counts > 0].tolist())
        result = np.zeros((*batch.shape, self.config["d_model"]), np.float32)
        result[tokens] = states
        return result[0] if found.ndim == 1 else result

    @checked
    def embed_ids(
        self,
        rows: Any,
        pooling: str = "mean",
        normalize: bool = True,
        *,
        token_type_ids: Any = None,
        attention_mask: Any = None,
    ) -> Array:
        """A vector for each row of token ids: float32 (rows, d_model).

        vectors = model.embed_ids([[2, 17, 3], [2, 41, 42, 43, 3]])

        rows            a list of sequences of ids, of any lengths; or ids (rows, length) with an attention_mask
        pooling         of the hidden states: "mean" of all ids, "cls" (also "first"; the first id) or "last"
        normalize       scale each vector to length 1, so that dot products are cosines
        token_type_ids  segments, in the form of rows (None: all are 0)
        attention_mask  see hidden()
        """
        vectors: Array = self._core.embed_inputs(
            *_packed(rows, token_type_ids, attention_mask, "embed_ids", self.config["vocab_size"]), pooling, normalize
        )
        return vectors

    @checked
    def score_ids(
        self, rows: Any, token_type_ids: Any = None, *, attention_mask: Any = None, activation: str = "sigmoid"
    ) -> Array:
        """The classifier's outputs for each row of token ids: float32 (rows, labels). Raises Error if there is none.

        rows, token_type_ids, attention_mask  see embed_ids()
        activation                            "sigmoid": outputs become scores between 0 and 1; "none": as they are
        """
        if activation not in ("sigmoid", "none"):
            raise UsageError(f"[score_ids] activation is {activation!r}, expected sigmoid or none")
        logits: Array = self._core.logits(
            *_packed(rows, token_type_ids, attention_mask, "score_ids", self.config["vocab_size"])
        )
        if activation == "none":
            return logits
        scores: Array = (1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)
        return scores

    @checked
    def embed(
        self, texts: str | Sequence[str], *, pooling: str = "mean", normalize: bool = True, max_tokens: int = 0
    ) -> Array:
        """A vector for each text: float32 (texts, d_model), or (d_model,) for a single str.

        pooling, normalize  see embed_ids(). For models that alibi trained, the mean leaves out the end-of-text token
                            before the text.
        max_tokens          above 0: longer texts are cut to this number of ids
        """
        vectors: Array = self._core.embed([texts] if isinstance(texts, str) else texts, pooling, normalize, max_tokens)
        return vectors[0] if isinstance(texts, str) else vectors

    @checked
    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        convert_to_numpy: bool = True,
        show_progress_bar: bool | None = False,
        pooling: str = "mean",
        max_tokens: int = 0,
        **options: Any,
    ) -> Array:
        """embed() with the names of sentence-transformers: float32 (sentences, d_model), or (d_model,) for a str.

        Sentences are computed batch_size at a time, and Ctrl-C ends the call between batches. Other options of
        sentence-transformers are accepted with the values that mean the same, such as device="cpu". Raises UsageError
        for other values and names.
        """
        for name, value in {**options, "convert_to_numpy": convert_to_numpy}.items():
            expected = {**_OF_SENTENCE_TRANSFORMERS, "convert_to_numpy": (True,)}.get(name)
            if expected is None:
                raise UsageError(f"[encode] there is no option {name!r}")
            if not any(value is one or (type(value) is type(one) and value == one) for one in expected):
                raise UsageError(f"[encode] {name} is {value!r}, expected {' or '.join(map(repr, expected))}")
        if batch_size < 1:
            raise UsageError(f"[encode] batch_size is {batch_size}, expected at least 1")
        texts = [sentences] if isinstance(sentences, str) else sentences
        vectors = np.empty((len(texts), self.config["d_model"]), np.float32)
        for begin in range(0, len(texts), batch_size):
            part = texts[begin : begin + batch_size]
            vectors[begin : begin + len(part)] = self._core.embed(part, pooling, normalize_embeddings, max_tokens)
            if show_progress_bar:
                show_progress(Progress("encode", (begin + len(part)) / len(texts)))
        return vectors[0] if isinstance(sentences, str) else vectors

    @checked
    def embed_spans(
        self, text: str | Any, spans: Iterable[Sequence[int]], *, pooling: str = "mean", normalize: bool = True
    ) -> Array:
        """Late chunking: float32 (spans, d_model), the vector of each span of one text, whose states have seen all of it.

        text   a str, or token ids (length,)
        spans  (begin, end) of each, indices of tokens; end is not included. tokenize(text) shows the tokens of a str.
               Spans may overlap.
        """
        ids = self.tokenize(text) if isinstance(text, str) else token_ids(text, "embed_spans", "text", self.config["vocab_size"])
        if ids.ndim != 1:
            raise UsageError(f"[embed_spans] text has shape {ids.shape}, expected (length,)")
        if isinstance(spans, str) or not isinstance(spans, Iterable):
            raise wrong_type("embed_spans", "spans", spans, "a list of (begin, end)")
        with naming("embed_spans", "spans", spans):
            listed = list(spans)
        places = token_ids(listed, "embed_spans", "spans")
        if places.size and (places.ndim != 2 or places.shape[1] != 2):
            raise UsageError(f"[embed_spans] spans have shape {places.shape}, expected (spans, 2), begin and end of each")
        vectors: Array = self._core.embed_spans(ids, places.tolist(), pooling, normalize)
        return vectors

    @checked
    def rerank(self, query: str, documents: Sequence[str], *, max_tokens: int = 0) -> Array:
        """The relevance of each document for the query, between 0 and 1: float64 (documents,), in their order.

        best_first = np.argsort(-model.rerank(query, documents))

        max_tokens  above 0: documents are cut so that query and document have at most this number of ids together
        """
        scores: Array = self._core.rerank(query, documents, max_tokens)
        return scores

    def __repr__(self) -> str:
        return repr(self._model).replace("LanguageModel", "EncoderModel", 1)


def _padded(
    ids: Array, token_type_ids: Any, attention_mask: Any, operation: str, name: str = "ids"
) -> tuple[Array, Array | None, Array]:
    """(ids, types or None, True where a token is), all of the shape of ids."""
    types = None if token_type_ids is None else token_ids(token_type_ids, operation, "token_type_ids")
    if types is not None and types.shape != ids.shape:
        raise UsageError(f"[{operation}] token_type_ids have shape {types.shape}, expected that of {name}, {ids.shape}")
    if attention_mask is None:
        return ids, types, np.ones(ids.shape, np.bool_)
    padding = padding_of(attention_mask, operation)
    if padding.shape != ids.shape:
        raise UsageError(f"[{operation}] attention_mask has shape {padding.shape}, expected that of {name}, {ids.shape}")
    rows = np.atleast_2d(padding)
    return ids, types, tokens_of(rows, rows.shape, operation, "attention_mask").reshape(ids.shape)


def _packed(
    rows: Any, token_type_ids: Any, attention_mask: Any, operation: str, vocab_size: int
) -> tuple[Array, Array | None, list[int]]:
    """The ids of all rows one after the other, their types or None, and the number of ids of each row."""
    if attention_mask is not None:
        ids, types, tokens = _padded(
            token_ids(rows, operation, "rows", vocab_size), token_type_ids, attention_mask, operation, "rows"
        )
        if ids.ndim != 2:
            raise UsageError(f"[{operation}] rows have shape {ids.shape}, expected (rows, length) with an attention_mask")
        return ids[tokens], None if types is None else types[tokens], tokens.sum(axis=1).tolist()
    found = _sequences(rows, operation, "rows", vocab_size)
    counts = [len(row) for row in found]
    ids = np.concatenate([*found, np.empty(0, np.int32)])
    if token_type_ids is None:
        return ids, None, counts
    of_types = _sequences(token_type_ids, operation, "token_type_ids")
    if [len(row) for row in of_types] != counts:
        raise UsageError(
            f"[{operation}] token_type_ids have rows of {[len(row) for row in of_types]} tokens, expected those of the "
            f"rows, {counts}"
        )
    return ids, np.concatenate([*of_types, np.empty(0, np.int32)]), counts


def _sequences(rows: Any, operation: str, name: str, vocab_size: int = 0) -> list[Array]:
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise UsageError(f"[{operation}] {name} are a {type(rows).__name__}, expected a list of sequences of integers")
    found = []
    with naming(operation, name, rows):
        rows = list(rows)
    for i, row in enumerate(rows):
        found.append(token_ids(row, operation, f"{name}[{i}]", vocab_size))
        if np.ndim(row) != 1:  # token_ids() makes a sequence of a number
            raise UsageError(
                f"[{operation}] {name} have a row of shape {np.shape(row)}, expected a list of sequences of integers; one "
                f"sequence is [{name}]"
            )
    return found
