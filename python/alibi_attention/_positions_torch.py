"""attention_positions() in PyTorch: torch.ops.alibi.attention_positions, registered with its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._derivatives import check_devices, check_gradients, differentiable, keep_outputs, slopes_of, tangent_of, transformed
from ._kind import refuse_other_kinds
from ._options import check_axes
from ._positions import points_of, relative
from ._torch import _autocast, _library, ints_as_tensor, slopes_as_tensor

_OPTIONS = (
    "Tensor positions_q, Tensor? positions_k, Tensor? slopes, str distance, SymInt leading, float scale, "
    "float tolerance, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k"
)
_library.define(f"attention_positions(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)")
_library.define(
    "attention_positions_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor lse_low, "
    f"Tensor stops, bool slopes_gradient, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
_QUERY_ROWS = 48  # of a block, in the kernel


def _outputs(q: Tensor, cu_seqlens_q: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """out, lse, and what the kernel wants to know again (AttentionPositionsState::words)."""
    batch, queries, heads = q.shape[:3]
    sequences = batch if cu_seqlens_q is None else max(cu_seqlens_q.shape[0] - 1, 0)
    words = heads * (batch * queries // _QUERY_ROWS + 2 * sequences)
    lse = q.new_empty((batch, heads, queries), dtype=torch.float32)
    return q.new_empty(q.shape), lse, torch.empty_like(lse), q.new_empty((words,), dtype=torch.int32)


def _core_options(given: tuple[Any, ...]) -> tuple[Any, ...]:
    slopes, distance, leading, scale, *others = given[2:]
    return (slopes, distance, leading, scale or None, *others)


def _forward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _core.follow_torch_threads()
    result = _outputs(q, given[7])
    _core.attention_positions(q, k, v, given[0], given[1], *result, _core_options(given))
    return result


def _check_fake(q: Tensor, k: Tensor, v: Tensor, given: Any, **others: Tensor) -> None:
    positions_q, positions_k, slopes, _, _, _, _, *lengths = given
    names = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")
    check_devices("attention_positions", q, k=k, v=v, positions_q=positions_q, positions_k=positions_k, alibi_slopes=slopes,
                  **dict(zip(names, lengths, strict=True)), **others)  # fmt: skip


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check_fake(q, k, v, given)
    return _outputs(q, given[7])


def _gradients(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, wanted: bool) -> tuple[Tensor, ...]:
    if wanted and slopes is not None:
        dslopes = torch.zeros_like(slopes, memory_format=torch.contiguous_format)
    else:
        dslopes = q.new_empty((0,), dtype=torch.float32)
    return (*(x.new_empty(x.shape) for x in (q, k, v)), dslopes)


def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, lse_low: Tensor, stops: Tensor,
    slopes_gradient: bool, *given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    _core.follow_torch_threads()
    result = _gradients(q, k, v, given[2], slopes_gradient)
    if dout.stride(-1) != 1:
        dout = dout.contiguous()
    dq, dk, dv, dslopes = result
    _core.attention_positions_backward(dout, q, k, v, given[0], given[1], out, lse, lse_low, stops, dq, dk, dv,
                                       dslopes if slopes_gradient else None, _core_options(given))  # fmt: skip
    return result


def _backward_fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    out, lse, lse_low, stops, _, *options = given
    _check_fake(q, k, v, options, dout=dout, out=out, lse=lse, lse_low=lse_low, stops=stops)
    return _gradients(q, k, v, given[7], given[4])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, positions_q, positions_k, slopes, distance, leading, scale, tolerance, *lengths = inputs
    keep_outputs(ctx, output)
    saved = (q, k, v, *output, positions_q, positions_k, slopes, *lengths)
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.plain = (distance, leading, scale, tolerance)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    check_gradients("attention_positions", dlse)
    if dout is None:
        return (None,) * 14
    q, k, v, out, lse, lse_low, stops, positions_q, positions_k, slopes, *lengths = ctx.saved_tensors
    wanted = ctx.needs_input_grad[5]
    dq, dk, dv, dslopes = _backward_operator(
        dout, q, k, v, out, lse, lse_low, stops, wanted, positions_q, positions_k, slopes, *ctx.plain, *lengths)
    return dq, dk, dv, None, None, dslopes if wanted else None, *(None,) * 8


def _tangent(ctx: Any, dq: Any, dk: Any, dv: Any, dpoints_q: Any, dpoints_k: Any, dslopes: Any, *_: Any) -> tuple[Any, ...]:
    if dpoints_q is not None or dpoints_k is not None:
        raise _core.UsageError("[attention_positions] positions have a tangent, which they do not support")
    q, k, v, _, _, _, _, positions_q, positions_k, slopes, cu_q, cu_k, used_q, used_k = ctx.saved_tensors
    distance, leading, scale, _ = ctx.plain
    of_queries, of_keys = (x.double() for x in (positions_q, positions_q if positions_k is None else positions_k))

    def bias_of(entries: slice, of_q: slice, of_k: slice, first: int, last: int) -> tuple[Tensor, Tensor | None]:
        at = of_queries[:, of_q][:, first:last, None] - of_keys[:, of_k][:, None]  # (batch or 1, queries, keys, dims)
        metric = at.norm(dim=-1) if distance == "euclidean" else at.abs().sum(-1)
        i = torch.arange(first, last, device=q.device)[:, None]
        j = torch.arange(of_k.stop - of_k.start, device=q.device)
        metric = metric.masked_fill((i < leading) | (j < leading), 0)[:, None].float()
        seen = torch.ones((), dtype=torch.bool, device=q.device)
        for used, row in ((used_q, i), (used_k, j)):
            if used is not None:
                seen = seen & (row < used[entries][:, None, None, None])
        bias = q.new_zeros((), dtype=torch.float32) if slopes is None else -slopes_of(slopes, entries) * metric
        dbias = None if dslopes is None else -slopes_of(dslopes, entries) * metric
        return torch.where(seen, bias, float("-inf")), dbias

    return tangent_of((q, k, v), (dq, dk, dv), cu_q, cu_k, scale, 0.0, bias_of)


_library.impl("attention_positions", _forward, "CPU")
_library.impl("attention_positions_backward", _backward, "CPU")
_library.impl("attention_positions", _autocast("attention_positions", "cpu", torch._C.DispatchKey.AutocastCPU), "AutocastCPU")
torch.library.register_fake("alibi::attention_positions", _forward_fake, lib=_library)
torch.library.register_fake("alibi::attention_positions_backward", _backward_fake, lib=_library)
_operator, _backward_operator = differentiable(_library, "attention_positions", _keep, _differentiate, _tangent)


def _points(name: str, given: Any, device: torch.device) -> Tensor | None:
    """(batch or 1, length, dims)"""
    if given is None and name == "positions_k":
        return None
    if not isinstance(given, Tensor):
        given = torch.tensor(points_of(name, given), device=device)  # a copy: the backward pass reads it again
    if given.requires_grad:
        raise _core.UsageError("[attention_positions] positions require a gradient, which they do not have")
    if given.is_complex() or given.dtype is torch.bool or given.dim() not in (2, 3):
        raise _core.UsageError(f"[attention_positions] {name} is {given.dtype} of shape {tuple(given.shape)}, expected numbers, "
                               "(batch or 1, length, 1 to 3) or (length, 1 to 3)")  # fmt: skip
    points: Tensor = given[None] if given.dim() == 2 else given
    return points


def _narrow(points: Tensor | None) -> Tensor | None:
    """Contiguous, float32 or int32."""
    if points is None:
        return None
    return points.to(torch.float32 if points.is_floating_point() else torch.int32).contiguous()


def attention_positions(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions_q: Any,
    positions_k: Any,
    alibi_slopes: Any,
    distance: str,
    leading: int,
    softmax_scale: float | None,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    seqused_q: Any,
    seqused_k: Any,
    tolerance: float,
    return_lse: bool,
) -> Any:
    operation = "attention_positions"
    refuse_other_kinds(operation, q=q, k=k, v=v)
    check_axes(tuple(q.shape))
    lengths = [None if given is None else ints_as_tensor(operation, name, given) for name, given in (
        ("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k), ("seqused_q", seqused_q), ("seqused_k", seqused_k))]
    slopes = None if alibi_slopes is None else slopes_as_tensor(operation, "alibi_slopes", alibi_slopes)
    if not torch.compiler.is_compiling():
        _core.check_positions_options((None, distance, leading, softmax_scale, tolerance, None, None, None, None))
        leading = int(leading)
        if transformed() and torch.is_autocast_enabled(q.device.type):
            dtype = torch.get_autocast_dtype(q.device.type)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if softmax_scale == 0:  # 0 is the operator's default
        raise _core.UsageError(f"[{operation}] softmax_scale is 0, expected another number; None: 1 / sqrt(head_dim)")
    starts = None
    if lengths[0] is not None and lengths[1] is not None and lengths[0].shape[0] and lengths[1].shape[0]:
        starts = (lengths[0], lengths[1])
    points = relative(torch, _points("positions_q", positions_q, q.device), _points("positions_k", positions_k, q.device), starts,
                      leading)  # fmt: skip
    scale = 0.0 if softmax_scale is None else float(softmax_scale)
    out, lse, _, _ = _operator(q, k, v, *(_narrow(x) for x in points), slopes, distance, leading, scale, float(tolerance),
                               *lengths)  # fmt: skip
    return (out, lse) if return_lse else out
