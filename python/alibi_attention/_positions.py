"""attention_positions(): attention whose distances are given by positions in space."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kind import as_array, is_torch, refuse_other_kinds
from ._numpy import empty_like
from ._options import check_axes, flag_of, offsets_of


def relative(library: Any, points: Any, others: Any, starts: tuple[Any, Any] | None, leading: int) -> tuple[Any, Any]:
    """Points of 64 bits relative to the first point of their sequence that is used, as float32, which could not hold them
    as they are (a time in milliseconds since 1970). Distances stay the same. `others`, of the keys, may be None.

    library   numpy or torch: one rule for arrays and tensors
    starts    offsets of packed sequences, of queries and keys
    """
    wide = (library.int64, library.float64, *(getattr(library, name) for name in ("uint32", "uint64") if hasattr(library, name)))
    given = points if others is None else others
    if given.shape[2] != points.shape[2]:
        raise _core.UsageError(f"[attention_positions] positions_k has {given.shape[2]} dimensions and positions_q "
                               f"{points.shape[2]}, expected equal numbers")  # fmt: skip
    if points.dtype not in wide and given.dtype not in wide and points.dtype == given.dtype:
        return points, others
    if points.shape[1] == 0:
        return _cast(points, library.float32), None if others is None else _cast(others, library.float32)
    last = points.shape[1] - 1
    leading = min(max(leading, 0), last)
    if starts is None:
        first = points[:, leading][:, None]
        if first.shape[0] != given.shape[0]:
            first = first[:1]
        origins: tuple[Any, ...] = (first, first)
    else:
        of_sequence = points[:, (starts[0] + leading).clip(0, last)]
        origins = tuple(of_sequence[:, _sequence_of(library, at, x.shape[1])] for at, x in zip(starts, (points, given)))
    found = [_difference(library, x, origin) for x, origin in zip((points, others), origins) if x is not None]
    return found[0], found[1] if others is not None else None


def _sequence_of(library: Any, starts: Any, rows: int) -> Any:
    """The number of the sequence of each row."""
    found = library.searchsorted(starts, library.arange(rows), side="right") - 1
    return found.clip(0, max(starts.shape[0] - 2, 0))


def _cast(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if isinstance(x, np.ndarray) else x.to(dtype)


def _difference(library: Any, x: Any, origin: Any) -> Any:
    """x - origin, exact for integers unless it is beyond 64 bits."""
    origin = library.nan_to_num(origin, nan=0.0, posinf=0.0, neginf=0.0)
    difference = _cast(x, library.float64) - _cast(origin, library.float64)
    integer = [str(y.dtype).removeprefix("torch.").startswith(("int", "uint")) for y in (x, origin)]
    if not all(integer):
        return _cast(difference, library.float32)
    exact = _cast(x, library.int64) - _cast(origin, library.int64)  # modulo 2^64
    return _cast(library.where(abs(difference) < 2.0**62, _cast(exact, library.float64), difference), library.float32)


def points_of(name: str, given: Any) -> Any:
    """(batch or 1, length, dims)"""
    if given is None and name == "positions_k":
        return None
    array = as_array(given)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8 or array.ndim not in (2, 3):
        raise _core.UsageError(f"[attention_positions] {name} is {array.dtype} of shape {array.shape}, expected numbers, "
                               "(batch or 1, length, 1 to 3) or (length, 1 to 3)")  # fmt: skip
    return array[None] if array.ndim == 2 else array


def _narrow(array: Any) -> Any:
    """Contiguous, float32 or int32."""
    return None if array is None else np.ascontiguousarray(array, np.int32 if array.dtype.kind in "iu" else np.float32)


def attention_positions(
    q: Any,
    k: Any,
    v: Any,
    positions_q: Any,
    positions_k: Any = None,
    *,
    alibi_slopes: Any = None,
    distance: str = "euclidean",
    leading: int = 0,
    softmax_scale: float | None = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    tolerance: float = 0.0,
    return_lse: bool = False,
) -> Any:
    """Attention with linear biases by given positions: softmax(q k' * softmax_scale - slope * |x_i - y_j|) v.

        coords = tiles // 512                                      # (tiles, 2), the columns and rows of tiles of a slide
        out = alibi.attention_positions(q, k, v, coords, alibi_slopes=alibi.slopes(12), tolerance=2**-24)

    q                   (batch, queries, heads, head_dim), float32 or bfloat16
    k, v                (batch, keys, kv_heads, head_dim), same type as q; heads is a multiple of kv_heads
    positions_q, _k     (batch or 1, length, 1 to 3) or (length, 1 to 3): a point for each row, integers or floats;
                        positions_k None: those of the queries. Points of 64 bits, such as times in milliseconds, become
                        float32 after the first point of their sequence was subtracted.
    alibi_slopes        (heads,) or (sequences, heads), float32, >= 0; None: no bias. A PyTorch tensor gets a gradient.
    distance            "euclidean", or "manhattan": the sum of the magnitudes of the differences
    leading             the first `leading` tokens of each sequence, such as CLS, have no bias, neither as queries nor as
                        keys. Their positions are not used.
    softmax_scale       None: 1 / sqrt(head_dim)
    cu_seqlens_q, _k    packed sequences: row offsets (sequences + 1,), int32; batch must be 1
    seqused_q, _k       number of tokens of each batch entry or packed sequence; rows behind them are padding. None: all
    tolerance           keys whose weight is provably at most this share of a row's sum are not visited; 0 visits all.
                        2 ** -24 (float32) and 2 ** -11 (bfloat16) are below the rounding of the result.
    return_lse          return (out, lse); lse is (batch, heads, queries) float32 and has no gradient

    Every query sees every key of its sequence. No array of length x length is made: memory grows with the length alone.
    Returns (batch, queries, heads, head_dim), contiguous: a tensor for tensors, else a NumPy array. Padded queries give
    zeros. Results have the same bits at any number of threads. Positions have no gradient.
    """
    return_lse = flag_of("attention_positions", "return_lse", return_lse)
    if is_torch(q):
        from . import _positions_torch

        return _positions_torch.attention_positions(
            q, k, v, positions_q, positions_k, alibi_slopes, distance, leading, softmax_scale, cu_seqlens_q,
            cu_seqlens_k, seqused_q, seqused_k, tolerance, return_lse)  # fmt: skip
    refuse_other_kinds("attention_positions", q=q, k=k, v=v)
    check_axes(q.shape)
    lengths = [offsets_of("attention_positions", name, given) for name, given in (
        ("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k), ("seqused_q", seqused_q), ("seqused_k", seqused_k))]
    packed = lengths[0] is not None and lengths[1] is not None and len(lengths[0]) and len(lengths[1])
    starts = (lengths[0], lengths[1]) if packed else None
    leading = _core.integer("attention_positions", "leading", leading)
    points_q, points_k = relative(np, points_of("positions_q", positions_q), points_of("positions_k", positions_k), starts,
                                  leading)  # fmt: skip
    options = (alibi_slopes, distance, leading, softmax_scale, tolerance, *lengths)
    out = empty_like(q)
    lse = np.empty((q.shape[0], q.shape[2], q.shape[1]), np.float32) if return_lse else None
    _core.attention_positions(q, k, v, _narrow(points_q), _narrow(points_k), out, lse, None, None, options)
    return (out, lse) if return_lse else out
