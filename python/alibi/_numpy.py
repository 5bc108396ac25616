"""The operator on NumPy arrays, and on whatever else gives its memory by DLPack; results are NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._options import EVERYWHERE, Window, check_axes, check_slopes, options

_FLOAT32 = np.dtype(np.float32)


def is_bfloat16(array: Any) -> bool:
    """Of the package ml_dtypes: NumPy has no such type of its own."""
    return isinstance(array, np.ndarray) and array.dtype.name == "bfloat16"


def bits_of(array: Any) -> Any:
    """bfloat16 as NumPy can hand it on."""
    return array.view(np.uint16) if is_bfloat16(array) else array


def _slopes(given: Any, q: Any, name: str) -> Any:
    if given is None:
        return None
    if not (isinstance(given, np.ndarray) and given.dtype is _FLOAT32 and given.flags.c_contiguous):
        given = np.ascontiguousarray(given, _FLOAT32)
    if given.shape != q.shape[2:3]:
        check_slopes(given.shape, q.shape[0], q.shape[2], name)
    return given


def _offsets(given: Any) -> Any:
    return None if given is None else np.ascontiguousarray(given, np.int32)


def empty_like(q: Any) -> np.ndarray[Any, Any]:
    if isinstance(q, np.ndarray):
        return np.empty(q.shape, q.dtype)
    if str(q.dtype).endswith("bfloat16"):
        raise _core.UsageError("[attention] q is bfloat16 of a library other than NumPy and PyTorch; cast it")
    return np.empty(tuple(q.shape), np.float32)


def attention(
    q: Any,
    k: Any,
    v: Any,
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
    shape = q.shape
    if len(shape) != 4:
        check_axes(shape)
    if dropout_seed is None:
        dropout_seed = int(np.random.randint(1 << 62)) if dropout_p else 0
    slopes = None if alibi_slopes is None else _slopes(alibi_slopes, q, "alibi_slopes")
    after = None if alibi_slopes_after is None else _slopes(alibi_slopes_after, q, "alibi_slopes_after")
    given = options(slopes, after, causal, window_size, softmax_scale, dropout_p, dropout_seed, query_offset,
                    None if cu_seqlens_q is None else _offsets(cu_seqlens_q),
                    None if cu_seqlens_k is None else _offsets(cu_seqlens_k), tolerance)  # fmt: skip
    out = np.empty(shape, q.dtype) if isinstance(q, np.ndarray) else empty_like(q)
    lse = np.empty((shape[0], shape[2], shape[1]), np.float32) if return_lse else None
    if out.dtype is _FLOAT32 or out.dtype == _FLOAT32:
        _core.attention(q, k, v, out, lse, None, None, given, False)
    else:
        _core.attention(bits_of(q), bits_of(k), bits_of(v), bits_of(out), lse, None, None, given, True)
    return (out, lse) if return_lse else out


def attention_decode(
    q: Any,
    cache: _core.KvCache,
    alibi_slopes: Any,
    causal: bool,
    window_size: Window,
    softmax_scale: float | None,
    query_offset: int | None,
    alibi_slopes_after: Any,
    tolerance: float,
    return_lse: bool,
) -> Any:
    check_axes(q.shape)
    given = options(_slopes(alibi_slopes, q, "alibi_slopes"), _slopes(alibi_slopes_after, q, "alibi_slopes_after"),
                    causal, window_size, softmax_scale, 0.0, 0, query_offset, None, None, tolerance)  # fmt: skip
    out = empty_like(q)
    lse = np.empty((q.shape[0], q.shape[2], q.shape[1]), np.float32) if return_lse else None
    _core.attention_decode(bits_of(q), cache, bits_of(out), lse, given, is_bfloat16(q))
    return (out, lse) if return_lse else out


def merge_attention(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> Any:
    out = empty_like(out_a)
    lse = np.empty(lse_a.shape, np.float32)
    _core.merge_attention(bits_of(out_a), np.ascontiguousarray(lse_a), bits_of(out_b), np.ascontiguousarray(lse_b),
                          bits_of(out), lse, is_bfloat16(out_a))  # fmt: skip
    return out, lse
