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
from ._kind import refuse_other_kinds
from ._options import EVERYWHERE, Window, check_axes, options, refuse_scale, window_of

_core.set_torch(Tensor, to_dlpack)

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
    return (slopes, slopes_after, causal, window, scale, dropout_p, seed, query_offset, cu_seqlens_q, cu_seqlens_k,
            tolerance, window_after, softcap)  # fmt: skip


def _saved_words(q: Tensor, cu_seqlens_q: Tensor | None, tolerance: float) -> Any:
    """KernelState::saved_words() of sizes that may be symbols; of packed sequences, whose lengths are data, the most."""
    if not tolerance > 0:
        return 2
    if cu_seqlens_q is None:
        blocks = q.shape[0] * ((q.shape[1] + 31) // 32)
    else:
        blocks = (q.shape[1] + 31 * (cu_seqlens_q.shape[0] - 1)) // 32
    return 2 + 2 * q.shape[2] * blocks


def _outputs(q: Tensor, cu_seqlens_q: Tensor | None, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """out, lse, and what the kernel wants to know again."""
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    words = q.new_empty((_saved_words(q, cu_seqlens_q, tolerance),), dtype=torch.int32)
    return q.new_empty(q.shape), lse, torch.empty_like(lse), words


def _forward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _follow_threads()
    result = _outputs(q, given[8], given[10])
    _core.attention(q, k, v, *result, _core_options(*given), False)
    return result


def _options_on_cuda(q: Tensor, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of the operator's arguments after q, k and v."""
    _torch_cuda.check(q, given[5])
    return _torch_cuda.core_options(*given[:5], *given[7:])


def _forward_cuda(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    options = _options_on_cuda(q, given)
    result = _outputs(q, given[8], given[10])
    _torch_cuda.forward(q, k, v, result, options)
    return result


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
    return _gradients(q, k, v, given[5], given[4])


def _autocast(device: str, key: Any) -> Any:
    """Casts what SDPA casts; slopes stay float32, of which bfloat16 would keep three digits."""
    autocast = torch._C.DispatchKeySet(key)

    def cast(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return _operator(q.to(dtype), k.to(dtype), v.to(dtype), *given)

    return cast


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    (q, k, v, slopes, slopes_after, causal, window, scale, dropout_p, seed, offset, cu_q, cu_k, tolerance, after,
     softcap) = inputs  # fmt: skip
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(q, k, v, *output, slopes, slopes_after, seed, cu_q, cu_k)
    ctx.plain = (causal, window, scale, dropout_p, offset, tolerance, after, softcap)


def _differentiate(ctx: Any, dout: Tensor, *_: Any) -> tuple[Any, ...]:
    q, k, v, out, lse, kernel_lse, blocks, slopes, slopes_after, seed, cu_q, cu_k = ctx.saved_tensors
    causal, window, scale, dropout_p, offset, tolerance, after, softcap = ctx.plain
    if ctx.needs_input_grad[4]:
        raise _core.UsageError("[attention] alibi_slopes_after requires a gradient, which only alibi_slopes have")
    wanted = ctx.needs_input_grad[3]
    dq, dk, dv, dslopes = torch.ops.alibi.attention_backward(
        dout, q, k, v, out, lse, kernel_lse, blocks, wanted, slopes, slopes_after, causal, window, scale, dropout_p,
        seed, offset, cu_q, cu_k, tolerance, after, softcap)  # fmt: skip
    return dq, dk, dv, dslopes if wanted else None, *(None,) * 12


def _refuse_twice(ctx: Any, *_: Any) -> None:
    raise _core.Error("[attention] is not twice differentiable; call backward without create_graph=True")


_library.impl("attention", _forward, "CPU")
_library.impl("attention_backward", _backward, "CPU")
_library.impl("attention", _forward_cuda, "CUDA")
_library.impl("attention_backward", _backward_cuda, "CUDA")
_library.impl("attention", _autocast("cpu", torch._C.DispatchKey.AutocastCPU), "AutocastCPU")
_library.impl("attention", _autocast("cuda", torch._C.DispatchKey.AutocastCUDA), "AutocastCUDA")
torch.library.register_fake("alibi::attention", _forward_fake, lib=_library)
torch.library.register_fake("alibi::attention_backward", _backward_fake, lib=_library)
torch.library.register_autograd("alibi::attention", _differentiate, setup_context=_keep, lib=_library)
torch.library.register_autograd(
    "alibi::attention_backward", _refuse_twice, setup_context=lambda ctx, inputs, output: None, lib=_library
)
_operator = torch.ops.alibi.attention.default

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
        and type(k) in _PLAIN
        and type(v) in _PLAIN
        and not _is_autocast_enabled("cuda" if q.is_cuda else "cpu")
        and _modes() == 0
        and _tracing_state() is None
        and _transform() is None
        and forward_ad._current_level < 0
    )


def _slopes(given: Any) -> Tensor | None:
    if given is None:
        return None
    slopes: Tensor = given if isinstance(given, Tensor) else torch.as_tensor(given, dtype=torch.float32)
    return slopes if slopes.dtype is torch.float32 else slopes.float()


def _offsets(given: Any) -> Tensor:
    return torch.as_tensor(given, dtype=torch.int32)


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
    slopes = None if alibi_slopes is None else _slopes(alibi_slopes)
    after = None if alibi_slopes_after is None else _slopes(alibi_slopes_after)
    cu_q = None if cu_seqlens_q is None else _offsets(cu_seqlens_q)
    cu_k = None if cu_seqlens_k is None else _offsets(cu_seqlens_k)
    window = after_window = 0
    if window_size is not EVERYWHERE:
        causal, window, after_window = window_of(causal, window_size)
    if softmax_scale == 0:
        refuse_scale()
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
        _core.attention(q, k, v, out, lse, None, None, given, False)
        return (out, lse) if return_lse else out
    seed = None
    if dropout_p:  # drawn here, so that a compiled or checkpointed graph draws it again
        seed = torch.randint(1 << 62, (1,)) if dropout_seed is None else torch.tensor([dropout_seed])
    out, lse, _, _ = _operator(q, k, v, slopes, after, bool(causal), window, softmax_scale or 0.0, float(dropout_p), seed,
                               query_offset, cu_q, cu_k, float(tolerance), after_window, float(softcap))  # fmt: skip
    return (out, lse) if return_lse else out


def refuse_gradients(operation: str, *tensors: Tensor) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise _core.UsageError(f"[{operation}] has no gradient; call it under torch.no_grad()")


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
    check_axes(tuple(q.shape))
    refuse_gradients("attention_decode", q)
    _follow_threads()
    given = options(_slopes(alibi_slopes), _slopes(alibi_slopes_after), causal, window_size, softmax_scale,
                    query_offset, tolerance, softcap)  # fmt: skip
    out = q.new_empty(q.shape)
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32) if return_lse else None
    _core.attention_decode(q, cache, out, lse, given, False)
    return (out, lse) if return_lse else out


class _RefuseBackward(torch.autograd.Function):
    """The first tensor, without a gradient: a backward pass through it is an error."""

    @staticmethod
    def forward(ctx: Any, operation: str, out: Tensor, *inputs: Tensor) -> Tensor:  # type: ignore[override, unused-ignore]
        ctx.operation = operation
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:  # type: ignore[override, unused-ignore]
        raise _core.UsageError(f"[{ctx.operation}] keys in pages have no gradient, expected no backward pass")


def without_gradient(operation: str, out: Tensor, *inputs: Tensor) -> Tensor:
    result: Tensor = _RefuseBackward.apply(operation, out, *inputs)
    return result


def merge_attention(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    refuse_gradients("merge_attention", out_a, lse_a, out_b, lse_b)
    _follow_threads()
    out, lse = out_a.new_empty(out_a.shape), lse_a.new_empty(lse_a.shape)
    _core.merge_attention(out_a, lse_a.contiguous(), out_b, lse_b.contiguous(), out, lse, False)
    return out, lse
