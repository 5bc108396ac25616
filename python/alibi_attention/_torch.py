"""The operator in PyTorch: torch.ops.alibi.attention, registered with its gradients.

attend() calls the kernel without PyTorch's dispatcher where no gradient is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

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
from ._options import PARAMETERS, SCHEMA, TENSORS, Options, check_axes, floats_of, offsets_of, tensors_of, with_tensors

_core.set_torch(torch)

_library = torch.library.Library("alibi", "DEF")
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)")
_library.define(
    "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor kernel_lse, "
    f"Tensor blocks, {''.join(f'bool {name}_gradient, ' for name in PARAMETERS)}{SCHEMA}) -> (Tensor, Tensor, Tensor{', Tensor' * len(PARAMETERS)})"
)


def _core_options(given: tuple[Any, ...]) -> Options:
    """The operator's options as _core takes them: the seed is a number, and the default scale is None."""
    options = Options(*given)
    seed = options.dropout_seed
    return options._replace(softmax_scale=options.softmax_scale or None, dropout_seed=None if seed is None else int(seed.item()))


def _saved_words(q: Tensor, cu_seqlens_q: Tensor | None, tolerance: float) -> Any:
    """Number of int32 words that the kernel saves for its backward pass (KernelState::saved_words() of C++), for sizes that may
    be symbols. For packed sequences, whose lengths are data, the largest possible number."""
    if not tolerance > 0:
        return 2
    if cu_seqlens_q is None:
        blocks = q.shape[0] * ((q.shape[1] + 31) // 32)
    else:
        blocks = (q.shape[1] + 31 * max(cu_seqlens_q.shape[0] - 1, 0)) // 32
    return 2 + 2 * q.shape[2] * blocks


def _outputs(q: Tensor, options: Options) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New tensors for the output, lse (batch, heads, queries), and what the kernel saves for its backward pass: another lse and
    (words,) int32."""
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    words = q.new_empty((_saved_words(q, options.cu_seqlens_q, options.tolerance),), dtype=torch.int32)
    return q.new_empty(q.shape), lse, torch.empty_like(lse), words


def _forward(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _core.follow_torch_threads()
    options = _core_options(given)
    result = _outputs(q, options)
    _core.attention(q, k, v, *result, options)
    return result


def _forward_cuda(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    options = _torch_cuda.core_options(q, _core_options(given))
    result = _outputs(q, options)
    _torch_cuda.forward(q, k, v, result, options)
    return result


def _check_fake(q: Tensor, k: Tensor, v: Tensor, options: Options, **others: Tensor) -> None:
    own = dict(zip(TENSORS, tensors_of(options._replace(dropout_seed=None))))
    check_devices("attention", q, k=k, v=v, **own, **others)


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    options = Options(*given)
    _check_fake(q, k, v, options)
    return _outputs(q, options)


def _gradients(q: Tensor, k: Tensor, v: Tensor, options: Options, wanted: tuple[bool, ...]) -> tuple[Tensor, ...]:
    """New tensors for dq, dk and dv, and zeros for those of PARAMETERS that are wanted; the others are empty."""
    return (*(x.new_empty(x.shape) for x in (q, k, v)),
            *(torch.zeros_like(getattr(options, name), memory_format=torch.contiguous_format) if of
              else q.new_empty((0,), dtype=torch.float32) for name, of in zip(PARAMETERS, wanted, strict=True)))  # fmt: skip


def _given(gradients: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> list[Tensor | None]:
    """Those of PARAMETERS, as the library takes them."""
    return [gradient if of else None for gradient, of in zip(gradients[3:], wanted, strict=True)]


def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, kernel_lse: Tensor, blocks: Tensor,
    *given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    _core.follow_torch_threads()
    wanted, given = given[: len(PARAMETERS)], given[len(PARAMETERS) :]
    options = _core_options(given)
    result = _gradients(q, k, v, options, wanted)
    if dout.stride(-1) != 1:
        dout = dout.contiguous()
    dq, dk, dv = result[:3]
    dslopes, dsinks, dlog_decay = _given(result, wanted)
    _core.attention_backward(dout, q, k, v, out, lse, kernel_lse, blocks, dq, dk, dv, dslopes, dsinks, dlog_decay, options)
    return result


def _backward_cuda(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, kernel_lse: Tensor, blocks: Tensor,
    *given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    wanted, given = given[: len(PARAMETERS)], given[len(PARAMETERS) :]
    options = _torch_cuda.core_options(q, _core_options(given))
    result = _gradients(q, k, v, Options(*given), wanted)
    _torch_cuda.backward(dout, (q, k, v, out, lse, kernel_lse, blocks), result[:3], _given(result, wanted), options)
    return result


def _backward_fake(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, kernel_lse: Tensor, blocks: Tensor,
    *given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    wanted, given = given[: len(PARAMETERS)], given[len(PARAMETERS) :]
    options = Options(*given)
    _check_fake(q, k, v, options, dout=dout, out=out, lse=lse, kernel_lse=kernel_lse, blocks=blocks)
    return _gradients(q, k, v, options, wanted)


def _autocast(operator: str, device: str, key: Any) -> Any:
    """The rule for autocast: q, k and v are cast, as in SDPA. Slopes and positions are not, because bfloat16 keeps three digits."""
    autocast = torch._C.DispatchKeySet(key)

    def cast(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return getattr(torch.ops.alibi, operator)(q.to(dtype), k.to(dtype), v.to(dtype), *given)

    return cast


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, *given = inputs
    options = Options(*given)
    keep_outputs(ctx, output)
    saved = (q, k, v, *output, *tensors_of(options))
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.options = with_tensors(options)


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, *_: Any) -> tuple[Any, ...]:
    check_gradients("attention", dlse)
    of_options: list[Any] = [None] * len(Options._fields)
    if dout is None:
        return None, None, None, *of_options
    q, k, v, out, lse, kernel_lse, blocks, *tensors = ctx.saved_tensors
    needed = dict(zip(Options._fields, ctx.needs_input_grad[3:], strict=True))
    if needed["alibi_slopes_after"]:
        raise _core.UsageError("[attention] alibi_slopes_after requires a gradient, which only alibi_slopes have")
    wanted = [needed[name] for name in PARAMETERS]
    dq, dk, dv, *gradients = _backward_operator(
        dout, q, k, v, out, lse, kernel_lse, blocks, *wanted, *with_tensors(ctx.options, tensors))
    for name, of, gradient in zip(PARAMETERS, wanted, gradients, strict=True):
        of_options[Options._fields.index(name)] = gradient if of else None
    return dq, dk, dv, *of_options


_library.impl("attention", _forward, "CPU")
_library.impl("attention_backward", _backward, "CPU")
_library.impl("attention", _forward_cuda, "CUDA")
_library.impl("attention_backward", _backward_cuda, "CUDA")
_library.impl("attention", _autocast("attention", "cpu", torch._C.DispatchKey.AutocastCPU), "AutocastCPU")
_library.impl("attention", _autocast("attention", "cuda", torch._C.DispatchKey.AutocastCUDA), "AutocastCUDA")
torch.library.register_fake("alibi::attention", _forward_fake, lib=_library)
torch.library.register_fake("alibi::attention_backward", _backward_fake, lib=_library)
_operator, _backward_operator = differentiable(_library, "attention", _keep, _differentiate, attention_tangent)

# Bound once: looking them up takes as long as they do.
_PLAIN = (Tensor, torch.nn.Parameter)
_ndarray, _float32, _attention_result = np.ndarray, torch.float32, _core.attention_result
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state
_transform = torch._C._functorch.peek_interpreter_stack
_SLOPES, _SLOPES_AFTER, _DROPOUT_P, _CU_SEQLENS_Q, _CU_SEQLENS_K, _SINKS, _LOG_DECAY = map(
    Options._fields.index,
    ("alibi_slopes", "alibi_slopes_after", "dropout_p", "cu_seqlens_q", "cu_seqlens_k", "sinks", "log_decay"),
)


def _direct(q: Tensor, k: Tensor, v: Tensor, slopes: Any, *others: Any) -> bool:
    """True if autograd, tracing, transforms, dispatch modes and autocast are all inactive for these tensors. Slopes are tensors,
    arrays of NumPy, or None; the others are tensors or None."""
    if not (type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN):
        return False
    if _is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (slopes is not None and type(slopes) is not _ndarray and slopes.requires_grad)
        or any(x is not None and x.requires_grad for x in others)
    ):
        return False
    return (
        not _is_any_autocast_enabled()
        and _modes() == 0
        and _tracing_state() is None
        and _transform() is None
        and forward_ad._current_level < 0
    )


def slopes_as_tensor(operation: str, name: str, given: Any) -> Tensor:
    """The slopes as a float32 tensor. Arrays and lists are copied, because the backward pass reads the values again."""
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
    """Offsets or counts as an int32 tensor (n,). Arrays and lists are copied. Numbers beyond int32 become its largest number,
    which is refused later, because no tensor has as many rows."""
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


def _as_tensors(operation: str, options: Options) -> Options:
    """With slopes, sinks and offsets as tensors."""
    tensors = [
        None if given is None or name == "dropout_seed"
        else ints_as_tensor(operation, name, given) if name.startswith("cu_seqlens")
        else slopes_as_tensor(operation, name, given)
        for name, given in zip(TENSORS, tensors_of(options))
    ]  # fmt: skip
    return with_tensors(options, tensors)._replace(dropout_seed=options.dropout_seed)


def _on_cuda(q: Tensor, k: Tensor, v: Tensor, options: Options, return_lse: bool) -> Any:
    options = _torch_cuda.core_options(q, _as_tensors("attention", options))
    results: tuple[Any, ...] = _outputs(q, options) if return_lse else (q.new_empty(q.shape), None, None, None)
    _torch_cuda.forward(q, k, v, results, options)
    return results[:2] if return_lse else results[0]


def _dispatched(q: Tensor, k: Tensor, v: Tensor, options: Options, return_lse: bool) -> Any:
    """Calls the operator through PyTorch's dispatcher, which records gradients, traces and casts."""
    if not (isinstance(k, Tensor) and isinstance(v, Tensor)) or not (
        q.layout is k.layout is v.layout is torch.strided
    ):
        refuse_other_kinds("attention", q=q, k=k, v=v)
    if q.dim() != 4:
        check_axes(tuple(q.shape))
    options = _as_tensors("attention", options)
    seed, offset = options.dropout_seed, options.query_offset
    if not _is_compiling():
        seed = None if seed is None else _core.integer("attention", "dropout_seed", seed)
        _core.check_options(with_tensors(options))
        offset = None if offset is None else int(offset)
        if transformed() and torch.is_autocast_enabled(q.device.type):  # for the operator, its rule for autocast does this
            dtype = torch.get_autocast_dtype(q.device.type)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if options.dropout_p:  # drawn here, so that a compiled or checkpointed graph draws it again
        seed = torch.randint(1 << 62, (1,), device="cpu") if seed is None else torch.tensor([seed], device="cpu")
    else:
        seed = None
    if options.softmax_scale == 0:  # 0 is the operator's default
        raise _core.UsageError("[attention] softmax_scale is 0, expected another number; None: 1 / sqrt(head_dim)")
    options = options._replace(
        causal=bool(options.causal), softmax_scale=0.0 if options.softmax_scale is None else float(options.softmax_scale),
        dropout_p=float(options.dropout_p), dropout_seed=seed, query_offset=offset, tolerance=float(options.tolerance),
        softcap=float(options.softcap))  # fmt: skip
    out, lse, _, _ = _operator(q, k, v, *options)
    return (out, lse) if return_lse else out


def attend(q: Tensor, k: Tensor, v: Tensor, options: tuple[Any, ...], return_lse: bool) -> Any:
    """_attention.attend() for tensors. Without gradients it calls the kernel itself, not PyTorch's dispatcher."""
    if _is_compiling():
        return _dispatched(q, k, v, Options(*options), return_lse)
    slopes, dropout_p = options[_SLOPES], options[_DROPOUT_P]
    readable = slopes is None or type(slopes) is _ndarray or (type(slopes) is Tensor and slopes.dtype is _float32)
    if not readable or not (
        options[_SLOPES_AFTER] is options[_CU_SEQLENS_Q] is options[_CU_SEQLENS_K] is options[_SINKS] is options[_LOG_DECAY] is None
    ):
        options = _as_tensors("attention", Options(*options))
    biases = options[_SLOPES], options[_SLOPES_AFTER], options[_SINKS], options[_LOG_DECAY]
    if type(dropout_p) is float and not dropout_p and _direct(q, k, v, *biases):
        if q.is_cpu:
            return _attention_result(q, k, v, options, return_lse)
        if q.is_cuda:
            return _on_cuda(q, k, v, Options(*options), return_lse)
    return _dispatched(q, k, v, Options(*options), return_lse)


def attention_decode(q: Tensor, cache: _core.KvCache, options: Options, return_lse: bool) -> Any:
    operation = "attention_decode"
    refuse_other_kinds(operation, q=q)
    check_axes(tuple(q.shape))
    refuse_derivatives(operation, q=q, alibi_slopes=options.alibi_slopes, alibi_slopes_after=options.alibi_slopes_after,
                       sinks=options.sinks)  # fmt: skip
    _core.follow_torch_threads()
    options = _as_tensors(operation, options)
    out = q.new_empty(q.shape)
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32) if return_lse else None
    _core.attention_decode(q, cache, out, lse, options)
    return (out, lse) if return_lse else out


def merge_attention(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    tensors = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
    refuse_other_kinds("merge_attention", **tensors)
    refuse_derivatives("merge_attention", **tensors)
    _core.follow_torch_threads()
    out, lse = out_a.new_empty(out_a.shape), lse_a.new_empty(lse_a.shape, dtype=torch.float32)
    _core.merge_attention(out_a, lse_a.contiguous(), out_b, lse_b.contiguous(), out, lse)
    return out, lse
