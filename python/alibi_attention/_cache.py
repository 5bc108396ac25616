"""The keys and values of past tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kind import is_torch, refuse_other_kinds, torch_operator


class KvCache:
    """Keys and values of one attention layer, for attention_decode(). It grows without a limit.

    batch, kv_heads, head_dim: its shape; dtype: "float32", "bfloat16" or "float16" for half the memory, or "q8_0" for about a
    quarter.
    It may be used from several threads, one call at a time.
    """

    def __init__(self, batch: int, kv_heads: int, head_dim: int, dtype: str = "float32") -> None:
        self._core = _core.KvCache(batch, kv_heads, head_dim, dtype)
        self._shape = (int(batch), int(kv_heads), int(head_dim))
        self.dtype = dtype

    def append(self, k: Any, v: Any, log_decay: Any = None) -> None:
        """k and v (batch, new, kv_heads, head_dim), float32, bfloat16 or float16; rounded to the type of the cache. log_decay
        (batch, new, heads) float32: the gates of these keys, as in attention(), for all keys of a cache or for none."""
        refuse_other_kinds("kv_cache", k=k, v=v)
        if is_torch(k):
            torch_operator().refuse_derivatives("kv_cache", k=k, v=v, log_decay=log_decay)
        self._core.append(k, v, log_decay)

    def truncate(self, length: int) -> None:
        """Removes all but the first `length` keys."""
        self._core.truncate(length)

    def reserve(self, keys: int) -> None:
        """Allocates memory for `keys` keys in total."""
        self._core.reserve(keys)

    def keys(self) -> np.ndarray[Any, Any]:
        """A copy, (batch, length, kv_heads, head_dim) float32."""
        return self._copied(self._core.copy_keys)

    def values(self) -> np.ndarray[Any, Any]:
        """A copy, (batch, length, kv_heads, head_dim) float32."""
        return self._copied(self._core.copy_values)

    def _copied(self, copy: Any) -> np.ndarray[Any, Any]:
        batch, kv_heads, head_dim = self._shape
        out = np.empty((batch, len(self), kv_heads, head_dim), np.float32)
        copy(out)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._core.bytes()

    def __len__(self) -> int:
        return self._core.length()

    def __repr__(self) -> str:
        batch, kv_heads, head_dim = self._shape
        return f"KvCache(batch={batch}, kv_heads={kv_heads}, head_dim={head_dim}, dtype='{self.dtype}', keys={len(self)})"
