"""Keys and values in a cache that the caller owns, in pages or in one piece for each batch entry."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _core
from ._core import UsageError
from ._kind import as_array, is_torch, refuse_other_kinds, torch_operator
from ._numpy import empty_like
from ._options import Window, offsets_of, options_of

Ints = np.ndarray[Any, np.dtype[np.int32]]


def _ints(operation: str, name: str, given: Any, axes: int) -> Ints:
    found = as_array(given)
    if found.ndim != axes or found.dtype.kind not in "iu":
        expected = "(batch,)" if axes == 1 else "(sequences, pages of a sequence)"
        raise UsageError(f"[{operation}] {name} is {found.dtype} of shape {found.shape}, expected int32 {expected}")
    limits = np.iinfo(np.int32)  # no number of rows or pages is that large
    return np.ascontiguousarray(np.clip(found, limits.min, limits.max), np.int32)


def table_of(operation: str, block_table: Any) -> Ints:
    return _ints(operation, "block_table", block_table, 2)


def check_cache(operation: str, q: Any, k_cache: Any, v_cache: Any, **new: Any) -> None:
    """Raises UsageError unless these are arrays of one kind, and the caches have four axes and equal shapes."""
    refuse_other_kinds(operation, q=q, k_cache=k_cache, v_cache=v_cache, **new)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if len(cache.shape) != 4 or tuple(cache.shape) != tuple(k_cache.shape):
            raise UsageError(f"[{operation}] {name} has shape {tuple(cache.shape)}, expected (entries or pages, rows, "
                             "kv_heads, head_dim), the same for k_cache and v_cache")  # fmt: skip
    for name, rows in new.items():
        if len(rows.shape) != 4:
            raise UsageError(f"[{operation}] {name} has shape {tuple(rows.shape)}, expected (batch, new, kv_heads, head_dim)")


class Cache:
    """Where the keys of each batch entry are. A cache without pages has one page for each entry."""

    def __init__(self, table: Ints, lengths: Ints, leftpad: Ints | None) -> None:
        self.table, self.lengths, self.leftpad = table, lengths, leftpad


def cache_of(
    operation: str, q: Any, k_cache: Any, cache_seqlens: Any, cache_batch_idx: Any, cache_leftpad: Any, block_table: Any,
    appends: bool,
) -> Cache:  # fmt: skip
    if len(q.shape) != 4:
        raise UsageError(f"[{operation}] q has shape {tuple(q.shape)}, expected (batch, queries, heads, head_dim)")
    batch, entries, rows = q.shape[0], k_cache.shape[0], k_cache.shape[1]
    if block_table is not None:
        for name, given in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
            if given is not None:
                raise UsageError(f"[{operation}] {name} is given beside a block_table, expected one of them")
        table = table_of(operation, block_table)
        rows *= table.shape[1]
    elif cache_batch_idx is not None:
        table = _ints(operation, "cache_batch_idx", cache_batch_idx, 1)[:, None]
        if appends and len(np.unique(table)) < len(table):
            raise UsageError(f"[{operation}] cache_batch_idx is {table[:, 0].tolist()}, expected a different entry of the "
                             "cache for the new keys of each batch entry")  # fmt: skip
    else:
        table = np.arange(batch, dtype=np.int32)[:, None]
    if table.shape[0] != batch or (block_table is None and not (table >= 0).all() & (table < entries).all()):
        name = "block_table" if block_table is not None else "cache_batch_idx" if cache_batch_idx is not None else "k_cache"
        raise UsageError(f"[{operation}] {name} has {entries if name == 'k_cache' else table.shape[0]} entries, expected {batch}"
                         f", one for each batch entry, within the {entries} of k_cache")  # fmt: skip
    if cache_seqlens is None:
        lengths = np.full(batch, rows, np.int32)
    elif hasattr(cache_seqlens, "__index__") and not getattr(cache_seqlens, "shape", ()):
        lengths = np.full(batch, min(max(_core.integer(operation, "cache_seqlens", cache_seqlens), -1), 2**31 - 1), np.int32)
    else:
        lengths = _ints(operation, "cache_seqlens", cache_seqlens, 1)
    if lengths.shape != (batch,) or (lengths < 0).any() or (block_table is None and (lengths > rows).any()):
        raise UsageError(f"[{operation}] cache_seqlens is {lengths.tolist()}, expected {batch} numbers from 0 to {rows}")
    leftpad = None if cache_leftpad is None else _ints(operation, "cache_leftpad", cache_leftpad, 1)
    if leftpad is not None and (leftpad.shape != (batch,) or (leftpad < 0).any() or (leftpad > lengths).any()):
        raise UsageError(f"[{operation}] cache_leftpad is {leftpad.tolist()}, expected {batch} numbers from 0 to cache_seqlens, "
                         f"{lengths.tolist()}")  # fmt: skip
    return Cache(np.ascontiguousarray(table), lengths, leftpad)


def paged_attention(
    operation: str,
    q: Any,
    k_cache: Any,
    v_cache: Any,
    table: Ints,
    lengths: Ints | None,
    leftpad: Ints | None,
    alibi_slopes: Any,
    causal: bool,
    window_size: Window,
    softmax_scale: float | None,
    softcap: float,
    return_lse: bool,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    added: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """(out, lse or None). `added` are new keys and values, which are written behind the `lengths` first."""
    shape = (q.shape[0], q.shape[2], q.shape[1])
    new = None
    if added is not None and lengths is not None:
        new = (*added, lengths)
        lengths = np.clip(lengths.astype(np.int64) + added[0].shape[1], 0, 2**31 - 1).astype(np.int32)
    given = options_of(causal, window_size, alibi_slopes=alibi_slopes, softmax_scale=softmax_scale, softcap=softcap,
                       cu_seqlens_q=offsets_of(operation, "cu_seqlens_q", cu_seqlens_q),
                       cu_seqlens_k=offsets_of(operation, "cu_seqlens_k", cu_seqlens_k))  # fmt: skip
    if not is_torch(q):
        out = empty_like(q)
        lse = np.empty(shape, np.float32) if return_lse else None
        _core.attention_paged(q, k_cache, v_cache, out, lse, given, table, lengths, leftpad, new, operation)
        return out, lse
    torch = sys.modules["torch"]  # q is one of its tensors
    if new is not None:
        torch_operator().refuse_derivatives(operation, k=new[0], v=new[1], k_cache=k_cache, v_cache=v_cache)
    torch_operator().refuse_forward_mode(operation, q=q, k_cache=k_cache, v_cache=v_cache)
    _core.follow_torch_threads()
    if q.stride(-1) != 1:
        q = q.contiguous()
    out = torch.empty(q.shape, dtype=q.dtype)
    lse = torch.empty(shape, dtype=torch.float32) if return_lse else None
    with torch.no_grad():
        _core.attention_paged(q.detach(), k_cache.detach(), v_cache.detach(), out, lse, given, table, lengths, leftpad, new,
                              operation)  # fmt: skip
    return torch_operator().without_gradient(operation, out, q, k_cache, v_cache), lse


def rotated(operation: str, x: Any, cos: Any, sin: Any, first: Ints, interleaved: bool, one_position: bool) -> Any:
    """x (batch, length, heads, head_dim) with its first elements rotated, in float32, by the angles of the positions from
    first[b] on, or of first[b] alone."""
    refuse_other_kinds(operation, **{"q or k": x, "rotary_cos": cos, "rotary_sin": sin})
    half = cos.shape[-1] if len(cos.shape) else 0
    positions = first[:, None] + (np.zeros if one_position else np.arange)(x.shape[1], dtype=np.int64)
    if len(cos.shape) != 2 or tuple(sin.shape) != tuple(cos.shape) or 2 * half > x.shape[3]:
        raise UsageError(f"[{operation}] rotary_cos has shape {tuple(cos.shape)} and rotary_sin {tuple(sin.shape)}, expected "
                         f"both (positions, rotary_dim / 2), rotary_dim at most {x.shape[3]}")  # fmt: skip
    if positions.size and positions.max() >= cos.shape[0]:
        raise UsageError(f"[{operation}] rotary_cos has {cos.shape[0]} positions, expected at least {positions.max() + 1}")
    tensors = is_torch(x)
    torch = sys.modules.get("torch")

    def wide(array: Any) -> Any:
        return array.float() if tensors else np.asarray(array).astype(np.float32)

    at = torch.from_numpy(positions) if tensors and torch is not None else positions
    c, s = wide(cos)[at][:, :, None], wide(sin)[at][:, :, None]
    rotated_part = wide(x[..., : 2 * half])
    even = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    a, b = rotated_part[..., even[0]], rotated_part[..., even[1]]
    result = x.clone() if tensors else np.array(x)
    part = result[..., : 2 * half]
    part[..., even[0]] = a * c - b * s
    part[..., even[1]] = a * s + b * c
    return result
