"""FlashAttention-2's functions, with its signatures and defaults. What the CPU kernels cannot do raises UsageError."""

from __future__ import annotations

from typing import Any

from ._attention import attention
from ._core import UsageError
from ._options import EVERYWHERE, Window


def _attend(operation: str, q: Any, k: Any, v: Any, softcap: float, return_attn_probs: bool, **given: Any) -> Any:
    if softcap:
        raise UsageError(f"[{operation}] softcap is {softcap}, which is not there; expected 0")
    if return_attn_probs:
        raise UsageError(f"[{operation}] return_attn_probs: weights never lie in memory; attention() has return_lse")
    return attention(q, k, v, **given)


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = EVERYWHERE,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """As flash_attn.flash_attn_func, on a CPU: q (batch, queries, heads, head_dim), k and v (batch, keys, kv_heads,
    head_dim), float32 or bfloat16; alibi_slopes (heads,) or (batch, heads) float32. Causal masks and distances are
    aligned to the bottom right. It is always deterministic."""
    return _attend("flash_attn_func", q, k, v, softcap, return_attn_probs, alibi_slopes=alibi_slopes, causal=causal,
                   window_size=tuple(window_size), softmax_scale=softmax_scale, dropout_p=dropout_p)  # fmt: skip


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = EVERYWHERE,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    """As flash_attn.flash_attn_varlen_func, on a CPU: q (total_q, heads, head_dim), k and v (total_k, kv_heads,
    head_dim), cu_seqlens_q and cu_seqlens_k (sequences + 1,) int32. The longest lengths are not needed."""
    operation = "flash_attn_varlen_func"
    if block_table is not None:
        raise UsageError(f"[{operation}] block_table: there is no paged cache; see alibi.KvCache")
    for name, array in (("q", q), ("k", k), ("v", v)):
        if len(array.shape) != 3:
            raise UsageError(f"[{operation}] {name} has shape {tuple(array.shape)}, expected (total, heads, head_dim)")
    if alibi_slopes is not None and len(alibi_slopes.shape) != 1:
        raise UsageError(f"[{operation}] alibi_slopes has shape {tuple(alibi_slopes.shape)}, expected (heads,): slopes "
                         "of their own for each packed sequence are not there")  # fmt: skip
    return _attend(operation, q[None], k[None], v[None], softcap, return_attn_probs, alibi_slopes=alibi_slopes,
                   causal=causal, window_size=tuple(window_size), softmax_scale=softmax_scale, dropout_p=dropout_p,
                   cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)[0]  # fmt: skip
