"""Language models for lm-evaluation-harness (the package lm_eval from PyPI), without a server.

    python -m alibi_attention.lm_eval --model alibi --model_args pretrained=FOLDER,max_length=8192 --tasks TASK

Or in Python:

    import lm_eval
    from alibi_attention.lm_eval import AlibiLM
    results = lm_eval.simple_evaluate(AlibiLM("folder"), tasks=["TASK"])
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any

import numpy as np

from ._core import UsageError
from ._engine import Engine
from ._model import Array, LanguageModel
from ._tokenizer import Tokenizer

try:
    _utils: Any = importlib.import_module("lm_eval.utils")
    _model_utils: Any = importlib.import_module("lm_eval.models.utils")
    _registry: Any = importlib.import_module("lm_eval.api.registry")
    _TemplateLM: Any = importlib.import_module("lm_eval.api.model").TemplateLM
    _tqdm: Any = importlib.import_module("tqdm").tqdm
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "lm_eval":
        raise ModuleNotFoundError("[lm_eval] the package lm_eval is not installed: pip install lm_eval", name=error.name) from None
    raise

_log = logging.getLogger(__name__)

# What the harness passes to generate_until, by the names of LanguageModel.generate().
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
# What is computed between two updates of the progress bar, in batches.
_BATCHES_AT_A_TIME = 8


@_registry.register_model("alibi")
class AlibiLM(_TemplateLM):  # type: ignore[misc, valid-type, unused-ignore]
    """A decoder as a model of lm_eval.

    pretrained       a model folder or a GGUF file, as LanguageModel.load() reads it
    max_length       maximum number of tokens that a token is predicted from; longer inputs lose their beginning. 0: 2048,
                     or less if the positions of the model end before
    max_gen_toks     tokens to generate for tasks that do not say it
    add_bos_token    put the beginning-of-text token before each text, as transformers' models of the harness do
    prefix_token_id  the token before a text without a context; None: the tokenizer's beginning of text, else its end
    batch_tokens     texts of any lengths are computed together without padding, up to this number of tokens
    slots            maximum number of texts that are generated together
    seed             of texts that are drawn
    batch_size, max_batch_size and device are accepted, because the harness passes them, and have no effect.
    """

    def __init__(
        self,
        pretrained: str | os.PathLike[str],
        *,
        max_length: int = 0,
        max_gen_toks: int = 256,
        add_bos_token: bool = False,
        prefix_token_id: int | None = None,
        batch_tokens: int = 16384,
        slots: int = 16,
        seed: int = 1234,
        batch_size: Any = None,
        max_batch_size: Any = None,
        device: str | None = None,  # the harness's command always gives one; the model runs on the CPU
    ) -> None:
        super().__init__()
        self.model = LanguageModel.load(pretrained)
        if not self.model.config["causal"]:
            raise UsageError(f"[lm_eval] {os.fspath(pretrained)} is an encoder, expected a decoder")
        self._words = Tokenizer.load(pretrained)
        self._name = os.fspath(pretrained)
        self.max_length = int(max_length) or self._default_length()
        self.max_gen_toks = int(max_gen_toks)
        self.add_bos_token = add_bos_token
        self._prefix = prefix_token_id
        self.batch_tokens = int(batch_tokens)
        self.slots = int(slots)
        self.seed = int(seed)

    def _default_length(self) -> int:
        trained: int = self.model.config["train_length"]
        return min(2048, trained) if self.model.config["position"] == "learned" else 2048

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self._words.end_of_text

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without a context."""
        if self._prefix is not None:
            return int(self._prefix)
        begin = self._words.begin_of_text
        return self.eot_token_id if begin is None else begin

    @property
    def tokenizer_name(self) -> str:
        """The name of the cache of requests."""
        return self._name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids. Without add_special_tokens, add_bos_token decides."""
        ids = self._words.encode(string, add_special_tokens=False)
        begins = self.add_bos_token if add_special_tokens is None else add_special_tokens
        return [self.prefix_token_id, *ids] if begins and ids[:1] != [self.prefix_token_id] else ids

    def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._words.decode(np.atleast_1d(tokens), skip_special_tokens)

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        texts: list[Array] = []
        for _key, context, continuation in requests:
            if len(continuation) > self.max_length:
                raise UsageError(f"[lm_eval] a continuation has {len(continuation)} tokens, expected at most max_length, {self.max_length}")
            texts.append(np.array((context + continuation)[-(self.max_length + 1) :], np.int32))
        answers: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        with _tqdm(total=len(requests), disable=disable_tqdm, desc="Running loglikelihood requests") as progress:
            for part in self._parts(texts):
                # An empty continuation has no target: its probability is 1.
                asked = [i for i in part if requests[i][2]]
                sums, greedy = self.model.loglikelihoods(
                    [texts[i] for i in asked], [len(requests[i][2]) for i in asked], batch_tokens=self.batch_tokens
                )
                for i, total, largest in zip(asked, sums, greedy, strict=True):
                    answers[i] = (float(total), bool(largest))
                for i in part:
                    if requests[i][0] is not None:
                        self.cache_hook.add_partial("loglikelihood", requests[i][0], answers[i])
                progress.update(len(part))
        return answers

    def _parts(self, texts: list[Array]) -> list[list[int]]:
        """The places of the texts, longest first, in parts of some batches."""
        parts: list[list[int]] = []
        tokens = 0
        for i in sorted(range(len(texts)), key=lambda i: -len(texts[i])):
            if not parts or tokens + len(texts[i]) > _BATCHES_AT_A_TIME * self.batch_tokens:
                parts.append([])
                tokens = 0
            parts[-1].append(i)
            tokens += len(texts[i])
        return parts

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each text, in windows of max_length tokens."""
        windows: list[tuple[None, list[int], list[int]]] = []
        owners: list[int] = []
        for owner, request in enumerate(requests):
            (text,) = request.args
            for window in _utils.get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            ):
                windows.append((None, *_utils.make_disjoint_window(window)))
                owners.append(owner)
        totals = [0.0] * len(requests)
        for owner, (total, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm), strict=True):
            totals[owner] += total
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """A text after each context, up to one of the strings of "until" or the end of text."""
        # Requests with the same settings are generated together.
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items(), key=lambda item: item[0])), []).append(i)
        texts = [""] * len(requests)
        with _tqdm(total=len(requests), disable=disable_tqdm, desc="Running generate_until requests") as progress:
            for places in groups.values():
                given = requests[places[0]].args[1]
                settings = _model_utils.normalize_gen_kwargs(given, self.max_gen_toks)
                stop = [text for text in _model_utils.handle_stop_sequences(settings.pop("until", None), eos=None) if text]
                count = settings.pop("max_gen_toks")
                room = self.max_length - count
                if room < 1:
                    raise UsageError(f"[lm_eval] {count} tokens are to be generated, expected fewer than max_length, {self.max_length}")
                settings.pop("do_sample", None)
                sampling = {name: settings.pop(name) for name in _SAMPLING if settings.get(name) is not None}
                if settings:
                    _log.warning("[lm_eval] settings without effect: %s", ", ".join(sorted(settings)))
                step = max(512, 256 + self.slots)  # room for a chunk of a prompt beside the texts
                engine = Engine(self.model, slots=self.slots, queue=len(places), step_tokens=step)
                submitted = []
                for i in places:
                    prompt = self.tok_encode(requests[i].args[0])[-room:] or [self.prefix_token_id]
                    submitted.append(engine.submit(np.array(prompt, np.int32), max_tokens=count, seed=self.seed, stop=stop,
                                                   stop_at_end_of_text=True, **sampling))  # fmt: skip
                for i, request in zip(places, submitted, strict=True):
                    texts[i] = request.result().text
                    self.cache_hook.add_partial("generate_until", requests[i].args, texts[i])
                    progress.update(1)
        return texts


def main() -> None:
    """The command lm_eval, which then knows the model "alibi"."""
    importlib.import_module("lm_eval.__main__").cli_evaluate()


if __name__ == "__main__":
    main()
