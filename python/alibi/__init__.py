"""Attention with linear biases (ALiBi) on CPUs, for NumPy arrays and PyTorch tensors; language models that have it.

    import alibi
    out = alibi.attention(q, k, v, alibi_slopes=alibi.slopes(heads))
    model = alibi.LanguageModel.load(folder)

Arrays are [batch, length, heads, head_dim], float32 or bfloat16, of any strides whose last one is 1; nothing is copied,
and no bias or mask of length x length is made. PyTorch is imported only where its tensors are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core, _numpy
from ._cache import KvCache
from ._compare import CompareResults, compare
from ._core import Error, UsageError, set_threads, threads
from ._flash import flash_attn_func, flash_attn_varlen_func
from ._kind import is_torch, torch_operator
from ._model import Evaluation, Generation, LanguageModel, Scores
from ._options import EVERYWHERE, Window
from ._progress import Progress, show_progress
from ._training import TrainResult, train

__version__ = _core.version
__all__ = [
    "AlibiAttention",
    "CompareResults",
    "Error",
    "Evaluation",
    "Generation",
    "KvCache",
    "LanguageModel",
    "Progress",
    "Scores",
    "TrainResult",
    "UsageError",
    "attention",
    "attention_decode",
    "compare",
    "flash_attn_func",
    "flash_attn_varlen_func",
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


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    alibi_slopes: Any = None,
    causal: bool = True,
    window_size: Window = EVERYWHERE,
    softmax_scale: float | None = None,
    dropout_p: float = 0.0,
    query_offset: int | None = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    alibi_slopes_after: Any = None,
    tolerance: float = 0.0,
    return_lse: bool = False,
    dropout_seed: int | None = None,
) -> Any:
    """softmax(q k' * softmax_scale - slope * |i - j|) v, over the keys j that query i sees.

    q                   (batch, queries, heads, head_dim), float32 or bfloat16
    k, v                (batch, keys, kv_heads, head_dim) like q; heads is a multiple of kv_heads
    alibi_slopes        (heads,) or (batch, heads), float32, >= 0; None: no bias. A tensor of PyTorch's gets a gradient.
    causal              True, the default: keys after the query are not seen. (flash_attn_func: False, as
                        FlashAttention's.)
    window_size         (left, right): keys from i - left to i + right are seen; -1: all on that side. Both sides alike,
                        but causal attention, or right 0, has no right side.
    softmax_scale       None: 1 / sqrt(head_dim)
    dropout_p           probability that a weight is dropped; the rest is scaled up
    query_offset        position of the first query, where key row j has position j; None: the queries are the last
                        rows, keys - queries, as in FlashAttention (of each packed sequence)
    cu_seqlens_q, _k    packed sequences: row offsets (sequences + 1,), int32; batch is 1 then
    alibi_slopes_after  not causal: the slopes of keys after the query; None: alibi_slopes, symmetric; infinity closes
                        that side for the head
    tolerance           keys whose weight is provably no more than this share of a row's sum are not visited; 0: all are.
                        2 ** -24 (float32) and 2 ** -11 (bfloat16) lie below the rounding of the result
    return_lse          returns (out, lse), lse (batch, heads, queries) float32, which has no gradient
    dropout_seed        None: drawn from the generator of PyTorch, or NumPy's global one

    Returns (batch, queries, heads, head_dim), contiguous: a tensor for tensors, else a NumPy array. A query that sees
    no key gives zeros. The same bits at any number of threads.
    """
    run = _numpy.attention if isinstance(q, np.ndarray) or not is_torch(q) else torch_operator().attention
    return run(q, k, v, alibi_slopes, causal, window_size, softmax_scale, dropout_p, query_offset, cu_seqlens_q,
               cu_seqlens_k, alibi_slopes_after, tolerance, return_lse, dropout_seed)  # fmt: skip


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
) -> Any:
    """attention() of a few queries over a cache, which each key is read once for.

    q (batch, queries, heads, head_dim), float32 or bfloat16 whatever the cache holds; arguments and result as
    attention()'s. The queries are the last rows unless query_offset says where they are. There is no gradient.
    """
    run = torch_operator().attention_decode if is_torch(q) else _numpy.attention_decode
    return run(q, cache._core, alibi_slopes, causal, window_size, softmax_scale, query_offset, alibi_slopes_after,
               tolerance, return_lse)  # fmt: skip


def merge_attention(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> Any:
    """Attention over the union of two disjoint sets of keys, from attention over each with the same queries.

    out_a, out_b (batch, queries, heads, head_dim); lse_a, lse_b (batch, heads, queries) float32, as return_lse gives
    them. Positions stay those of the whole: keys that begin at `first` are attended to with the query_offset of the
    whole - first. Returns (out, lse). There is no gradient.
    """
    run = torch_operator().merge_attention if is_torch(out_a) else _numpy.merge_attention
    return run(out_a, lse_a, out_b, lse_b)


def __getattr__(name: str) -> Any:
    if name == "AlibiAttention":  # is a torch.nn.Module
        from ._module import AlibiAttention

        return AlibiAttention
    raise AttributeError(f"module 'alibi' has no attribute '{name}'")
