"""Arguments as the library takes them."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from ._core import UsageError, flag, integer

Window = tuple[int, int]
EVERYWHERE: Window = (-1, -1)


def window_of(causal: bool, window_size: Window) -> tuple[bool, int, int]:
    """(causal, sliding_window, sliding_window_after) of C++ for flash_attn's (left, right), both inclusive."""
    try:
        left, right = (index(limit) for limit in window_size)
        if not max(left, right) < 1 << 62:
            raise ValueError
    except Exception:
        raise UsageError(
            f"[attention] window_size is {window_size!r}, expected (left, right); the window N of C++ and the command is "
            "(N - 1, -1) if causal, (N - 1, N - 1) if not"
        ) from None
    before = left + 1 if left >= 0 else 0
    if type(causal) is not bool:
        causal = flag("attention", "causal", causal)
    if causal or right == 0:
        return True, before, 0
    if right < 0:
        return False, before, -1 if before else 0
    return False, before, 0 if left == right else right + 1


def flag_of(operation: str, name: str, value: Any) -> bool:
    """Without a call of _core for True and False, so that torch.compile can follow it."""
    return value if value is True or value is False else flag(operation, name, value)


def check_count(operation: str, name: str, value: Any) -> None:
    """Of a number that is accepted for compatibility and not needed."""
    if type(value) is not int or abs(value) >> 62:
        integer(operation, name, value)


def options(
    slopes: Any,
    slopes_after: Any,
    causal: bool,
    window_size: Window,
    softmax_scale: float | None,
    query_offset: int | None,
    tolerance: float,
    softcap: float,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
) -> tuple[Any, ...]:
    """What _core takes as one tuple, of attention over a cache. (attention() itself makes its own: a call costs time.)"""
    causal, window, after = window_of(causal, window_size)
    return (slopes, slopes_after, causal, window, softmax_scale, 0.0, 0, query_offset, cu_seqlens_q, cu_seqlens_k,
            tolerance, after, softcap)  # fmt: skip


def check_axes(shape: tuple[int, ...], name: str = "q") -> None:
    if len(shape) != 4:
        raise UsageError(f"[attention] {name} has shape {tuple(shape)}, expected [batch, length, heads, head_dim]")


def offsets_of(operation: str, name: str, given: Any) -> Any:
    """Counts and offsets as int32. Larger ones become the largest, which no count of rows is."""
    if given is None:
        return None
    try:
        found = np.asarray(given)
    except Exception:
        found = np.empty((), object)
    if found.dtype.kind not in "iu" and found.size or found.ndim != 1:
        raise UsageError(f"[{operation}] {name} is {found.dtype} of shape {found.shape}, expected one axis of integers")
    if found.dtype == np.int32:
        return np.ascontiguousarray(found)
    limits = np.iinfo(np.int32)
    return np.ascontiguousarray(np.clip(found, limits.min, limits.max), np.int32)


def floats_of(operation: str, name: str, given: Any) -> np.ndarray[Any, Any]:
    """A copy as float32."""
    try:
        found = np.asarray(given)
    except Exception:
        found = np.empty((), object)
    if found.dtype.kind not in "iuf":
        raise UsageError(f"[{operation}] {name} is {found.dtype} of shape {found.shape}, expected an array of numbers")
    return np.array(found, np.float32)
