"""The function of the Forgetting Transformer's package, with its signature."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._attention import attention
from ._core import UsageError
from ._kind import as_array, is_torch
from ._options import flag_of, offsets_of


def _swapped(x: Any) -> Any:
    return x.transpose(1, 2) if is_torch(x) else np.swapaxes(x, 1, 2)


def _with_starts(gates: Any, starts: Any) -> Any:
    """With -infinity at the first key of each batch entry."""
    rows = offsets_of("forgetting_attention", "seq_start", starts)
    batch, keys = gates.shape[0], gates.shape[1]
    if rows.shape != (batch,) or (rows < 0).any() or (rows >= keys).any():
        raise UsageError(f"[forgetting_attention] seq_start is {rows.tolist()}, expected {batch} numbers from 0 to {keys - 1}")
    gates = gates.clone() if is_torch(gates) else np.array(gates, np.float32)
    gates[list(range(batch)), rows.tolist()] = float("-inf")
    return gates


def forgetting_attention(
    q: Any,
    k: Any,
    v: Any,
    log_fgate: Any,
    *,
    head_first: bool = False,
    seq_start: Any = None,
    sm_scale: float | None = None,
    tolerance: float = 0.0,
) -> Any:
    """As forgetting_transformer.forgetting_attention: causal attention with forget gates, attention(log_decay=log_fgate).

    q (batch, queries, heads, head_dim), k and v (batch, keys, kv_heads, head_dim), log_fgate (batch, keys, heads), the logarithms
    of the gates, such as torch.nn.functional.logsigmoid gives them. With head_first the heads come before the length in all of
    them and in the result. The queries are the last rows. seq_start (batch,): keys before this one are not visible to queries
    at or after it; queries before it are padding. sm_scale None: 1 / sqrt(head_dim). kv_heads and tolerance are as in
    attention().
    """
    head_first = flag_of("forgetting_attention", "head_first", head_first)
    gates = log_fgate if is_torch(log_fgate) else as_array(log_fgate)
    for name, array, axes in (("q", q, 4), ("k", k, 4), ("v", v, 4), ("log_fgate", gates, 3)):
        if len(array.shape) != axes:
            raise UsageError(f"[forgetting_attention] {name} has shape {tuple(array.shape)}, expected {axes} axes")
    if head_first:
        q, k, v, gates = (_swapped(x) for x in (q, k, v, gates))
    if seq_start is not None:
        gates = _with_starts(gates, seq_start)
    out = attention(q, k, v, log_decay=gates, softmax_scale=sm_scale, tolerance=tolerance)
    return _swapped(out) if head_first else out
