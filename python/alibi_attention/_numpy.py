"""The operator on NumPy arrays, and on whatever else gives its memory by DLPack; results are NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kind import refuse_other_kinds
from ._options import Options, check_axes

def empty_like(q: Any) -> np.ndarray[Any, Any]:
    if isinstance(q, np.ndarray):
        return np.empty(q.shape, q.dtype)
    if str(q.dtype).endswith("bfloat16"):
        raise _core.UsageError("[attention] q is bfloat16 of a library other than NumPy and PyTorch; cast it")
    return np.empty(tuple(q.shape), np.float16 if str(q.dtype).endswith("float16") else np.float32)


_core.set_numpy(np.ndarray, np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32), np.empty, empty_like,
                np.ones((2, 3), np.float32))  # fmt: skip


def attention_decode(q: Any, cache: _core.KvCache, options: Options, return_lse: bool) -> Any:
    refuse_other_kinds("attention_decode", q=q)
    check_axes(q.shape)
    out = empty_like(q)
    lse = np.empty((q.shape[0], q.shape[2], q.shape[1]), np.float32) if return_lse else None
    _core.attention_decode(q, cache, out, lse, options)
    return (out, lse) if return_lse else out


def merge_attention(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> Any:
    refuse_other_kinds("merge_attention", out_a=out_a, lse_a=lse_a, out_b=out_b, lse_b=lse_b)
    lse_a, lse_b = (x if isinstance(x, np.ndarray) else np.from_dlpack(x) for x in (lse_a, lse_b))
    out, lse = empty_like(out_a), np.empty(lse_a.shape, np.float32)
    _core.merge_attention(out_a, np.ascontiguousarray(lse_a), out_b, np.ascontiguousarray(lse_b), out, lse)
    return out, lse
