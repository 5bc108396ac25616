"""Derivatives of the operators in PyTorch: of reverse mode by the kernels, of forward mode by PyTorch's own operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ._core import Error, UsageError
from ._options import TENSORS, Options, with_tensors

_is_compiling = torch.compiler.is_compiling
_transform = torch._C._functorch.peek_interpreter_stack


def transformed() -> bool:
    """True within torch.func's grad, jvp, vmap and their relatives, in eager mode."""
    return not _is_compiling() and _transform() is not None


def refuse_forward_mode(operation: str, **tensors: Any) -> None:
    """Raises for tensors that carry tangents or belong to a transform of torch.func: a kernel would compute with their plain
    values and lose the derivative."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            continue
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            raise UsageError(f"[{operation}] {name} has a tangent of forward-mode differentiation, which this operation does "
                             "not have; expected a plain tensor")  # fmt: skip
        if transformed() and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise UsageError(f"[{operation}] {name} is a tensor of a transform of torch.func (grad, jvp or vmap), which this "
                             "operation does not support; expected a plain tensor")  # fmt: skip


def refuse_derivatives(operation: str, **tensors: Any) -> None:
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in tensors.values()):
        raise UsageError(f"[{operation}] has no gradient; call it under torch.no_grad()")
    refuse_forward_mode(operation, **tensors)


def check_devices(operation: str, q: Tensor, **tensors: Tensor | None) -> None:
    """For kernels of fake tensors, which PyTorch also calls if only one of the tensors is on 'meta'. Slopes and offsets may
    be on the CPU beside tensors on a GPU."""
    for name, tensor in tensors.items():
        if tensor is None or tensor.device == q.device:
            continue
        if q.device.type == "cuda" and name not in ("k", "v") and tensor.device.type == "cpu":
            continue
        raise UsageError(f"[{operation}] {name} is on '{tensor.device}', but q is on '{q.device}'; expected one device")


def _each(operator: Any) -> Callable[..., Any]:
    """A rule for vmap that calls the operator once for each entry, so that the bits are those of separate calls."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        results = [
            operator(*(x if dim is None else x.select(dim, i) for x, dim in zip(given, in_dims, strict=True)))
            for i in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(outputs) for outputs in zip(*results, strict=True))
        return stacked, (0,) * len(stacked)

    return rule


def differentiable(library: Any, name: str, keep: Any, differentiate: Any, tangent: Any) -> tuple[Any, Any]:
    """Registers the gradients of alibi::name and refuses those of alibi::name_backward. Returns functions that call the two
    in all modes. keep, differentiate and tangent are setup_context, backward and jvp of torch.autograd.Function."""

    def function_of(operator: Any, keep: Any, differentiate: Any, tangent: Any) -> Callable[..., Any]:
        class Function(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(*given: Any) -> Any:
                with torch._C._AutoDispatchBelowAutograd():
                    return operator(*given)

            setup_context = staticmethod(keep)
            backward = staticmethod(differentiate)
            jvp = staticmethod(tangent)

        def from_dispatcher(*given: Any) -> Any:
            if transformed():
                raise Error(f"[{name}] torch.ops.alibi.{name} has no rule for torch.func; call alibi_attention.{name}() instead, "
                            "outside of torch.compile")  # fmt: skip
            return Function.apply(*given)

        qualified = operator.name()
        library.impl(qualified.removeprefix("alibi::"), from_dispatcher, "Autograd")
        torch.library.register_vmap(qualified, _each(operator), lib=library)
        return lambda *given: (Function.apply if transformed() else operator)(*given)

    def refuse(ctx: Any, *given: Any) -> Any:
        raise Error(f"[{name}] is not twice differentiable; call backward without create_graph=True")

    ops = torch.ops.alibi
    backward = function_of(getattr(ops, f"{name}_backward").default, lambda ctx, inputs, output: None, refuse, refuse)
    return function_of(getattr(ops, name).default, keep, differentiate, tangent), backward


def keep_outputs(ctx: Any, output: tuple[Tensor, ...]) -> None:
    """All but the first output have no gradient. Under torch.func and in forward mode, lse, the second one, must not be
    marked, because a marked output has zeros instead of an error or a tangent."""
    marked = 2 if _transform() is not None or forward_ad._current_level >= 0 else 1
    ctx.mark_non_differentiable(*output[marked:])
    ctx.set_materialize_grads(False)


def check_gradients(operation: str, dlse: Tensor | None) -> None:
    if dlse is not None:
        raise UsageError(f"[{operation}] lse has no gradient in reverse mode, expected that of the output alone")


def sequences(q: Tensor, k: Tensor, cu_q: Tensor | None, cu_k: Tensor | None) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of (batch entries, query rows, key rows): one triple for each packed sequence, or a single one for the whole batch."""
    if cu_q is None or cu_k is None:
        yield slice(None), slice(0, q.shape[1]), slice(0, k.shape[1])
        return
    of_q, of_k = ([int(x) for x in offsets] for offsets in (cu_q, cu_k))  # tolist() fails within torch.func.jvp
    for i in range(len(of_q) - 1):
        yield slice(i, i + 1), slice(of_q[i], of_q[i + 1]), slice(of_k[i], of_k[i + 1])


def tangent_rows(primals: tuple[Tensor, ...], tangents: tuple[Tensor | None, ...], scale: float, softcap: float,
                 bias_of: Callable[[int, int], tuple[Tensor, Tensor | None]],
                 sinks: tuple[Tensor | None, Tensor | None] = (None, None)) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Tangents of out (batch, queries, heads, head_dim) and lse (batch, heads, queries), float32.

    bias_of(first, last) has the bias of these queries, -infinity where a key is not visible, and its tangent, both
    (batch or 1, heads or 1, last - first, keys). With weights p of scores s: dlse = sum_j p ds and
    dout = sum_j p (ds - dlse) v + p dv. `sinks` (heads,) and their tangents are one more key, whose value is zero.
    """
    q, k, v = (x.float() for x in primals)
    group = q.shape[2] // k.shape[2]
    dq, dk, dv = (None if x is None else x.float() for x in tangents)
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    dk, dv = (None if x is None else x.repeat_interleave(group, 2) for x in (dk, dv))
    if k.shape[1] == 0:
        return torch.zeros_like(q), q.new_zeros(q.shape[0], q.shape[2], q.shape[1])
    rows = max(1, (1 << 22) // max(1, q.shape[0] * q.shape[2] * k.shape[1]))  # scores of 16 MiB
    douts, dlses = [], []
    for first in range(0, q.shape[1], rows):
        last = min(first + rows, q.shape[1])
        some = q[:, first:last]
        scores = scale * torch.einsum("bihd,bjhd->bhij", some, k)
        change = torch.zeros_like(scores)
        if dq is not None:
            change = change + scale * torch.einsum("bihd,bjhd->bhij", dq[:, first:last], k)
        if dk is not None:
            change = change + scale * torch.einsum("bihd,bjhd->bhij", some, dk)
        if softcap:
            capped = torch.tanh(scores / softcap)
            scores, change = softcap * capped, change * (1 - capped * capped)
        bias, dbias = bias_of(first, last)
        scores = scores + bias
        if dbias is not None:
            change = change + dbias
        of_sinks, dsinks = sinks
        if of_sinks is not None:
            scores, change = (torch.cat([x, of[:, None, None].expand(*x.shape[:3], 1)], -1) for x, of in (
                (scores, of_sinks), (change, torch.zeros_like(of_sinks) if dsinks is None else dsinks)))  # fmt: skip
        largest = scores.amax(-1, keepdim=True)
        weights = (scores - largest.masked_fill(largest.isinf(), 0)).exp()
        total = weights.sum(-1, keepdim=True)
        weights = weights / total.masked_fill(total == 0, 1)
        dlse = (weights * change).sum(-1, keepdim=True)
        of_values = (weights * (change - dlse))[..., : k.shape[1]]
        dout = torch.einsum("bhij,bjhd->bihd", of_values, v)
        if dv is not None:
            dout = dout + torch.einsum("bhij,bjhd->bihd", weights[..., : k.shape[1]], dv)
        douts.append(dout)
        dlses.append(dlse[..., 0])
    if not douts:
        return torch.zeros_like(q), q.new_zeros(q.shape[0], q.shape[2], 0)
    return torch.cat(douts, 1), torch.cat(dlses, 2)


def slopes_of(slopes: Tensor, entries: slice) -> Tensor:
    """(batch or 1, heads, 1, 1) of (heads,) or (sequences, heads)"""
    return (slopes[None] if slopes.dim() == 1 else slopes[entries]).float()[:, :, None, None]


def tangent_of(primals: tuple[Tensor, ...], tangents: tuple[Tensor | None, ...], cu_q: Tensor | None, cu_k: Tensor | None,
               scale: float, softcap: float,
               bias_of: Callable[[slice, slice, slice, int, int], tuple[Tensor, Tensor | None]],
               sinks: tuple[Tensor | None, Tensor | None] = (None, None)) -> tuple[Any, ...]:  # fmt: skip
    """Tangents of an operator's four outputs: dout (batch, queries, heads, head_dim), dlse (batch, heads, queries), None, None.
    bias_of takes the slices of sequences() before the rows of queries."""
    q, k, v = primals
    scale = scale or q.shape[3] ** -0.5
    parts = []
    for sequence in sequences(q, k, cu_q, cu_k):
        _, of_q, of_k = sequence
        rows = (of_q, of_k, of_k)
        parts.append(tangent_rows(
            tuple(x[:, of] for x, of in zip(primals, rows, strict=True)),
            tuple(None if x is None else x[:, of] for x, of in zip(tangents, rows, strict=True)),
            scale, softcap, partial(bias_of, *sequence), sinks))  # fmt: skip
    return torch.cat([dout for dout, _ in parts], 1).to(q.dtype), torch.cat([dlse for _, dlse in parts], 2), None, None


def decay_of(gates: Tensor, dgates: Tensor | None, first: int, last: int) -> tuple[Tensor, Tensor | None]:
    """The sums of the gates (batch, keys, heads) after each key up to the queries at the positions from first to last,
    (batch, heads, last - first, keys), and their tangent. A query past the last key counts as one at the last key."""
    closed = gates.isinf()
    at = torch.arange(first, last, device=gates.device).clamp(0, gates.shape[1] - 1)

    def between(of_keys: Tensor) -> Tensor:
        sums = of_keys.double().cumsum(1).transpose(1, 2)
        return sums[:, :, at, None] - sums[:, :, None]

    decay = between(gates.masked_fill(closed, 0)).masked_fill(between(closed) > 0, float("-inf"))
    return decay.float(), None if dgates is None else between(dgates.masked_fill(closed, 0)).float()


def attention_tangent(ctx: Any, dq: Any, dk: Any, dv: Any, *doptions: Any) -> tuple[Any, ...]:
    q, k, v, *_ = ctx.saved_tensors
    options = with_tensors(ctx.options, ctx.saved_tensors[-len(TENSORS) :])
    tangents = Options(*doptions)
    dslopes, dslopes_after, dgates = tangents.alibi_slopes, tangents.alibi_slopes_after, tangents.log_decay
    if options.dropout_p:
        raise UsageError(f"[attention] dropout_p is {options.dropout_p}, expected 0 in forward-mode differentiation")
    slopes, slopes_after, window = options.alibi_slopes, options.alibi_slopes_after, options.window
    after = options.window_after or window

    def bias_of(entries: slice, of_q: slice, of_k: slice, first: int, last: int) -> tuple[Tensor, Tensor | None]:
        keys, queries = of_k.stop - of_k.start, of_q.stop - of_q.start
        begin = keys - queries if options.query_offset is None else options.query_offset
        distance = torch.arange(begin + first, begin + last, device=q.device)[:, None] - torch.arange(keys, device=q.device)
        seen = distance >= 0 if options.causal else distance > -after if after > 0 else torch.ones_like(distance, dtype=torch.bool)
        if window > 0:
            seen = seen & (distance < window)

        def linear(before: Tensor, behind: Tensor | None) -> Tensor:
            at = -slopes_of(before, entries) * distance.abs()
            return at if behind is None else torch.where(
                distance < 0, -slopes_of(behind, entries) * distance.clamp(max=-1).abs(), at)  # fmt: skip

        bias, dbias = q.new_zeros((), dtype=torch.float32), None
        if slopes is not None:
            bias = linear(slopes, slopes_after)
            if dslopes is not None or dslopes_after is not None:
                there = torch.zeros_like(slopes) if dslopes is None else dslopes
                beyond = torch.zeros_like(slopes_after) if dslopes_after is None and slopes_after is not None else dslopes_after
                dbias = linear(there, beyond)
        if options.log_decay is not None:
            decay, ddecay = decay_of(
                options.log_decay[:, of_k], None if dgates is None else dgates[:, of_k], begin + first, begin + last)
            bias = bias + decay
            dbias = ddecay if dbias is None else dbias if ddecay is None else dbias + ddecay
        return bias.masked_fill(~seen, float("-inf")), dbias

    return tangent_of((q, k, v), (dq, dk, dv), options.cu_seqlens_q, options.cu_seqlens_k, options.softmax_scale,
                      options.softcap, bias_of, (options.sinks, tangents.sinks))  # fmt: skip


class _RefuseBackward(torch.autograd.Function):
    """Returns `out`. A backward pass through it is an error."""

    @staticmethod
    def forward(ctx: Any, operation: str, out: Tensor, *inputs: Tensor) -> Tensor:  # type: ignore[override, unused-ignore]
        ctx.operation = operation
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:  # type: ignore[override, unused-ignore]
        raise UsageError(f"[{ctx.operation}] keys in pages have no gradient, expected no backward pass")


def without_gradient(operation: str, out: Tensor, *inputs: Tensor) -> Tensor:
    result: Tensor = _RefuseBackward.apply(operation, out, *inputs)
    return result
