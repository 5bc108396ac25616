"""FlashAttention-2's functions, with its signatures and defaults. What the CPU kernels cannot do raises UsageError."""

from __future__ import annotations

from typing import Any

from ._attention import attention
from ._core import UsageError, real
from ._kind import refuse_other_kinds
from ._options import EVERYWHERE, Window, check_count, flag_of, window_of
from ._paged import cache_of, check_cache, paged_attention, rotated, table_of


def _attend(operation: str, q: Any, k: Any, v: Any, return_attn_probs: bool, **given: Any) -> Any:
    """The output, or (out, lse, None): weights are never in memory."""
    return_attn_probs = flag_of(operation, "return_attn_probs", return_attn_probs)
    if return_attn_probs and real(operation, "dropout_p", given["dropout_p"]):
        raise UsageError(f"[{operation}] return_attn_probs with dropout_p {given['dropout_p']}: which weights are dropped is "
                         "not in memory; expected dropout_p 0")  # fmt: skip
    found = attention(q, k, v, return_lse=return_attn_probs, **given)
    return (*found, None) if return_attn_probs else found


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
    head_dim), float32, bfloat16 or float16; alibi_slopes (heads,) or (batch, heads) float32. Causal masks and distances
    are aligned to the bottom right. It is always deterministic. With return_attn_probs it returns (out, lse, None)."""
    flag_of("flash_attn_func", "deterministic", deterministic)
    return _attend("flash_attn_func", q, k, v, return_attn_probs, softcap=softcap, alibi_slopes=alibi_slopes,
                   causal=causal, window_size=window_size, softmax_scale=softmax_scale, dropout_p=dropout_p)  # fmt: skip


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
    head_dim), cu_seqlens_q and cu_seqlens_k (sequences + 1,) int32; alibi_slopes (heads,) or (sequences, heads). The
    longest lengths are not needed. With a block_table, k and v are (pages, page rows, kv_heads, head_dim), with any number
    of rows in a page, and there is no gradient. With return_attn_probs it returns (out, lse (heads, total_q), None)."""
    operation = "flash_attn_varlen_func"
    flag_of(operation, "deterministic", deterministic)
    check_count(operation, "max_seqlen_q", max_seqlen_q)
    check_count(operation, "max_seqlen_k", max_seqlen_k)
    refuse_other_kinds(operation, q=q, k=k, v=v)
    for name, array in (("q", q), *(() if block_table is not None else (("k", k), ("v", v)))):
        if len(array.shape) != 3:
            raise UsageError(f"[{operation}] {name} has shape {tuple(array.shape)}, expected (total, heads, head_dim)")
    if block_table is not None:
        check_cache(operation, q, k, v)
        if real(operation, "dropout_p", dropout_p):
            raise UsageError(f"[{operation}] dropout_p is {dropout_p}, expected 0 with a block_table")
        return_attn_probs = flag_of(operation, "return_attn_probs", return_attn_probs)
        out, lse = paged_attention(
            operation, q[None], k, v, table_of(operation, block_table), None, None, alibi_slopes, causal, window_size,
            softmax_scale, softcap, return_attn_probs, cu_seqlens_q, cu_seqlens_k)  # fmt: skip
        return (out[0], lse[0], None) if return_attn_probs else out[0]
    found = _attend(operation, q[None], k[None], v[None], return_attn_probs, softcap=softcap, alibi_slopes=alibi_slopes,
                    causal=causal, window_size=window_size, softmax_scale=softmax_scale, dropout_p=dropout_p,
                    cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)  # fmt: skip
    return (found[0][0], found[1][0], None) if return_attn_probs else found[0]


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = EVERYWHERE,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """As flash_attn.flash_attn_with_kvcache, on a CPU: attention over a cache that the caller owns. New keys and values k
    and v (batch, new, kv_heads, head_dim) are written into it first.

    q                        (batch, queries, heads, head_dim), float32, bfloat16 or float16
    k_cache, v_cache         (entries, rows, kv_heads, head_dim), or with a block_table (pages, page rows, kv_heads,
                             head_dim), with any number of rows in a page
    cache_seqlens            number of keys in the cache before the call: one number, or (batch,) int32; None: all rows
    cache_batch_idx          (batch,) int32: the entry of the cache of each batch entry; None: 0, 1, ..
    cache_leftpad            (batch,) int32: the number of rows before the first key; not with a block_table
    block_table              (batch, pages) int32: the pages of each batch entry
    rotary_cos, rotary_sin   (positions, rotary_dim / 2): rotates k, and q, by their positions; needs k. If neither causal
                             nor windowed, all queries have the position cache_seqlens
    num_splits               ignored: the division of the work does not depend on the number of threads

    Returns out, or with return_softmax_lse (out, lse (batch, heads, queries)). There is no gradient.
    """
    operation = "flash_attn_with_kvcache"
    rotary_interleaved = flag_of(operation, "rotary_interleaved", rotary_interleaved)
    return_softmax_lse = flag_of(operation, "return_softmax_lse", return_softmax_lse)
    check_count(operation, "num_splits", num_splits)
    if (k is None) != (v is None):
        raise UsageError(f"[{operation}] only one of k and v is given, expected both or neither")
    check_cache(operation, q, k_cache, v_cache, **({} if k is None else {"k": k, "v": v}))
    cache = cache_of(operation, q, k_cache, cache_seqlens, cache_batch_idx, cache_leftpad, block_table, k is not None)
    if (rotary_cos is None) != (rotary_sin is None):
        raise UsageError(f"[{operation}] only one of rotary_cos and rotary_sin is given, expected both or neither")
    if k is None and rotary_cos is not None:
        raise UsageError(f"[{operation}] rotary_cos is given without k, expected new keys beside it")
    if k is not None and cache_seqlens is None:
        raise UsageError(f"[{operation}] k is given without cache_seqlens, expected the number of keys before it")
    if rotary_cos is not None:
        one_position = window_of(causal, window_size) == window_of(False, EVERYWHERE)
        q = rotated(operation, q, rotary_cos, rotary_sin, cache.lengths, rotary_interleaved, one_position)
        k = rotated(operation, k, rotary_cos, rotary_sin, cache.lengths, rotary_interleaved, False)
    out, lse = paged_attention(operation, q, k_cache, v_cache, cache.table, cache.lengths, cache.leftpad, alibi_slopes,
                               causal, window_size, softmax_scale, softcap, return_softmax_lse,
                               added=None if k is None else (k, v))  # fmt: skip
    return (out, lse) if return_softmax_lse else out
