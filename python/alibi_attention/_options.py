"""Arguments as the library takes them."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Annotated, Any, NamedTuple, get_type_hints

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
    """True or False. For these two it does not call _core, which torch.compile cannot trace."""
    return value if value is True or value is False else flag(operation, name, value)


def check_count(operation: str, name: str, value: Any) -> None:
    """Checks a number that is accepted for compatibility and has no effect."""
    if type(value) is not int or abs(value) >> 62:
        integer(operation, name, value)


class Options(NamedTuple):
    """The options of attention, as _core takes them. The operator of PyTorch has them in this order, of the types in the
    annotations. attention() says what they mean."""

    alibi_slopes: Annotated[Any, "Tensor?"] = None
    alibi_slopes_after: Annotated[Any, "Tensor?"] = None
    causal: Annotated[Any, "bool"] = True
    window: Annotated[int, "SymInt"] = 0
    """0: no limit; N: visible are keys less than N before the query, and after it"""
    softmax_scale: Annotated[Any, "float"] = None
    """None: 1 / sqrt(head_dim), which is 0 in the operator"""
    dropout_p: Annotated[Any, "float"] = 0.0
    dropout_seed: Annotated[Any, "Tensor?"] = None
    query_offset: Annotated[Any, "SymInt?"] = None
    cu_seqlens_q: Annotated[Any, "Tensor?"] = None
    cu_seqlens_k: Annotated[Any, "Tensor?"] = None
    tolerance: Annotated[Any, "float"] = 0.0
    window_after: Annotated[int, "SymInt"] = 0
    """of keys after the query; 0: window; -1: no limit"""
    softcap: Annotated[Any, "float"] = 0.0
    sinks: Annotated[Any, "Tensor?"] = None
    log_decay: Annotated[Any, "Tensor?"] = None


_TYPES: dict[str, str] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Options, include_extras=True).items()
}
SCHEMA = ", ".join(f"{kind} {name}" for name, kind in _TYPES.items())
TENSORS = [name for name, kind in _TYPES.items() if kind == "Tensor?"]
PARAMETERS = ["alibi_slopes", "sinks", "log_decay"]
"""The options that have a gradient."""


def tensors_of(options: Options) -> list[Any]:
    """The values of the options in TENSORS."""
    return [getattr(options, name) for name in TENSORS]


def with_tensors(options: Options, tensors: Iterable[Any] = (None,) * len(TENSORS)) -> Options:
    """The same options with these values for those in TENSORS."""
    return options._replace(**dict(zip(TENSORS, tensors)))


def options_of(causal: bool, window_size: Window, **given: Any) -> Options:
    """Options with the window of attention()."""
    causal, window, after = window_of(causal, window_size)
    return Options(causal=causal, window=window, window_after=after, **given)


def check_axes(shape: tuple[int, ...], name: str = "q") -> None:
    if len(shape) != 4:
        raise UsageError(f"[attention] {name} has shape {tuple(shape)}, expected [batch, length, heads, head_dim]")


def offsets_of(operation: str, name: str, given: Any) -> Any:
    """Counts or offsets as int32 (n,). Numbers beyond int32 become its largest number, which is refused later, because no array
    has as many rows."""
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
    """A float32 copy of any shape."""
    try:
        found = np.asarray(given)
    except Exception:
        found = np.empty((), object)
    if found.dtype.kind not in "iuf":
        raise UsageError(f"[{operation}] {name} is {found.dtype} of shape {found.shape}, expected an array of numbers")
    return np.array(found, np.float32)
