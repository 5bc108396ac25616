"""attention_positions() in PyTorch: torch.ops.alibi.attention_positions, registered with its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._kind import refuse_other_kinds
from ._options import check_axes
from ._torch import _follow_threads, _library, _offsets, _slopes

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
    sequences = batch if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    words = heads * (batch * queries // _QUERY_ROWS + 2 * sequences)
    lse = q.new_empty((batch, heads, queries), dtype=torch.float32)
    return q.new_empty(q.shape), lse, torch.empty_like(lse), q.new_empty((words,), dtype=torch.int32)


def _core_options(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(given[2:])


def _forward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _follow_threads()
    result = _outputs(q, given[7])
    _core.attention_positions(q, k, v, given[0], given[1], *result, _core_options(given), False)
    return result


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
    _follow_threads()
    result = _gradients(q, k, v, given[2], slopes_gradient)
    if dout.stride(-1) != 1:
        dout = dout.contiguous()
    dq, dk, dv, dslopes = result
    _core.attention_positions_backward(dout, q, k, v, given[0], given[1], out, lse, lse_low, stops, dq, dk, dv,
                                       dslopes if slopes_gradient else None, _core_options(given))  # fmt: skip
    return result


def _backward_fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return _gradients(q, k, v, given[7], given[4])


def _autocast(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Any:
    """Casts what SDPA casts; positions and slopes keep their types."""
    dtype = torch.get_autocast_dtype("cpu")
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(autocast):
        return _operator(q.to(dtype), k.to(dtype), v.to(dtype), *given)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, positions_q, positions_k, slopes, distance, leading, scale, tolerance, *lengths = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(q, k, v, *output, positions_q, positions_k, slopes, *lengths)
    ctx.plain = (distance, leading, scale, tolerance)


def _differentiate(ctx: Any, dout: Tensor, *_: Any) -> tuple[Any, ...]:
    q, k, v, out, lse, lse_low, stops, positions_q, positions_k, slopes, *lengths = ctx.saved_tensors
    wanted = ctx.needs_input_grad[5]
    dq, dk, dv, dslopes = torch.ops.alibi.attention_positions_backward(
        dout, q, k, v, out, lse, lse_low, stops, wanted, positions_q, positions_k, slopes, *ctx.plain, *lengths)
    return dq, dk, dv, None, None, dslopes if wanted else None, *(None,) * 8


def _refuse_twice(ctx: Any, *_: Any) -> None:
    raise _core.Error("[attention_positions] is not twice differentiable; call backward without create_graph=True")


_library.impl("attention_positions", _forward, "CPU")
_library.impl("attention_positions_backward", _backward, "CPU")
_library.impl("attention_positions", _autocast, "AutocastCPU")
torch.library.register_fake("alibi::attention_positions", _forward_fake, lib=_library)
torch.library.register_fake("alibi::attention_positions_backward", _backward_fake, lib=_library)
torch.library.register_autograd("alibi::attention_positions", _differentiate, setup_context=_keep, lib=_library)
torch.library.register_autograd(
    "alibi::attention_positions_backward", _refuse_twice, setup_context=lambda ctx, inputs, output: None, lib=_library
)
_operator = torch.ops.alibi.attention_positions.default


def _points(given: Any) -> Tensor | None:
    """Contiguous (batch or 1, length, dims) of float32 or int32."""
    if given is None:
        return None
    points = torch.as_tensor(given)
    if points.requires_grad:
        raise _core.UsageError("[attention_positions] positions require a gradient, which they do not have")
    points = points.to(torch.float32 if points.is_floating_point() else torch.int32).contiguous()
    return points[None] if points.dim() == 2 else points


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
    refuse_other_kinds("attention_positions", q=q, k=k, v=v)
    check_axes(tuple(q.shape))
    lengths = [None if given is None else _offsets(given) for given in (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)]
    out, lse, _, _ = _operator(q, k, v, _points(positions_q), _points(positions_k), _slopes(alibi_slopes), distance, leading,
                               softmax_scale or 0.0, float(tolerance), *lengths)  # fmt: skip
    return (out, lse) if return_lse else out
