"""Padding: the tokens of a padded batch as packed sequences, and their results where they stood."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ._core import UsageError, integer
from ._kind import as_array, is_torch, refuse_other_kinds
from ._options import Options

Bools = np.ndarray[Any, np.dtype[np.bool_]]


def padding_of(attention_mask: Any, operation: str) -> Bools:
    """True at padding, where an attention_mask is 0."""
    try:
        mask = np.asarray(attention_mask)
        is_mask = mask.dtype.kind in "biuf" and bool(np.isin(mask, (0, 1)).all())
    except Exception:  # rows of different lengths, for example
        is_mask = False
    if not is_mask:
        raise UsageError(f"[{operation}] attention_mask has other values than 1 (a token) and 0 (padding)")
    padding: Bools = mask == 0
    return padding


def tokens_of(mask: Any, shape: tuple[int, ...], operation: str, name: str = "key_padding_mask") -> Bools:
    """(batch, keys): True where a token is, that is, where the mask has no padding. Each row holds one run of them."""
    padding = as_array(mask)
    if padding.dtype != np.bool_:
        raise UsageError(
            f"[{operation}] key_padding_mask is {padding.dtype}, expected bool, True where there is padding; of an "
            "attention_mask that is 1 where a token is, attention_mask == 0"
        )
    if padding.shape != shape:
        raise UsageError(f"[{operation}] {name} has shape {padding.shape}, expected {shape}, (batch, keys)")
    tokens: Bools = ~padding
    runs = (np.diff(tokens.astype(np.int8), axis=1, prepend=np.int8(0)) == 1).sum(axis=1)
    if (runs > 1).any():
        raise UsageError(
            f"[{operation}] {name} has padding between the tokens of row {int(np.argmax(runs > 1))}, "
            "expected it before and after them alone: distances are counted in rows"
        )
    return tokens


def _offsets(tokens: Bools) -> np.ndarray[Any, Any]:
    counts = tokens.sum(axis=1) if len(tokens) else [0]  # a batch of nothing is one sequence without tokens
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def padded_attention(attend: Callable[..., Any], q: Any, k: Any, v: Any, mask: Any, options: Options,
                     return_lse: bool) -> Any:  # fmt: skip
    """attention() over the tokens alone. Queries are the last rows, so those at padded keys are padding too."""
    refuse_other_kinds("attention", q=q, k=k, v=v)
    if not is_torch(q):
        q, k, v = (x if isinstance(x, np.ndarray) else np.from_dlpack(x) for x in (q, k, v))
    if q.ndim != 4 or k.ndim != 4 or q.shape[0] != k.shape[0]:
        raise UsageError(f"[attention] q has shape {tuple(q.shape)} and k {tuple(k.shape)}, expected both (batch, "
                         "length, heads, head_dim)")  # fmt: skip
    batch, queries, heads, head_dim = q.shape
    keys = k.shape[1]
    tokens = tokens_of(mask, (batch, keys), "attention")
    offset = options.query_offset
    if queries > keys or (offset is not None and integer("attention", "query_offset", offset) != keys - queries):
        raise UsageError(f"[attention] key_padding_mask with {queries} queries, {keys} keys and query_offset "
                         f"{offset}: expected the queries to be the last rows")  # fmt: skip
    if options.cu_seqlens_q is not None or options.cu_seqlens_k is not None:
        raise UsageError("[attention] key_padding_mask and cu_seqlens are both given, expected one of them")
    for name in ("alibi_slopes", "alibi_slopes_after"):
        slopes = getattr(options, name)
        shape = () if slopes is None else tuple((slopes if is_torch(slopes) else as_array(slopes)).shape)
        if slopes is not None and len(shape) != 1:
            raise UsageError(f"[attention] {name} has shape {shape}, expected (heads,) beside a key_padding_mask")
    asking = tokens[:, keys - queries :]
    query_rows, key_rows = (np.flatnonzero(rows) for rows in (asking, tokens))
    if options.log_decay is not None:
        gates = options.log_decay if is_torch(options.log_decay) else as_array(options.log_decay)
        if tuple(gates.shape) != (batch, keys, heads):
            raise UsageError(f"[attention] log_decay has shape {tuple(gates.shape)}, expected {(batch, keys, heads)}")
        flat = gates.reshape(batch * keys, heads)
        options = options._replace(log_decay=flat[key_rows if not is_torch(flat) else key_rows.tolist()][None])
    options = options._replace(query_offset=None, cu_seqlens_q=_offsets(asking), cu_seqlens_k=_offsets(tokens))
    run = _run_torch if is_torch(q) else _run_numpy
    out, lse = run(attend, q, k, v, query_rows, key_rows, options, return_lse)
    out = out.reshape(batch, queries, heads, head_dim)
    if not return_lse:
        return out
    lse = lse.reshape(batch, queries, heads)
    return out, lse.transpose(1, 2).contiguous() if is_torch(q) else np.ascontiguousarray(lse.transpose(0, 2, 1))


def _run_numpy(attend: Callable[..., Any], q: Any, k: Any, v: Any, query_rows: Any, key_rows: Any,
               options: Options, return_lse: bool) -> tuple[Any, Any]:  # fmt: skip
    """(out (batch * queries, heads, head_dim), lse (batch * queries, heads) or None)"""
    packed = [
        x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[rows][None]
        for x, rows in ((q, query_rows), (k, key_rows), (v, key_rows))
    ]
    found = attend(*packed, options, return_lse)
    out, lse = found if return_lse else (found, None)
    spread = np.zeros((q.shape[0] * q.shape[1], *q.shape[2:]), out.dtype)
    spread[query_rows] = out[0]
    if lse is not None:
        sums = np.full(spread.shape[:2], -np.inf, np.float32)
        sums[query_rows] = lse[0].T
        lse = sums
    return spread, lse


def _run_torch(attend: Callable[..., Any], q: Any, k: Any, v: Any, query_rows: Any, key_rows: Any,
               options: Options, return_lse: bool) -> tuple[Any, Any]:  # fmt: skip
    """The same with gradients: index_select and index_copy have them."""
    torch = sys.modules["torch"]  # q is one of its tensors
    of_queries, of_keys = (torch.from_numpy(rows).to(q.device) for rows in (query_rows, key_rows))
    packed = [x.flatten(0, 1).index_select(0, rows)[None] for x, rows in ((q, of_queries), (k, of_keys), (v, of_keys))]
    found = attend(*packed, options, return_lse)
    out, lse = found if return_lse else (found, None)
    spread = out.new_zeros((q.shape[0] * q.shape[1], *q.shape[2:])).index_copy(0, of_queries, out[0])
    if lse is not None:
        lse = lse.new_full(spread.shape[:2], float("-inf")).index_copy(0, of_queries, lse[0].T)
    return spread, lse
