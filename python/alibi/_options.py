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


def options(
    slopes: Any,
    slopes_after: Any,
    causal: bool,
    window_size: Window,
    softmax_scale: float | None,
    dropout_p: float,
    seed: int,
    query_offset: int | None,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    tolerance: float,
) -> tuple[Any, ...]:
    """What _core takes as one tuple."""
    window = 0
    if window_size != EVERYWHERE:
        causal, window = window_of(causal, window_size)
    if softmax_scale == 0:
        raise UsageError("[attention] softmax_scale is 0, expected another number; None: 1 / sqrt(head_dim)")
    return (slopes, slopes_after, bool(causal), window, softmax_scale, dropout_p, seed, query_offset, cu_seqlens_q,
            cu_seqlens_k, tolerance)  # fmt: skip


def check_slopes(shape: tuple[int, ...], batch: int, heads: int, name: str = "alibi_slopes") -> None:
    if len(shape) == 1:
        fits = shape[0] == heads
    else:
        fits = len(shape) == 2 and shape[0] == batch and shape[1] == heads
    if not fits:
        raise UsageError(
            f"[attention] {name} has shape {tuple(shape)}, expected ({heads},), one for each head, "
            f"or ({batch}, {heads}), for each head of each batch entry"
        )


def check_axes(shape: tuple[int, ...], name: str = "q") -> None:
    if len(shape) != 4:
        raise UsageError(f"[attention] {name} has shape {tuple(shape)}, expected [batch, length, heads, head_dim]")
