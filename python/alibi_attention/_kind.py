"""Which library an array is of. PyTorch is never imported for what is none of its tensors."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

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


if "torch" in sys.modules:
    torch_operator()
