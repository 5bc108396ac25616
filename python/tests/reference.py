"""Attention with linear biases in float64, written plainly: what results are held to."""

import numpy as np


def attention(q, k, v, slopes=None, causal=True, window_size=(-1, -1), scale=None, offset=None, slopes_after=None,
              softcap=0.0, sinks=None):
    """(out, lse) of [batch, length, heads, head_dim] arrays."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, queries, heads, head_dim = q.shape
    keys = k.shape[1]
    group = heads // k.shape[2]
    k, v = (np.repeat(x, group, axis=2) for x in (k, v))
    scale = 1 / np.sqrt(head_dim) if scale is None else scale
    offset = keys - queries if offset is None else offset
    distance = offset + np.arange(queries)[:, None] - np.arange(keys)[None]
    scores = np.einsum("bihd,bjhd->bhij", q, k) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if slopes is not None:
        before = np.broadcast_to(np.asarray(slopes, np.float64), (batch, heads))[:, :, None, None]
        after = before
        if slopes_after is not None:
            after = np.broadcast_to(np.asarray(slopes_after, np.float64), (batch, heads))[:, :, None, None]
        with np.errstate(invalid="ignore"):
            scores = scores - np.where(distance == 0, 0.0, np.where(distance > 0, before, after) * np.abs(distance))
    left, right = window_size
    seen = np.ones((queries, keys), bool)
    if causal:
        seen &= distance >= 0
    elif right >= 0:
        seen &= distance >= -right
    if left >= 0:
        seen &= distance <= left
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:  # one more key, whose value is zero
        column = np.broadcast_to(np.asarray(sinks, np.float64)[:, None, None], (batch, heads, queries, 1))
        scores, v = np.concatenate([scores, column], -1), np.pad(v, ((0, 0), (0, 1), (0, 0), (0, 0)))
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.einsum("bhij,bjhd->bihd", np.where(total > 0, weights / total, 0), v)
        lse = (np.where(np.isfinite(largest), largest, 0) + np.log(total))[..., 0]
    return out, lse
