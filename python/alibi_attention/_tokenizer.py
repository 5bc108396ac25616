"""Tokenizers, without a model."""

from __future__ import annotations

import os
from typing import Any

from . import _core
from ._arguments import checked, token_ids
from ._core import UsageError
from ._model import need_models


class Tokenizer:
    """Text to token ids and back: Tokenizer.load(path). Threads may share it."""

    def __init__(self, tokenizer: Any) -> None:
        if not _core.has_models or not isinstance(tokenizer, _core.Tokenizer):
            raise UsageError("[Tokenizer] is made by Tokenizer.load(path)")
        self._core = tokenizer

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer.json of Hugging Face's library, a SentencePiece model (*.model), or a folder with one of
        these, such as a model folder."""
        need_models()
        return cls(_core.Tokenizer.load(path))

    @checked
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the tokenizer's files into an existing folder."""
        self._core.save(folder)

    @property
    def kind(self) -> str:
        """The format and the algorithm, such as "hf-bpe" or "spm-unigram"; "byte", "bpe", "unigram" or "words" for
        tokenizers that alibi trained."""
        kind: str = self._core.kind()
        return kind

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        size: int = self._core.vocab_size()
        return size

    @property
    def begin_of_text(self) -> int | None:
        """The id of the token before a text (BOS). None if the file names none, and for tokenizers that alibi trained,
        which put end_of_text there."""
        token: int | None = self._core.begin_of_text()
        return token

    @property
    def end_of_text(self) -> int:
        """The id of the token that ends a text. Raises Error if the file names none."""
        token: int = self._core.end_of_text()
        return token

    @checked
    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids. Special tokens in the text are recognized, as Hugging Face's library does.

        add_special_tokens  adds those that the tokenizer's file asks for, such as <s> before and </s> after the text
        """
        ids: list[int] = self._core.encode(text, add_special_tokens)
        return ids

    @checked
    def encode_pair(self, first: str, second: str, add_special_tokens: bool = True) -> tuple[list[int], list[int]]:
        """Token ids and type ids of two texts that a model reads as one input."""
        ids, type_ids = self._core.encode_pair(first, second, add_special_tokens)
        return ids, type_ids

    @checked
    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are not UTF-8 are replaced by U+FFFD."""
        found = token_ids(ids, "decode")
        text: str = self._core.decode(found, skip_special_tokens) if found.size else ""
        return text

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, vocab_size={self.vocab_size})"
