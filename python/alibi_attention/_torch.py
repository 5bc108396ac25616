"""The operator in PyTorch: torch.ops.alibi.attention, registered with its gradients.

If no gradient is needed, attention() calls the kernel directly, without PyTorch's dispatcher.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from . import _core, _torch_cuda
from ._derivatives import (
    attention_tangent,
    check_devices,
    check_gradients,
    differentiable,
    keep_outputs,
    refuse_derivatives,
    refuse_forward_mode,
    transformed,
    without_gradient,
)
from ._kind import refuse_other_kinds
from ._options import EVERYWHERE, Window, check_axes, floats_of, offsets_of, options, window_of

_core.set_torch(Tensor, to_dlpack, torch.UntypedStorage)

_OPTIONS = (
    "Tensor? slopes, Tensor? slopes_after, bool causal, SymInt window, float scale, float dropout_p, "
    "Tensor? dropout_seed, SymInt? query_offset, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, float tolerance, "
    "SymInt window_after, float softcap"
)
_library = torch.library.Library("alibi", "DEF")
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)")
_library.define(
    "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor kernel_lse, "
    f"Tensor blocks, bool slopes_gradient, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _follow_threads() -> None:
    count = torch.get_num_threads()
    if count != _core.threads():
        _core.set_threads(count)


def _core_options(
    slopes: Tensor | None,
    slopes_after: Tensor | None,
    causal: bool,
    window: int,
    scale: float,
    dropout_p: float,
    dropout_seed: Tensor | None,
    query_offset: int | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    tolerance: float,
    window_after: int,
    softcap: float,
) -> tuple[Any, ...]:
    seed = 0 if dropout_seed is None else int(dropout_seed.item())
    return (slopes, slopes_after, causal, window, scale or None, dropout_p, seed, query_offset, cu_seqlens_q, cu_seqlens_k,
            tolerance, window_after, softcap)  # fmt: skip


def _saved_words(q: Tensor, cu_seqlens_q: Tensor | None, tolerance: float) -> Any:
    """KernelState::saved_words() of sizes that may be symbols; of packed sequences, whose lengths are data, the most."""
    if not tolerance > 0:
        return 2
    if cu_seqlens_q is None:
        blocks = q.shape[0] * ((q.shape[1] + 31) // 32)
    else:
        blocks = (q.shape[1] + 31 * max(cu_seqlens_q.shape[0] - 1, 0)) // 32
    return 2 + 2 * q.shape[2] * blocks


def _outputs(q: Tensor, cu_seqlens_q: Tensor | None, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """out, lse, and what the kernel wants to know again."""
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    words = q.new_empty((_saved_words(q, cu_seqlens_q, tolerance),), dtype=torch.int32)
    return q.new_empty(q.shape), lse, torch.empty_like(lse), words


def _forward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _follow_threads()
    result = _outputs(q, given[8], given[10])
    _core.attention(q, k, v, *result, _core_options(*given))
    return result


def _options_on_cuda(q: Tensor, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of the operator's arguments after q, k and v."""
    _torch_cuda.check(q, given[5])
    options = (*given[:4], given[4] or None, *given[7:])  # a scale of 0 is the default
    return _torch_cuda.core_options(*options)


def _forward_cuda(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    options = _options_on_cuda(q, given)
    result = _outputs(q, given[8], given[10])
    _torch_cuda.forward(q, k, v, result, options)
    return result


def _check_fake(q: Tensor, k: Tensor, v: Tensor, given: tuple[Any, ...], **others: Tensor) -> None:
    check_devices("attention", q, k=k, v=v, alibi_slopes=given[0], alibi_slopes_after=given[1], cu_seqlens_q=given[8],
                  cu_seqlens_k=given[9], **others)  # fmt: skip


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check_fake(q, k, v, given)
    return _outputs(q, given[8], given[10])


def _gradients(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, slopes_gradient: bool) -> tuple[Tensor, ...]:
    dslopes = None
    if slopes_gradient and slopes is not None:
        dslopes = torch.zeros_like(slopes, memory_format=torch.contiguous_format)
    return (*(x.new_empty(x.shape) for x in (q, k, v)),
            q.new_empty((0,), dtype=torch.float32) if dslopes is None else dslopes)  # fmt: skip


def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, kernel_lse: Tensor, blocks: Tensor,
    slopes_gradient: bool, *given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    _follow_threads()
    result = _gradients(q, k, v, given[0], slopes_gradient)
    if dout.stride(-1) != 1:
        dout = dout.contiguous()
    dq, dk, dv, dslopes = result
    _core.attention_backward(dout, q, k, v, out, lse, kernel_lse, blocks, dq, dk, dv,
                             dslopes if slopes_gradient else None, _core_options(*given))  # fmt: skip
    return result


def _backward_cuda(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, kernel_lse: Tensor, blocks: Tensor,
    slopes_gradient: bool, *given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    options = _options_on_cuda(q, given)
    result = _gradients(q, k, v, given[0], slopes_gradient)
    dslopes = result[3] if slopes_gradient else None
    _torch_cuda.backward(dout, (q, k, v, out, lse, kernel_lse, blocks), result[:3], dslopes, options)
    return result


def _backward_fake(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    out, lse, kernel_lse, blocks, _, *options = given
    _check_fake(q, k, v, tuple(options), dout=dout, out=out, lse=lse, kernel_lse=kernel_lse, blocks=blocks)
    return _gradients(q, k, v, given[5], given[4])


def _autocast(device: str, key: Any) -> Any:
    """Casts what SDPA casts; slopes stay float32, of which bfloat16 would keep three digits."""
    autocast = torch._C.DispatchKeySet(key)

    def cast(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return torch.ops.alibi.attention(q.to(dtype), k.to(dtype), v.to(dtype), *given)

    return cast


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    (q, k, v, slopes, slopes_after, causal, window, scale, dropout_p, seed, offset, cu_q, cu_k, tolerance, after,
     softcap) = inputs  # fmt: skip
    keep_outputs(ctx, output)
    saved = (q, k, v, *output, slopes, slopes_after, seed, cu_q, cu_k)
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.plain = (causal, window, scale, dropout_p, offset, tolerance, after, softcap)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    check_gradients("attention", dlse)
    if dout is None:
        return (None,) * 16
    q, k, v, out, lse, kernel_lse, blocks, slopes, slopes_after, seed, cu_q, cu_k = ctx.saved_tensors
    causal, window, scale, dropout_p, offset, tolerance, after, softcap = ctx.plain
    if ctx.needs_input_grad[4]:
        raise _core.UsageError("[attention] alibi_slopes_after requires a gradient, which only alibi_slopes have")
    wanted = ctx.needs_input_grad[3]
    dq, dk, dv, dslopes = _backward_operator(
        dout, q, k, v, out, lse, kernel_lse, blocks, wanted, slopes, slopes_after, causal, window, scale, dropout_p,
        seed, offset, cu_q, cu_k, tolerance, after, softcap)  # fmt: skip
    return dq, dk, dv, dslopes if wanted else None, *(None,) * 12


_library.impl("attention", _forward, "CPU")
_library.impl("attention_backward", _backward, "CPU")
_library.impl("attention", _forward_cuda, "CUDA")
_library.impl("attention_backward", _backward_cuda, "CUDA")
_library.impl("attention", _autocast("cpu", torch._C.DispatchKey.AutocastCPU), "AutocastCPU")
_library.impl("attention", _autocast("cuda", torch._C.DispatchKey.AutocastCUDA), "AutocastCUDA")
torch.library.register_fake("alibi::attention", _forward_fake, lib=_library)
torch.library.register_fake("alibi::attention_backward", _backward_fake, lib=_library)
_operator, _backward_operator = differentiable(_library, "attention", _keep, _differentiate, attention_tangent)

_PLAIN = (Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_empty_like, _CONTIGUOUS = torch.empty_like, torch.contiguous_format


# Bound once: looking them up takes as long as they do.
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state
_transform = torch._C._functorch.peek_interpreter_stack


def _direct(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, slopes_after: Tensor | None) -> bool:
    """True if nobody watches what happens to these tensors: no gradient, tracing, transform, mode or autocast."""
    if _is_compiling():
        return False
    if _is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (slopes is not None and slopes.requires_grad)
        or (slopes_after is not None and slopes_after.requires_grad)
    ):
        return False
    return (
        type(q) in _PLAIN
        and not q.is_meta
        and type(k) in _PLAIN
        and type(v) in _PLAIN
        and not _is_autocast_enabled("cuda" if q.is_cuda else "cpu")
        and _modes() == 0
        and _tracing_state() is None
        and _transform() is None
        and forward_ad._current_level < 0
    )


def slopes_as_tensor(operation: str, name: str, given: Any) -> Tensor:
    """float32. A copy of what is no tensor: the backward pass reads it again."""
    if not isinstance(given, Tensor):
        if _is_compiling():
            return torch.as_tensor(given, dtype=torch.float32).clone()
        return torch.from_numpy(floats_of(operation, name, given))
    if given.dtype is torch.float32:
        return given
    if given.is_complex() or given.dtype is torch.bool:
        raise _core.UsageError(f"[{operation}] {name} is {given.dtype}, expected float32")
    return given.float()


def ints_as_tensor(operation: str, name: str, given: Any) -> Tensor:
    """int32, likewise a copy. Numbers beyond int32 become the largest, which no number of rows is."""
    if not isinstance(given, Tensor):
        if _is_compiling():
            return torch.as_tensor(given, dtype=torch.int32).clone()
        return torch.from_numpy(offsets_of(operation, name, given).copy())
    if given.dtype is torch.int32:
        return given
    if given.is_floating_point() or given.is_complex() or given.dtype is torch.bool or given.dim() != 1:
        raise _core.UsageError(f"[{operation}] {name} is {given.dtype} of shape {tuple(given.shape)}, expected one axis of "
                               "integers")  # fmt: skip
    return given.clamp(-(1 << 31), (1 << 31) - 1).int() if given.dtype is torch.int64 else given.int()


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Any = None,
    causal: bool = True,
    window_size: Window = EVERYWHERE,
    softmax_scale: float | None = None,
    dropout_p: float = 0.0,
    query_offset: int | None = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    alibi_slopes_after: Any = None,
    tolerance: float = 0.0,
    return_lse: bool = False,
    dropout_seed: int | None = None,
    softcap: float = 0.0,
) -> Any:
    if not (isinstance(k, Tensor) and isinstance(v, Tensor)) or not (
        q.layout is k.layout is v.layout is _STRIDED
    ):
        refuse_other_kinds("attention", q=q, k=k, v=v)
    if q.dim() != 4:
        check_axes(tuple(q.shape))
    slopes = None if alibi_slopes is None else slopes_as_tensor("attention", "alibi_slopes", alibi_slopes)
    after = None
    if alibi_slopes_after is not None:
        after = slopes_as_tensor("attention", "alibi_slopes_after", alibi_slopes_after)
    cu_q = None if cu_seqlens_q is None else ints_as_tensor("attention", "cu_seqlens_q", cu_seqlens_q)
    cu_k = None if cu_seqlens_k is None else ints_as_tensor("attention", "cu_seqlens_k", cu_seqlens_k)
    window = after_window = 0
    if window_size is not EVERYWHERE:
        causal, window, after_window = window_of(causal, window_size)
    compiling = _is_compiling()
    if type(dropout_p) is not float and not compiling:
        dropout_p = _core.real("attention", "dropout_p", dropout_p)
    if dropout_seed is not None and not compiling:
        dropout_seed = _core.integer("attention", "dropout_seed", dropout_seed)
    if not dropout_p and _direct(q, k, v, slopes, after):
        if q.is_cuda:
            _torch_cuda.check(q, 0.0)
            on_gpu = _torch_cuda.core_options(slopes, after, causal, window, softmax_scale, query_offset, cu_q, cu_k,
                                              tolerance, after_window, softcap)  # fmt: skip
            results: tuple[Any, ...] = _outputs(q, cu_q, tolerance) if return_lse else (q.new_empty(q.shape),) + (None,) * 3
            _torch_cuda.forward(q, k, v, results, on_gpu)
            return results[:2] if return_lse else results[0]
        _follow_threads()
        given = (slopes, after, causal, window, softmax_scale, 0.0, 0, query_offset, cu_q, cu_k, tolerance,
                 after_window, softcap)  # fmt: skip
        out = _empty_like(q, memory_format=_CONTIGUOUS)
        lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32) if return_lse else None
        _core.attention(q, k, v, out, lse, None, None, given)
        return (out, lse) if return_lse else out
    if not compiling:
        _core.check_options((None, None, causal, window, softmax_scale, dropout_p, 0, query_offset, None, None, tolerance,
                             after_window, softcap))  # fmt: skip
        query_offset = None if query_offset is None else int(query_offset)
        if transformed() and torch.is_autocast_enabled(q.device.type):  # for the operator, its rule for autocast does this
            dtype = torch.get_autocast_dtype(q.device.type)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    seed = None
    if dropout_p:  # drawn here, so that a compiled or checkpointed graph draws it again
        seed = torch.randint(1 << 62, (1,), device="cpu") if dropout_seed is None else torch.tensor([dropout_seed], device="cpu")
    if softmax_scale == 0:  # 0 is the operator's default
        raise _core.UsageError("[attention] softmax_scale is 0, expected another number; None: 1 / sqrt(head_dim)")
    scale = 0.0 if softmax_scale is None else float(softmax_scale)
    out, lse, _, _ = _operator(q, k, v, slopes, after, bool(causal), window, scale, float(dropout_p), seed,
                               query_offset, cu_q, cu_k, float(tolerance), after_window, float(softcap))  # fmt: skip
    return (out, lse) if return_lse else out


def attention_decode(
    q: Tensor,
    cache: _core.KvCache,
    alibi_slopes: Any,
    causal: bool,
    window_size: Window,
    softmax_scale: float | None,
    query_offset: int | None,
    alibi_slopes_after: Any,
    tolerance: float,
    return_lse: bool,
    softcap: float = 0.0,
) -> Any:
    operation = "attention_decode"
    refuse_other_kinds(operation, q=q)
    check_axes(tuple(q.shape))
    refuse_derivatives(operation, q=q, alibi_slopes=alibi_slopes, alibi_slopes_after=alibi_slopes_after)
    _follow_threads()
    slopes, after = (None if x is None else slopes_as_tensor(operation, name, x)
                     for name, x in (("alibi_slopes", alibi_slopes), ("alibi_slopes_after", alibi_slopes_after)))  # fmt: skip
    given = options(slopes, after, causal, window_size, softmax_scale, query_offset, tolerance, softcap)
    out = q.new_empty(q.shape)
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32) if return_lse else None
    _core.attention_decode(q, cache, out, lse, given)
    return (out, lse) if return_lse else out


def merge_attention(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    tensors = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
    refuse_other_kinds("merge_attention", **tensors)
    refuse_derivatives("merge_attention", **tensors)
    _follow_threads()
    out, lse = out_a.new_empty(out_a.shape), lse_a.new_empty(lse_a.shape, dtype=torch.float32)
    _core.merge_attention(out_a, lse_a.contiguous(), out_b, lse_b.contiguous(), out, lse)
    return out, lse
