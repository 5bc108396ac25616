"""Attention with linear biases (ALiBi) on CPUs, for NumPy arrays and PyTorch tensors; language models that have it.

    import alibi_attention as alibi
    out = alibi.attention(q, k, v, alibi_slopes=alibi.slopes(heads))
    model = alibi.LanguageModel.load(folder)

Arrays are [batch, length, heads, head_dim], float32, bfloat16 or float16, of any strides whose last one is 1; nothing is copied,
and no bias or mask of length x length is made. PyTorch is imported only where its tensors are used.
"""

from __future__ import annotations

import atexit
import importlib
from typing import Any

import numpy as np

from . import _core, _numpy
from ._attention import attention
from ._cache import KvCache
from ._compare import CompareResults, compare
from ._core import Error, UsageError, set_threads, threads
from ._encoder import EncoderModel
from ._engine import Engine, EngineRequest, EngineResult, EngineSample, TokenLogprob
from ._flash import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from ._forgetting import forgetting_attention
from ._kind import is_torch, torch_operator
from ._model import Evaluation, Generation, LanguageModel, Scores
from ._options import EVERYWHERE, Window, flag_of, options_of
from ._positions import attention_positions
from ._progress import Progress, show_progress
from ._tokenizer import Tokenizer
from ._training import TrainResult, train

__version__ = _core.version


def _end_threads() -> None:
    """Before the interpreter ends: calls in other threads end, then the threads of engines and streams."""
    _core.end_computations()
    if _core.has_models:
        _core.end_threads()


atexit.register(_end_threads)
__all__ = [
    "AlibiAttention",
    "CompareResults",
    "EncoderModel",
    "Engine",
    "EngineRequest",
    "EngineResult",
    "EngineSample",
    "Error",
    "Evaluation",
    "Generation",
    "KvCache",
    "LanguageModel",
    "Progress",
    "Scores",
    "TokenLogprob",
    "Tokenizer",
    "TrainResult",
    "UsageError",
    "attention",
    "attention_decode",
    "attention_positions",
    "compare",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "forgetting_attention",
    "merge_attention",
    "set_threads",
    "show_progress",
    "slopes",
    "threads",
    "train",
]


def _slopes(heads: int, bias_max: float) -> list[float]:
    return _core.slopes(heads, bias_max)


_slopes._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile takes the result as it is


def slopes(heads: int, bias_max: float = 8.0) -> np.ndarray[Any, Any]:
    """The slopes of the paper for any number of heads: float32 (heads,).

    For n a power of two, slope i is 2 ** (-bias_max * (i + 1) / n); otherwise those of the largest power of two below
    n, followed by every other slope of twice as many heads.
    """
    return np.array(_slopes(heads, bias_max), np.float32)


def attention_decode(
    q: Any,
    cache: KvCache,
    *,
    alibi_slopes: Any = None,
    causal: bool = True,
    window_size: Window = EVERYWHERE,
    softmax_scale: float | None = None,
    query_offset: int | None = None,
    alibi_slopes_after: Any = None,
    tolerance: float = 0.0,
    return_lse: bool = False,
    softcap: float = 0.0,
    sinks: Any = None,
) -> Any:
    """attention() of a few queries over a cache; each key is read once.

    q (batch, queries, heads, head_dim), float32, bfloat16 or float16, independent of the cache's type. Arguments and result are
    those of attention(). The queries are the last rows unless query_offset is set. There is no gradient.
    """
    if not isinstance(cache, KvCache):
        raise TypeError(f"[attention_decode] cache is a {type(cache).__name__}, expected a KvCache")
    return_lse = flag_of("attention_decode", "return_lse", return_lse)
    options = options_of(causal, window_size, alibi_slopes=alibi_slopes, softmax_scale=softmax_scale, query_offset=query_offset,
                         alibi_slopes_after=alibi_slopes_after, tolerance=tolerance, softcap=softcap, sinks=sinks)  # fmt: skip
    run = torch_operator().attention_decode if is_torch(q) else _numpy.attention_decode
    return run(q, cache._core, options, return_lse)


def merge_attention(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> Any:
    """Attention over the union of two disjoint sets of keys, from the attention of the same queries over each set.

    out_a, out_b (batch, queries, heads, head_dim); lse_a, lse_b (batch, heads, queries) float32, as return_lse gives
    them. Positions refer to the union: for keys that begin at `first`, use the query_offset of the union minus
    `first`. Returns (out, lse). There is no gradient.
    """
    run = torch_operator().merge_attention if is_torch(out_a) else _numpy.merge_attention
    return run(out_a, lse_a, out_b, lse_b)


def __getattr__(name: str) -> Any:
    if name == "AlibiAttention":  # is a torch.nn.Module
        from ._module import AlibiAttention

        return AlibiAttention
    if name == "transformers":  # imports PyTorch and transformers
        return importlib.import_module(".transformers", __name__)
    raise AttributeError(f"module 'alibi_attention' has no attribute '{name}'")
