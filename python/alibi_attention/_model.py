"""Language models: generation, scores, hidden states and vectors."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Union

import numpy as np

from . import _core
from ._arguments import checked, checked_options, integer, naming, token_ids, token_sequence, wrong_type
from ._core import UsageError
from ._padding import padding_of, tokens_of
from ._progress import OnProgress, from_core
from ._results import Result, axes, frame, table
from ._text import Text, paths_of

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in typing since Python 3.11

Array = np.ndarray[Any, Any]
Scored = Union[Text, Array]


def need_models() -> None:
    if not _core.has_models:
        raise _core.Error("[models] this build of the package has the operator alone; build it with ALIBI_BUILD_MODELS=ON")


@dataclass(frozen=True)
class Generation(Result):
    """A generated text. str() gives the prompt and the text."""

    prompt: str
    text: str
    tokens: int
    end: str
    """ "tokens" (max_tokens reached), "end_of_text", "stop", or "callback" (on_text returned False)"""
    seconds: float
    tokens_per_second: float

    def __str__(self) -> str:
        return self.prompt + self.text

    def _repr_html_(self) -> str:
        return (
            f'<div style="white-space: pre-wrap"><b>{html.escape(self.prompt)}</b>{html.escape(self.text)}</div>'
            f"<small>{self.tokens} tokens, {self.tokens_per_second:.0f} per second</small>"
        )


@dataclass(frozen=True)
class Scores(Result):
    """The loss of each token of a text, predicted from the tokens before it."""

    ids: Array
    """(tokens,) int32"""
    nll: Array
    """(tokens,) float32, nats"""
    pieces: tuple[str, ...]
    """The text of each token."""

    @property
    def mean(self) -> float:
        """Nats per token."""
        return float(self.nll.mean(dtype=np.float64))

    @property
    def perplexity(self) -> float:
        return float(np.exp(self.mean))

    def to_pandas(self) -> Any:
        """A row for each token."""
        return frame({"id": self.ids, "text": self.pieces, "nll": self.nll})

    def plot(self, ax: Any = None) -> Any:
        """Plots the loss of each token and the mean of 128 tokens, on `ax` or on new axes."""
        ax = axes(ax)
        ax.plot(self.nll, ".", markersize=2, alpha=0.4, label="token")
        if len(self.nll) >= 128:
            ax.plot(np.arange(127, len(self.nll)), np.convolve(self.nll, np.full(128, 1 / 128), "valid"), label="mean of 128")
        ax.set(xlabel="token", ylabel="nll (nats)")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        """The text with unexpected tokens in red; at most the first 2000 tokens."""
        shown = [
            f'<span title="{loss:.2f}" style="background: rgba(220, 50, 30, {min(float(loss) / 12, 0.8):.2f})">'
            f"{html.escape(piece)}</span>"
            for piece, loss in zip(self.pieces[:2000], self.nll)
        ]
        rest = len(self.nll) - len(shown)
        more = f"<small> … and {rest} tokens more</small>" if rest else ""
        return (
            f'<div style="white-space: pre-wrap">{"".join(shown)}{more}</div><small>{len(self.nll)} tokens, '
            f"perplexity {self.perplexity:.4g}</small>"
        )


@dataclass(frozen=True)
class Evaluation(Result):
    """The loss of a model on a text that is read in windows."""

    length: int
    stride: int
    tokens: int
    nll: float
    """Mean per token, nats."""
    perplexity: float
    bits_per_byte: float
    """nan for tokens whose text is not known."""
    seconds: float
    tokens_per_second: float
    position_nll: Array
    """(length,) mean loss by position in the window, nats; nan where no target was scored."""
    position_tokens: Array
    """(length,) number of targets by position."""

    def to_pandas(self) -> Any:
        """A row for each position in the window."""
        return frame({"position": np.arange(self.length), "nll": self.position_nll, "tokens": self.position_tokens})

    def plot(self, ax: Any = None) -> Any:
        """The loss by position in the window."""
        ax = axes(ax)
        ax.plot(self.position_nll)
        ax.set(xlabel=f"position in the window of {self.length}", ylabel="nll (nats)")
        return ax

    def _repr_html_(self) -> str:
        names = ("length", "stride", "tokens", "nll", "perplexity", "bits_per_byte", "tokens_per_second")
        return table([name.replace("_", " ") for name in names], [[getattr(self, name) for name in names]])


class GenerationOptions(TypedDict, total=False):
    """The options of generate(), which says what they mean. _core takes them as one dict."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int
    stop: str | Sequence[str]
    stop_at_end_of_text: bool


takes_generation_options = checked_options(
    GenerationOptions,
    {"max_tokens": 256, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
     "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": {}, "seed": 0, "stop": (), "stop_at_end_of_text": False},
)  # fmt: skip


class LanguageModel:
    """A language model: LanguageModel.load(folder), or train(...).model. Threads may share it."""

    def __init__(self, model: Any) -> None:
        if not _core.has_models or not isinstance(model, _core.LanguageModel):
            raise UsageError("[LanguageModel] is made by LanguageModel.load(folder) or alibi.train(text)")
        self._core = model
        self._config: dict[str, Any] = model.describe()

    @classmethod
    @checked
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        precision: str = "f32",
        weights: str | None = None,
        quantize_activations: bool = False,
    ) -> LanguageModel:
        """Reads a model: a folder of `alibi train`, a folder of a supported family, a GGUF file, or a name on the
        Hugging Face hub whose files are in the local cache: "org/name" or "hf:org/name[/file.gguf][@revision]".

        precision  of large matrix products: "f32", "bf16", or "auto", the faster one on this CPU
        weights    converts the matrices to "f32", "bf16", "q8_0", "q4_0" or "q4_k" (None: as they are in the file)
        quantize_activations  rounds what is multiplied with weights of 8 or 4 bits to 8 bits: faster, less exact
        """
        need_models()
        return cls(_core.LanguageModel.load(folder, precision, weights, quantize_activations))

    @checked
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a model folder, which transformers can read too."""
        self._core.save(folder)

    @property
    def config(self) -> dict[str, Any]:
        """position, layers, d_model, heads, causal, vocab_size, train_length, parameters, tokenizer"""
        return dict(self._config)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters in their data types, in memory and in mapped files together."""
        size: int = self._core.weight_bytes()
        return size

    @property
    def slopes(self) -> list[list[float]]:
        """ALiBi's slopes of each layer and head; empty for other position methods."""
        return [list(layer) for layer in self._core.slopes()]

    @checked
    def encode(self, text: str) -> Array:
        """Token ids, int32."""
        ids: Array = self._core.encode(text)
        return ids

    def decode(self, ids: Any) -> str:
        """The text of token ids; bytes that are not UTF-8 are replaced by U+FFFD."""
        text: str = self._core.decode(token_ids(ids, "decode"))
        return text

    def hidden(self, ids: Any, key_padding_mask: Any = None) -> Array:
        """Final hidden states of ids (length,) or (batch, length): float32 (..., length, d_model).

        key_padding_mask  bool of the shape of ids, True at padding (before or after the tokens of a row). Each row
                          gets the result of its tokens alone, and zeros at its padding.
        """
        if key_padding_mask is None:
            return self._batched(self._core.hidden, ids, "hidden")
        with naming("hidden", "key_padding_mask", key_padding_mask):
            padding = np.asarray(key_padding_mask)
        return self._padded(self._core.hidden, ids, padding, self._config["d_model"], "hidden", "key_padding_mask")

    def logits(self, ids: Any, attention_mask: Any = None) -> Array:
        """Logits of the token after each of ids (length,) or (batch, length): float32 (..., length, vocab_size).

        attention_mask  of the shape of ids, 1 or True for tokens and 0 for padding before or after the tokens of a row:
                        each row gives what its tokens alone give, and zeros at its padding
        """
        if attention_mask is None:
            return self._batched(self._core.logits, ids, "logits")
        padding = padding_of(attention_mask, "logits")
        return self._padded(self._core.logits, ids, padding, self._config["vocab_size"], "logits", "attention_mask")

    @checked
    def generate_ids(self, ids: Any, max_tokens: int = 256, temperature: float = 1.0, *, seed: int = 0) -> Array:
        """Ids after those of a prompt, int32: for models without a tokenizer. Nothing ends them but max_tokens."""
        prompt = token_sequence(ids, "generate_ids", vocab_size=self._config["vocab_size"])
        made: Array = self._core.generate_ids(prompt[None], max_tokens, temperature, seed)
        return made

    def _model_ids(self, ids: Any, operation: str) -> Array:
        found = token_ids(ids, operation, vocab_size=self._config["vocab_size"])
        if found.ndim not in (1, 2) or not found.size:
            raise UsageError(
                f"[{operation}] ids have shape {found.shape}, expected (length,) or (batch, length) with at least one"
            )
        return found

    def _padded(
        self, compute: Callable[[Array], Array], ids: Any, padding: Array, width: int, operation: str, name: str
    ) -> Array:
        found, mask = np.atleast_2d(self._model_ids(ids, operation)), np.atleast_2d(padding)
        tokens = tokens_of(mask, found.shape, operation, name)
        counts = tokens.sum(axis=1)
        result = np.zeros((*found.shape, width), np.float32)
        for count in np.unique(counts[counts > 0]):  # rows of as many tokens are a batch
            rows = tokens & (counts == count)[:, None]
            result[rows] = self._batched(compute, found[rows].reshape(-1, count), operation).reshape(-1, width)
        return result[0] if np.ndim(ids) == 1 else result

    def _batched(self, compute: Callable[[Array], Array], ids: Any, operation: str) -> Array:
        ids = self._model_ids(ids, operation)
        return compute(ids[None])[0] if ids.ndim == 1 else compute(ids)

    @checked
    def embed(self, texts: str | Sequence[str], *, pooling: str = "mean", normalize: bool = False) -> Array:
        """A vector for each text: float32 (texts, d_model), or (d_model,) for a single str.

        vectors = model.embed(["first text", "second text"], normalize=True)

        pooling    of the hidden states: "mean", "last" or, for encoders, "first"
        normalize  scale each vector to length 1, so that dot products are cosines
        """
        vectors: Array = self._core.embed([texts] if isinstance(texts, str) else texts, pooling, normalize)
        return vectors[0] if isinstance(texts, str) else vectors

    @takes_generation_options
    def generate(
        self,
        prompt: str,
        *,
        sample: int = 0,
        on_text: Callable[[str], object] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Generation:
        """Generates text after the prompt, of any length.

        print(model.generate("Call me", max_tokens=200))


        temperature           0 always takes the most likely token
        top_k, top_p, min_p   draw from the k most likely tokens, the smallest set of this probability, those at least
                              this times as probable as the most likely one
        repetition_penalty    above 1: tokens that are already in the text become less likely
        presence_penalty      subtracted from the logits of tokens that were generated before
        frequency_penalty     the same, for each time that they were generated
        logit_bias            token ids and what is added to their logits
        stop                  the text ends before the first of these strings
        stop_at_end_of_text   False: the end-of-text token is never drawn
        sample                each number gives another text with the same seed
        on_text               called with each new piece of text, in whole characters (U+FFFD stands for bytes that are
                              part of none); return False to stop
        """
        return Generation(prompt=prompt, **self._core.generate(prompt, sample, options, on_text))

    @takes_generation_options
    def stream(self, prompt: str, *, sample: int = 0, **options: Unpack[GenerationOptions]) -> Iterator[str]:
        """Yields the text of generate() in pieces as it is generated. Leaving the loop stops the generation."""
        return self._pieces(prompt, sample, options)

    def _pieces(self, prompt: str, sample: int, options: GenerationOptions) -> Iterator[str]:
        stream = self._core.stream(prompt, sample, options)
        try:
            while (piece := stream.next()) is not None:
                yield piece
        finally:
            stream.close()

    @checked
    def loglikelihoods(
        self, texts: Sequence[Array], targets: Sequence[int], *, batch_tokens: int = 16384
    ) -> tuple[Array, Array]:
        """Log-probabilities of the ends of texts: (sums in nats float64 (texts,), greedy bool (texts,)).

        texts         token ids
        targets       number of ids at the end of each text that are scored, each given all ids before it
        batch_tokens  texts of any lengths are computed together without padding, up to this number of tokens

        greedy is True where each target has the largest logit of its place.
        """
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise wrong_type("loglikelihoods", "texts", texts, "a list of sequences of token ids")
        if batch_tokens < 1:
            raise UsageError(f"[loglikelihoods] batch_tokens is {batch_tokens}, expected at least 1")
        read = [token_sequence(ids, "loglikelihoods", f"texts[{i}]", self._config["vocab_size"]) for i, ids in enumerate(texts)]
        if len(read) != len(targets):
            raise UsageError(f"[loglikelihoods] {len(targets)} targets were given for {len(read)} texts, expected one for each")
        if not read:
            return np.empty(0), np.empty(0, bool)
        sums, greedy = _core.loglikelihoods(self._core, np.concatenate(read), [len(ids) for ids in read],
                                            targets, batch_tokens)  # fmt: skip
        return sums, greedy.astype(bool)

    @checked
    def score(self, text: str | Array, *, context_length: int = 0) -> Scores:
        """The loss of each token of a text, or of token ids (tokens,), given the tokens before it.

        context_length  maximum number of tokens that a target is predicted from (0: the training length)
        """
        context_length = integer("score", "context_length", context_length)
        if context_length < 0:
            raise UsageError(f"[score] context_length is {context_length}, expected at least 0")
        ids = self.encode(text) if isinstance(text, str) else token_ids(text, "score", "text", self._config["vocab_size"])
        if ids.ndim != 1:
            raise UsageError(f"[score] text has shape {ids.shape}, expected (tokens,)")
        return Scores(ids, self._core.score(ids, context_length), self._core.pieces(ids))

    @checked
    def evaluate(
        self,
        text: Scored,
        *,
        length: int = 0,
        stride: int = 0,
        field: str = "text",
        on_progress: OnProgress | None = None,
    ) -> Evaluation:
        """Perplexity of a text in windows of `length` tokens that advance by `stride`.

        text    a str, a pathlib.Path of a file or folder, several of these, or token ids
        length  0: the length that the model was trained at; any other, shorter or longer
        stride  0: windows do not overlap; 1: each token sees length - 1 others
        field   .jsonl: the field that holds the text
        """
        if isinstance(text, np.ndarray):
            ids, size = token_sequence(text, "evaluate", "text", self._config["vocab_size"]), float("nan")
        else:
            with paths_of("evaluate", text) as (paths,):
                ids, size = self._core.read(paths, field)
        found = self._core.evaluate(ids, length or self._config["train_length"] or 128, stride, from_core(on_progress))
        tokens, nll = found["position_tokens"], found["position_nll"]
        with np.errstate(invalid="ignore"):
            found["position_nll"] = nll / tokens
        bits = found["nll"] * found["tokens"] / np.log(2)
        # Of an encoder only some tokens are scored: the bytes behind them are a part of all.
        return Evaluation(bits_per_byte=float(bits / (size * found["tokens"] / len(ids))), **found)

    def __repr__(self) -> str:
        config = self._config
        return (
            f"LanguageModel({config['position']}, layers={config['layers']}, d_model={config['d_model']}, "
            f"heads={config['heads']}, vocab_size={config['vocab_size']}, train_length={config['train_length']}, "
            f"parameters={config['parameters']})"
        )
