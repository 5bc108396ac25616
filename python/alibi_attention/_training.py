"""Training a language model."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from ._arguments import checked
from ._model import Array, Evaluation, LanguageModel, need_models
from ._progress import OnProgress, from_core
from ._results import Result, axes, frame, table
from ._text import Text, paths_of


@dataclass(frozen=True)
class TrainResult(Result):
    """A trained model, and how it went."""

    model: LanguageModel
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float
    end: str
    """ "all_tokens"; "no_gain": `patience` evaluations brought no new best; "asked": on_progress returned False."""
    train_length: int
    train_bytes: int
    valid_bytes: int
    loss: Array
    """(steps,) float32: mean nll of each update, nats"""
    evaluations: tuple[tuple[int, float], ...]
    """(updates done, held-out nll), with eval_steps"""
    valid_tokens: Array
    """(tokens,) int32: the text that was held out"""

    def evaluate(self, *, length: int = 0, stride: int = 0) -> Evaluation:
        """Of the model, on the text that was held out."""
        found = self.model.evaluate(self.valid_tokens, length=length, stride=stride)
        bits = found.nll * len(self.valid_tokens) / np.log(2)
        return Evaluation(**{**found.to_dict(), "bits_per_byte": float(bits / self.valid_bytes)})

    def to_pandas(self) -> Any:
        """A row for each update."""
        held_out = np.full(len(self.loss), np.nan)
        for step, loss in self.evaluations:
            held_out[step - 1] = loss
        return frame({"step": np.arange(1, len(self.loss) + 1), "loss": self.loss, "valid_loss": held_out})

    def plot(self, ax: Any = None) -> Any:
        """The loss of training, and of the held-out text where it was measured."""
        ax = axes(ax)
        ax.plot(np.arange(1, len(self.loss) + 1), self.loss, label="training")
        if self.evaluations:
            ax.plot(*zip(*self.evaluations), "o-", label="held out")
        ax.set(xlabel="update", ylabel="nll (nats)")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        row = [self.steps, self.tokens, self.tokens_per_second, float(self.loss[-1]), self.model.config["parameters"]]
        return table(["updates", "tokens", "tokens per second", "last loss", "parameters"], [row])


def tokenizer_choice(kind: str, vocab_size: int, min_count: int, like: Any) -> dict[str, Any]:
    return {"kind": kind, "vocab_size": vocab_size, "min_count": min_count, "like": like or ""}


@checked
def train(
    text: Text | None = None,
    *,
    valid: Text | None = None,
    preset: str = "tiny",
    position: str = "alibi",
    tokenizer: str = "byte",
    vocab_size: int = 0,
    min_count: int = 1,
    like: str | os.PathLike[str] | None = None,
    dropout: float | None = None,
    from_model: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    field: str = "text",
    on_progress: OnProgress | None = None,
    **options: Any,
) -> TrainResult:
    """Trains a language model.

    text          a str is the text itself; a pathlib.Path is a file, a folder, or a folder of `alibi tokenize`; or a
                  list of these. None: the C++ headers of this machine
    valid         held-out text, in the same forms; None: a part of the text, chosen by a fixed rule
    preset        size of the model: tiny, small, base, medium, large ...
    position      position method: "alibi", "t5" ...; an error for another name lists all
    tokenizer     byte, bpe, unigram or words, learned from the text (vocab_size, min_count); like: that of a model
    from_model    fine-tune this model: start from its weights, with its shape and tokenizer
    out           folder for checkpoints and the model; with resume the run continues from its newest checkpoint (give
                  the text by its path then); a model or a run in the folder is replaced only with overwrite
    on_progress   called with a Progress after each update, e.g. alibi.show_progress; return False to end the training
    options       those of `alibi train --help all`, with underscores: train_length, train_tokens,
                  learning_rate, layers, d_model, seed ...

    Warns (UserWarning) if a quarter or more of the held-out text is also in the training text. Ctrl-C ends training
    after the current update, with a checkpoint if `out` is given. The same call gives the same bits, at any
    number of threads.
    """
    need_models()
    with paths_of("train", text, valid) as (texts, held_out):
        model, trained = _core.train(
            texts, held_out, field, tokenizer_choice(tokenizer, vocab_size, min_count, like),
            from_model or "", preset, position, dropout, options, out or "", resume, overwrite, from_core(on_progress),
        )  # fmt: skip
    if message := trained.pop("warning"):
        warnings.warn(f"[train] {message}", stacklevel=3)
    return TrainResult(model=LanguageModel(model), **trained)
