"""An engine that generates many texts at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _core
from ._arguments import checked, token_sequence, wrong_type
from ._model import Array, GenerationOptions, LanguageModel, takes_generation_options

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in typing since Python 3.11


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a text."""

    id: int
    logprob: float | None
    """natural logarithm of its probability; None if it was not requested, and for the first token of a prompt"""
    top: tuple[tuple[int, float], ...]
    """ids and log-probabilities of the most likely tokens, most likely first"""


@dataclass(frozen=True)
class EngineSample:
    text: str
    end: str
    """ "tokens", "end_of_text", "stop", or "callback" (the request was cancelled)"""
    seconds: float
    tokens: tuple[TokenLogprob, ...]
    evicted_keys: int
    evicted_share: float
    """bound on the share of a row's weight that the evicted keys could have had"""


@dataclass(frozen=True)
class EngineResult:
    samples: tuple[EngineSample, ...]
    prompt: tuple[TokenLogprob, ...]
    """with prompt_logprobs: each token of the prompt"""
    prompt_tokens: int
    reused_tokens: int
    """tokens of the prompt that were not computed again, because an earlier prompt began with them"""
    cancelled: bool

    @property
    def text(self) -> str:
        """The text of the first sample."""
        return self.samples[0].text


class EngineRequest:
    """A request that was submitted. Iterating over it yields (sample, text) as the texts grow.

    It is cancelled when nothing refers to it any longer, and when Ctrl-C ends result() or the iteration.
    """

    def __init__(self, core: _core.SubmittedRequest) -> None:
        self._core = core

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Raises what the request failed with."""
        while (piece := self._core.next()) is not None:
            yield piece

    def result(self) -> EngineResult:
        """Waits for the end."""
        found = self._core.result()

        def tokens(given: list[tuple[int, float | None, list[tuple[int, float]]]]) -> tuple[TokenLogprob, ...]:
            return tuple(TokenLogprob(one, logprob, tuple(top)) for one, logprob, top in given)

        samples = tuple(EngineSample(**{**sample, "tokens": tokens(sample["tokens"])}) for sample in found["samples"])
        return EngineResult(**{**found, "samples": samples, "prompt": tokens(found["prompt"])})

    def cancel(self) -> None:
        """Ends the request before its next token. Has no effect after its end."""
        self._core.cancel()


class Engine:
    """Generates many texts at once, on a thread of its own: requests join and leave at every step.

    engine = Engine(model)
    requests = [engine.submit(prompt, max_tokens=50) for prompt in prompts]
    texts = [request.result().text for request in requests]

    A request has the same tokens whatever other requests there are. Threads may share the engine. A child made by fork()
    may not: it raises Error there.

    slots               maximum number of texts that are read or generated at the same time
    step_tokens         maximum number of tokens of a step, at least slots + chunk_tokens
    chunk_tokens        prompts are read in chunks of this number of tokens
    queue               maximum number of requests that wait for a slot; submit() raises Error beyond it
    max_tokens          maximum number of tokens of a text, prompt included (0: as many as the model's positions allow)
    prefix_bytes        memory for keys and values of prompts, for later prompts that begin with the same tokens
    memory, eviction_tolerance    limits of the keys and values of one text; keys beyond them are evicted
    query_norm          with gates and a limit: bound on the norm of later queries (None: that of the model's QK norm or clamp,
                        or 1.25 times the largest so far)
    """

    @checked
    def __init__(
        self,
        model: LanguageModel,
        *,
        slots: int = 16,
        step_tokens: int = 512,
        chunk_tokens: int = 256,
        queue: int = 256,
        max_tokens: int = 0,
        prefix_bytes: int = 256 << 20,
        memory: int | None = None,
        eviction_tolerance: float | None = None,
        query_norm: float | None = None,
    ) -> None:
        if not isinstance(model, LanguageModel):
            raise wrong_type("Engine", "model", model, "a LanguageModel")
        self._vocab_size: int = model.config["vocab_size"]
        self._core = _core.Engine(model._core, slots, step_tokens, chunk_tokens, queue, max_tokens, prefix_bytes, memory,
                                  eviction_tolerance, query_norm)  # fmt: skip

    @takes_generation_options
    def submit(
        self,
        prompt: Sequence[int] | Array,
        *,
        samples: int = 1,
        priority: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        **options: Unpack[GenerationOptions],
    ) -> EngineRequest:
        """Submits a prompt of token ids, such as LanguageModel.encode() gives.

        samples             texts after the prompt, each with random numbers of its own
        priority            of the requests that wait for slots, those with the lowest number are first
        logprobs            log-probabilities of the generated tokens and of this number of most likely ones
        prompt_logprobs     the same for the prompt
        The other options are those of LanguageModel.generate().
        """
        ids = token_sequence(prompt, "submit", "prompt", self._vocab_size)
        return EngineRequest(self._core.submit(ids, samples, priority, logprobs, prompt_logprobs, options))

    def close(self) -> None:
        """Refuses further requests. Those that were submitted are finished."""
        self._core.close()

    def stats(self) -> dict[str, Any]:
        """Counts of requests, steps and tokens, and the memory of keys and values."""
        return dict(self._core.stats())
