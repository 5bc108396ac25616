"""Which library an array is of. PyTorch is never imported for values that are not its tensors."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from ._core import UsageError

_operator: ModuleType | None = None


def torch_operator() -> ModuleType:
    global _operator
    if _operator is None:
        from . import _torch

        _operator = _torch
    return _operator


def is_torch(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return False
    if _operator is not None:
        return isinstance(array, _operator.Tensor)
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def as_array(given: Any) -> np.ndarray[Any, Any]:
    """A NumPy array of a tensor, an array or a list. Other values give an array of objects without axes."""
    try:
        if not is_torch(given):
            return np.asarray(given)
        given = given if given.device.type == "cpu" else given.cpu()
        # Within the transforms of torch.func, a tensor that is not transformed gives its memory by DLPack alone.
        return np.from_dlpack(given) if torch_operator().transformed() else np.asarray(given)
    except Exception:
        return np.empty((), object)


def refuse_other_kinds(operation: str, **arrays: Any) -> None:
    """Raises UsageError for the first of these that is not an array of the kind that the first one is."""
    names = list(arrays)
    tensors = is_torch(arrays[names[0]])
    expected = "a PyTorch tensor" if tensors else "a NumPy array, or an array that gives its memory by DLPack"
    for name, array in arrays.items():
        fits = is_torch(array) if tensors else hasattr(array, "__dlpack__") and not is_torch(array)
        if not fits:
            beside = f", as {names[0]} is" if name != names[0] else ""
            raise UsageError(f"[{operation}] {name} is of type {type(array).__name__}, expected {expected}{beside}")
        if tensors and str(array.layout) != "torch.strided":
            raise UsageError(f"[{operation}] {name} has layout {array.layout}, expected torch.strided: a dense tensor")


if "torch" in sys.modules:
    torch_operator()
