"""The operator on PyTorch's CUDA tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from . import _core
from ._options import TENSORS, Options, tensors_of, with_tensors


@contextmanager
def _queue(device: torch.device) -> Iterator[int]:
    """The current stream of the GPU, which is the current GPU meanwhile."""
    with torch.cuda.device(device):
        yield torch.cuda.current_stream(device).cuda_stream


def check(q: Tensor, dropout_p: float) -> None:
    if not _core.has_cuda():
        raise _core.Error(
            f"[attention] q is on '{q.device}', but this build of alibi_attention has no kernels for GPUs; install it "
            "from its source with -C cmake.define.ALIBI_CUDA=ON, or move the tensors to the CPU"
        )
    if dropout_p:
        raise _core.UsageError(f"[attention] dropout_p is {dropout_p}, expected 0 on '{q.device}'")


def on_host(name: str, given: Tensor | None) -> Tensor | None:
    """Slopes, sinks and offsets, which the host reads. A copy from a GPU waits for it."""
    if given is None or not given.is_cuda:
        return given
    if torch.cuda.is_current_stream_capturing():
        raise _core.UsageError(f"[attention] {name} is on a GPU, expected a tensor on the CPU while a CUDA graph is captured")
    return given.detach().cpu()


def core_options(q: Tensor, options: Options) -> Options:
    """With slopes, sinks and offsets on the CPU, and gates on the GPU."""
    check(q, options.dropout_p)
    gates = options.log_decay
    options = options._replace(log_decay=None)
    options = with_tensors(options, [on_host(name, tensor) for name, tensor in zip(TENSORS, tensors_of(options))])
    return options if gates is None else options._replace(log_decay=gates.detach().to(q.device))


def forward(q: Tensor, k: Tensor, v: Tensor, results: tuple[Tensor | None, ...], options: Options) -> None:
    """`results` are out, lse, and what the backward pass needs; all but out may be None."""
    out, lse, kernel_lse, blocks = results
    with _queue(q.device) as stream:
        _core.attention(q, k, v, out, lse, kernel_lse, blocks, options, stream)


def _aligned(x: Tensor) -> Tensor:
    """A tensor whose rows begin at multiples of 16 bytes, as the kernels read them."""
    values = 16 // x.element_size()
    if x.stride(-1) == 1 and x.data_ptr() % 16 == 0 and not any(step % values for step in x.stride()[:-1]):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def backward(dout: Tensor, inputs: tuple[Tensor, ...], results: tuple[Tensor, ...], parameters: list[Tensor | None],
             options: Options) -> None:  # fmt: skip
    """`inputs` are q, k, v, out, lse, kernel_lse and blocks; `results` are dq, dk and dv; `parameters` are the gradients of
    PARAMETERS, which may be on the CPU."""
    q, k, v, out, lse, kernel_lse, blocks = inputs
    dq, dk, dv = results
    with _queue(q.device) as stream:
        sums = [None if x is None else torch.zeros_like(x, device=q.device) for x in parameters]
        dslopes, dsinks, dlog_decay = sums
        _core.attention_backward(_aligned(dout), q, k, v, out, lse, kernel_lse, blocks, dq, dk, dv, dslopes, dsinks, dlog_decay,
                                 options, stream)  # fmt: skip
        for parameter, total in zip(parameters, sums, strict=True):
            if parameter is not None and total is not None:
                parameter.copy_(total)
