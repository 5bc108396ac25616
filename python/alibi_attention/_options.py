"""Arguments as the library takes them."""

from __future__ import annotations

from typing import Any

from ._core import UsageError

Window = tuple[int, int]
EVERYWHERE: Window = (-1, -1)


def window_of(causal: bool, window_size: Window) -> tuple[bool, int]:
    """(causal, keys at |distance| below this are seen; 0: all) of flash_attn's (left, right), both inclusive."""
    if window_size == EVERYWHERE:
        return bool(causal), 0
    left, right = window_size
    if causal or right == 0:
        return True, left + 1 if left >= 0 else 0
    if left < 0 and right < 0:
        return False, 0
    if left != right:
        raise UsageError(
            f"[attention] window_size is ({left}, {right}), expected both sides alike, or 0 on the right; "
            "a window that reaches further on one side is not there"
        )
    return False, left + 1


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
) -> tuple[Any, ...]:
    """What _core takes as one tuple, of attention over a cache. (attention() itself makes its own: a call costs time.)"""
    causal, window = window_of(causal, window_size)
    if softmax_scale == 0:
        refuse_scale()
    return slopes, slopes_after, causal, window, softmax_scale, 0.0, 0, query_offset, None, None, tolerance


def check_axes(shape: tuple[int, ...], name: str = "q") -> None:
    if len(shape) != 4:
        raise UsageError(f"[attention] {name} has shape {tuple(shape)}, expected [batch, length, heads, head_dim]")
