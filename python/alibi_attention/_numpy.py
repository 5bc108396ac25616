"""The operator on NumPy arrays, and on whatever else gives its memory by DLPack; results are NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kind import refuse_other_kinds
from ._options import Window, check_axes, options

_FLOAT32 = np.dtype(np.float32)
_core.set_numpy(np.ndarray, _FLOAT32, np.dtype(np.float16), np.dtype(np.int32), np.ones((2, 3), np.float32))


def empty_like(q: Any) -> np.ndarray[Any, Any]:
    if isinstance(q, np.ndarray):
        return np.empty(q.shape, q.dtype)
    if str(q.dtype).endswith("bfloat16"):
        raise _core.UsageError("[attention] q is bfloat16 of a library other than NumPy and PyTorch; cast it")
    return np.empty(tuple(q.shape), np.float16 if str(q.dtype).endswith("float16") else np.float32)


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
    softcap: float = 0.0,
) -> Any:
    refuse_other_kinds("attention_decode", q=q)
    check_axes(q.shape)
    given = options(alibi_slopes, alibi_slopes_after, causal, window_size, softmax_scale, query_offset, tolerance,
                    softcap)  # fmt: skip
    out = empty_like(q)
    lse = np.empty((q.shape[0], q.shape[2], q.shape[1]), np.float32) if return_lse else None
    _core.attention_decode(q, cache, out, lse, given)
    return (out, lse) if return_lse else out


def merge_attention(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> Any:
    refuse_other_kinds("merge_attention", out_a=out_a, lse_a=lse_a, out_b=out_b, lse_b=lse_b)
    lse_a, lse_b = (x if isinstance(x, np.ndarray) else np.from_dlpack(x) for x in (lse_a, lse_b))
    out, lse = empty_like(out_a), np.empty(lse_a.shape, np.float32)
    _core.merge_attention(out_a, np.ascontiguousarray(lse_a), out_b, np.ascontiguousarray(lse_b), out, lse)
    return out, lse
