"""Arguments as the library takes them."""

from __future__ import annotations

import warnings
from typing import Any

from ._core import UsageError

Window = tuple[int, int]
EVERYWHERE: Window = (-1, -1)


def window_of(causal: bool, window_size: Window) -> tuple[bool, int, int]:
    """(causal, sliding_window, sliding_window_after) of C++ for flash_attn's (left, right), both inclusive."""
    try:
        left, right = (int(limit) for limit in window_size)
    except (TypeError, ValueError):
        raise UsageError(
            f"[attention] window_size is {window_size!r}, expected (left, right); the window N of C++ and the command is "
            "(N - 1, -1) if causal, (N - 1, N - 1) if not"
        ) from None
    before = left + 1 if left >= 0 else 0
    if causal or right == 0:
        return True, before, 0
    if right < 0:
        return False, before, -1 if before else 0
    return False, before, 0 if left == right else right + 1


def renamed(operation: str, options: dict[str, Any], former: str, name: str, value: Any) -> Any:
    """The value of `name`, or what `options` has under its former name, which is accepted until the next release."""
    if former not in options:
        return value
    warnings.warn(f"[{operation}] {former} is now {name}", DeprecationWarning, stacklevel=3)
    return options.pop(former)


def refuse_scale() -> None:
    raise UsageError("[attention] softmax_scale is 0, expected another number; None: 1 / sqrt(head_dim)")


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
    if softmax_scale == 0:
        refuse_scale()
    return (slopes, slopes_after, causal, window, softmax_scale, 0.0, 0, query_offset, cu_seqlens_q, cu_seqlens_k,
            tolerance, after, softcap)  # fmt: skip


def check_axes(shape: tuple[int, ...], name: str = "q") -> None:
    if len(shape) != 4:
        raise UsageError(f"[attention] {name} has shape {tuple(shape)}, expected [batch, length, heads, head_dim]")
