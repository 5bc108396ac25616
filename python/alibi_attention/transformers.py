"""Models of Hugging Face's transformers on this package's attention: alibi.transformers.patch(model).

MPT, BLOOM and Falcon (with alibi) then run at any length, without a mask or bias of length x length, left-padded,
cached, and in training. unpatch(model) restores the model. Other models, other
versions of transformers and settings that the kernel does not have are refused.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon
from transformers.models.mpt import modeling_mpt

from . import _core
from ._core import Error, UsageError
from ._torch import attention

__all__ = ["patch", "unpatch"]

_VERSIONS = ("5.23.",)
"""The version of transformers whose private functions this file replaces."""
_NAME = "alibi"


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: Any = "cpu",
    **_: Any,
) -> Tensor:
    """The model's mask, [batch, keys], True: a token; [batch, 0] where nothing is padded. Nothing of length x length."""
    if mask_function is not causal_mask_function:
        raise Error("[transformers] the model asks for a mask other than the causal one, which its patch does not have")
    if int(q_offset) + q_length != kv_length + kv_offset or kv_offset != 0:
        raise Error(
            f"[transformers] a cache of {kv_length} keys from {kv_offset} on for {q_length} queries at {int(q_offset)}: "
            "expected one that holds what was read and no more, such as DynamicCache"
        )
    if attention_mask is None:
        return torch.ones((batch_size, 0), dtype=torch.bool, device=device)
    tokens = attention_mask[:, -kv_length:].to(torch.bool)
    return tokens[:, :0] if bool(tokens.all()) else tokens


AttentionMaskInterface.register(_NAME, _mask)
AttentionInterface.register(_NAME, lambda *_, **__: None)  # the name must be known; the modules' own forward is called


def _padding(tokens: Tensor) -> list[int]:
    """Of each row the places before its first token. (Places after the last one are seen by no token.)"""
    begins = tokens.to(torch.int8).argmax(1)
    ends = tokens.shape[1] - tokens.flip(1).to(torch.int8).argmax(1)
    counts = tokens.sum(1)
    if bool(((ends - begins != counts) & (counts > 0)).any()):
        raise Error("[transformers] attention_mask has zeros between tokens of a row, expected them at its ends alone")
    return [int(begin) if count else tokens.shape[1] for begin, count in zip(begins, counts)]


def _attend(module: Any, q: Tensor, k: Tensor, v: Tensor, tokens: Tensor, scale: float, dropout: float) -> Tensor:
    """[batch, length, heads, head_dim] -> [batch, length, heads * head_dim]"""
    if tokens.dim() != 2:
        raise Error(f"[transformers] attention_mask has {tokens.dim()} axes, expected [batch, keys]")
    slopes, tolerance = module._alibi_slopes, module._alibi_tolerance
    given: dict[str, Any] = {"softmax_scale": scale, "dropout_p": dropout, "tolerance": tolerance}
    if tokens.shape[1] == 0:
        out = attention(q, k, v, slopes, **given)
    else:
        rows = []
        first = k.shape[1] - q.shape[1]  # position of the first query
        for b, begin in enumerate(_padding(tokens)):
            padded = min(max(0, begin - first), q.shape[1])
            row = slice(b, b + 1)
            part = attention(q[row, padded:], k[row, begin:], v[row, begin:], slopes, **given)
            rows.append(torch.nn.functional.pad(part, (0, 0, 0, 0, padded, 0)))
        out = torch.cat(rows)
    joined: Tensor = out.reshape(*out.shape[:2], -1)
    return joined


def _cached(cache: Any, k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Past and new keys and values, [batch, length, heads, head_dim]; the cache has heads before length."""
    if cache is None:
        return k, v
    k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2), layer)
    return k.transpose(1, 2), v.transpose(1, 2)


def _mpt(
    self: Any,
    hidden_states: Tensor,
    position_bias: Tensor,
    past_key_values: Any = None,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    batch, length = hidden_states.shape[:2]
    fused = self.Wqkv(hidden_states)
    if self.clip_qkv:
        fused = fused.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = fused.view(batch, length, 3, self.n_heads, self.head_dim).unbind(2)
    k, v = _cached(past_key_values, k, v, self.layer_idx)
    dropout = self.attn_dropout_p if self.training else 0.0
    return self.out_proj(_attend(self, q, k, v, attention_mask, self.softmax_scale, dropout)), None  # type: ignore[arg-type]


def _bloom(
    self: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Tensor,
    layer_past: Any = None,
    **_: Any,
) -> tuple[Tensor, None]:
    batch, length = hidden_states.shape[:2]
    q, k, v = self.query_key_value(hidden_states).view(batch, length, self.num_heads, 3, self.head_dim).unbind(3)
    k, v = _cached(layer_past, k, v, self.layer_idx)
    dropout = self.attention_dropout.p if self.training else 0.0
    out = self.dense(_attend(self, q, k, v, attention_mask, self.inv_norm_factor, dropout))
    return modeling_bloom.dropout_add(out, residual, self.hidden_dropout, self.training), None


def _falcon(
    self: Any,
    hidden_states: Tensor,
    alibi: Tensor | None,
    attention_mask: Tensor,
    position_ids: Any = None,
    layer_past: Any = None,
    **_: Any,
) -> tuple[Tensor, None]:
    q, k, v = self._split_heads(self.query_key_value(hidden_states))
    k, v = _cached(layer_past, k, v, self.layer_idx)
    dropout = self.attention_dropout.p if self.training else 0.0
    return self.dense(_attend(self, q, k, v, attention_mask, self.inv_norm_factor, dropout)), None


def _mpt_slopes(module: Any, config: Any) -> Tensor:
    if not config.attn_config.alibi or config.attn_config.alibi_bias_max != 8:
        raise UsageError(
            f"[transformers] MPT with alibi={config.attn_config.alibi} and alibi_bias_max="
            f"{config.attn_config.alibi_bias_max}: transformers computes with True and 8 whatever is said there; "
            "expected these"
        )
    return torch.tensor(_core.slopes(module.n_heads, 8.0))


def _bloom_slopes(module: Any, config: Any) -> Tensor:
    if config.pretraining_tp > 1 and config.slow_but_exact:
        raise UsageError("[transformers] BLOOM with slow_but_exact: expected False")
    return torch.tensor(_core.slopes(module.num_heads, 8.0))


def _falcon_slopes(module: Any, config: Any) -> Tensor:
    """Its slopes are bfloat16, and scaled as the products are."""
    if not config.alibi:
        raise UsageError("[transformers] this Falcon has rotary positions (config.alibi is False)")
    return torch.tensor(_core.slopes(module.num_heads, 8.0)).bfloat16().float() * float(1 / math.sqrt(module.head_dim))


_KNOWN: dict[type, tuple[Callable[..., Any], Callable[..., Tensor]]] = {
    modeling_mpt.MptAttention: (_mpt, _mpt_slopes),
    modeling_bloom.BloomAttention: (_bloom, _bloom_slopes),
    modeling_falcon.FalconAttention: (_falcon, _falcon_slopes),
}


def _refuse_attentions(model: Any, args: Any, kwargs: Any) -> None:
    if kwargs.get("output_attentions") or model.config.output_attentions:
        raise UsageError("[transformers] output_attentions: weights never lie in memory; unpatch(model) gives them")


def patch(model: Any, *, tolerance: float = 0.0) -> Any:
    """Makes a model of transformers use this package's attention, and returns the model.

    tolerance  as in attention(): keys whose weight is provably at most this share of a row's sum are not visited

    Raises UsageError for other models and versions, and leaves the model unchanged.
    """
    version = transformers.__version__
    if not version.startswith(_VERSIONS):
        raise UsageError(
            f"[transformers] version {version} found, whose models may differ from those that were tried: "
            f"expected {', '.join(known + 'x' for known in _VERSIONS)}"
        )
    if getattr(model, "_alibi_unpatch", None) is not None:
        raise UsageError("[transformers] the model is patched already; unpatch(model) first")
    if any(type(module).__name__.startswith("JinaBert") for module in model.modules()):
        raise UsageError(
            "[transformers] the code of jina-bert-v2 comes with the model, not with transformers, so that no version of "
            "it is known here; docs/reference/python.md says what to write in its forward"
        )
    found = [module for module in model.modules() if type(module) in _KNOWN]
    others = {type(m).__name__ for m in model.modules() if isinstance(m, tuple(_KNOWN)) and type(m) not in _KNOWN}
    if not found or others:
        raise UsageError(
            f"[transformers] {type(model).__name__} has {', '.join(sorted(others)) or 'no attention that is known here'}"
            "; expected MPT, BLOOM or Falcon, loaded with attn_implementation 'eager' or 'sdpa'"
        )
    slopes = [_KNOWN[type(module)][1](module, model.config) for module in found]
    for module, of_module in zip(found, slopes):
        module._alibi_slopes, module._alibi_tolerance = of_module, tolerance
        module.forward = types.MethodType(_KNOWN[type(module)][0], module)
    before = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    hook = model.register_forward_pre_hook(_refuse_attentions, with_kwargs=True)

    def undo() -> None:
        hook.remove()
        model.config._attn_implementation = before
        for module in found:
            del module.forward, module._alibi_slopes, module._alibi_tolerance

    model._alibi_unpatch = undo
    return model


def unpatch(model: Any) -> Any:
    """Undoes patch(model), and returns the model."""
    undo = getattr(model, "_alibi_unpatch", None)
    if undo is None:
        raise UsageError("[transformers] the model is not patched")
    undo()
    del model._alibi_unpatch
    return model
