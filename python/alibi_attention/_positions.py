"""attention_positions(): attention whose distances are given by positions in space."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kind import is_torch, refuse_other_kinds
from ._numpy import bits_of, empty_like, is_bfloat16, offsets_of
from ._options import check_axes, refuse_scale


def _points(given: Any) -> Any:
    """Contiguous (batch or 1, length, dims) of float32 or int32."""
    if given is None:
        return None
    array = np.asarray(given)
    if array.dtype.kind in "iu" and array.dtype != np.int32:
        limits = np.iinfo(np.int32)
        if array.size and not (limits.min <= array.min() and array.max() <= limits.max):
            array = array.astype(np.float32)
    wanted = np.int32 if array.dtype.kind in "iu" else np.float32
    array = np.ascontiguousarray(array, wanted)
    return array[None] if array.ndim == 2 else array


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
    positions_q, _k     (batch or 1, length, 1 to 3) or (length, 1 to 3): a point for each row, integers or floats, which
                        become int32 and float32; positions_k None: those of the queries
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
    if softmax_scale is not None and softmax_scale == 0:
        refuse_scale()
    if is_torch(q):
        from . import _positions_torch

        return _positions_torch.attention_positions(
            q, k, v, positions_q, positions_k, alibi_slopes, distance, leading, softmax_scale, cu_seqlens_q,
            cu_seqlens_k, seqused_q, seqused_k, tolerance, return_lse)  # fmt: skip
    refuse_other_kinds("attention_positions", q=q, k=k, v=v)
    check_axes(q.shape)
    options = (alibi_slopes, str(distance), int(leading), float(softmax_scale or 0), float(tolerance),
               offsets_of(cu_seqlens_q), offsets_of(cu_seqlens_k), offsets_of(seqused_q),
               offsets_of(seqused_k))  # fmt: skip
    out = empty_like(q)
    lse = np.empty((q.shape[0], q.shape[2], q.shape[1]), np.float32) if return_lse else None
    _core.attention_positions(bits_of(q), bits_of(k), bits_of(v), _points(positions_q), _points(positions_k),
                              bits_of(out), lse, None, None, options, is_bfloat16(q))  # fmt: skip
    return (out, lse) if return_lse else out
