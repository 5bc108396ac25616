"""Models of Hugging Face's transformers on this package's attention: alibi.transformers.patch(model).

MPT, BLOOM and Falcon (with alibi) then run at any length, without a mask or bias of length x length, left-padded,
cached, and in training. unpatch(model) restores the model. Other models and settings that the kernel does not have are
refused. Any version of transformers from 5.23 on is accepted if a tiny random model of the architecture computes the same
with and without the patch, which the first patch() of an architecture tries.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.masking_utils import causal_mask_function

from . import _core
from ._attention import attention
from ._core import Error, UsageError

__all__ = ["patch", "unpatch"]

_OLDEST = (5, 23)
"""The oldest version of transformers; CI tests this one and the newest."""
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
    if tokens is None or tokens.dim() != 2:
        axes = 0 if tokens is None else tokens.dim()
        raise Error(f"[transformers] attention_mask has {axes} axes, expected [batch, keys]")
    slopes, tolerance = module._alibi_slopes, module._alibi_tolerance
    given: dict[str, Any] = {"softmax_scale": scale, "dropout_p": dropout, "tolerance": tolerance}
    if tokens.shape[1] == 0:
        out = attention(q, k, v, alibi_slopes=slopes, **given)
    else:
        rows = []
        first = k.shape[1] - q.shape[1]  # position of the first query
        for b, begin in enumerate(_padding(tokens)):
            padded = min(max(0, begin - first), q.shape[1])
            row = slice(b, b + 1)
            part = attention(q[row, padded:], k[row, begin:], v[row, begin:], alibi_slopes=slopes, **given)
            rows.append(torch.nn.functional.pad(part, (0, 0, 0, 0, padded, 0)))
        out = torch.cat(rows)
    joined: Tensor = out.reshape(*out.shape[:2], -1)
    return joined


def _cached(given: dict[str, Any], k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Past and new keys and values, [batch, length, heads, head_dim]; the cache has heads before length. It is the argument
    of its type: its name differs between models and versions."""
    cache = next((value for value in given.values() if isinstance(value, Cache)), None)
    if cache is None:
        return k, v
    k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2), layer)
    return k.transpose(1, 2), v.transpose(1, 2)


class _Patched:
    """Of each attention class below: made by changing the class of a stock module, so that a patched model is copied and
    pickled as any other."""

    _alibi_slopes: Tensor
    _alibi_tolerance: float


def _stock(architecture: str, name: str) -> Any:
    """The attention class of transformers; a class that no module has, if this version does not know the architecture."""
    try:
        return getattr(importlib.import_module(f"transformers.models.{architecture}.modeling_{architecture}"), name)
    except (ImportError, AttributeError):
        return type(name, (torch.nn.Module,), {})


class AlibiMptAttention(_Patched, _stock("mpt", "MptAttention")):  # type: ignore[misc]
    def forward(
        self: Any,
        hidden_states: Tensor,
        position_bias: Tensor,
        attention_mask: Tensor | None = None,
        **given: Any,
    ) -> tuple[Tensor, None]:
        batch, length = hidden_states.shape[:2]
        fused = self.Wqkv(hidden_states)
        if self.clip_qkv:
            fused = fused.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        q, k, v = fused.view(batch, length, 3, self.n_heads, self.head_dim).unbind(2)
        k, v = _cached(given, k, v, self.layer_idx)
        dropout = self.attn_dropout_p if self.training else 0.0
        out = _attend(self, q, k, v, attention_mask, self.softmax_scale, dropout)  # type: ignore[arg-type]
        return self.out_proj(out), None

    @staticmethod
    def slopes(module: Any, config: Any) -> list[float]:
        if not config.attn_config.alibi or config.attn_config.alibi_bias_max != 8:
            raise UsageError(
                f"[transformers] MPT with alibi={config.attn_config.alibi} and alibi_bias_max="
                f"{config.attn_config.alibi_bias_max}: transformers computes with True and 8 whatever is said there; "
                "expected these"
            )
        return _core.slopes(module.n_heads, 8.0)

    @staticmethod
    def tiny(config: Any) -> dict[str, Any]:
        kept = {name: getattr(config.attn_config, name) for name in ("clip_qkv", "softmax_scale")}
        return {"d_model": 24, "n_heads": 3, "n_layers": 2, "max_seq_len": 32, "attn_config": kept}


class AlibiBloomAttention(_Patched, _stock("bloom", "BloomAttention")):  # type: ignore[misc]
    def forward(
        self: Any,
        hidden_states: Tensor,
        residual: Tensor,
        alibi: Tensor,
        attention_mask: Tensor,
        **given: Any,
    ) -> tuple[Tensor, None]:
        batch, length = hidden_states.shape[:2]
        q, k, v = self.query_key_value(hidden_states).view(batch, length, self.num_heads, 3, self.head_dim).unbind(3)
        k, v = _cached(given, k, v, self.layer_idx)
        dropout = self.attention_dropout.p if self.training else 0.0
        out = self.dense(_attend(self, q, k, v, attention_mask, self.inv_norm_factor, dropout))
        return residual + torch.nn.functional.dropout(out, self.hidden_dropout, self.training), None

    @staticmethod
    def slopes(module: Any, config: Any) -> list[float]:
        if config.pretraining_tp > 1 and config.slow_but_exact:
            raise UsageError("[transformers] BLOOM with slow_but_exact: expected False")
        return _core.slopes(module.num_heads, 8.0)

    @staticmethod
    def tiny(config: Any) -> dict[str, Any]:
        kept = config.apply_residual_connection_post_layernorm
        return {"hidden_size": 24, "n_head": 3, "n_layer": 2, "apply_residual_connection_post_layernorm": kept}


class AlibiFalconAttention(_Patched, _stock("falcon", "FalconAttention")):  # type: ignore[misc]
    def forward(
        self: Any,
        hidden_states: Tensor,
        alibi: Tensor | None,
        attention_mask: Tensor,
        **given: Any,
    ) -> tuple[Tensor, None]:
        q, k, v = self._split_heads(self.query_key_value(hidden_states))
        k, v = _cached(given, k, v, self.layer_idx)
        dropout = self.attention_dropout.p if self.training else 0.0
        return self.dense(_attend(self, q, k, v, attention_mask, self.inv_norm_factor, dropout)), None

    @staticmethod
    def slopes(module: Any, config: Any) -> list[float]:
        """They are bfloat16, and scaled as the products are."""
        if not config.alibi:
            raise UsageError("[transformers] this Falcon has rotary positions (config.alibi is False)")
        exact = torch.tensor(_core.slopes(module.num_heads, 8.0), device="cpu", dtype=torch.float32)
        scaled: list[float] = (exact.bfloat16().float() * float(1 / math.sqrt(module.head_dim))).tolist()
        return scaled

    @staticmethod
    def tiny(config: Any) -> dict[str, Any]:
        flags = ("alibi", "bias", "multi_query", "new_decoder_architecture", "parallel_attn", "num_ln_in_parallel_attn")
        kept = {name: getattr(config, name) for name in flags if hasattr(config, name)}
        heads = {"num_attention_heads": 4, "num_kv_heads": 2 if config.new_decoder_architecture else 4}
        return {"hidden_size": 32, "num_hidden_layers": 2, **heads, **kept}


_KNOWN: dict[type, Any] = {kind.__mro__[2]: kind for kind in (AlibiMptAttention, AlibiBloomAttention, AlibiFalconAttention)}
"""Stock class: patched class"""

_tried: dict[str, str] = {}
"""An architecture and its settings: why it is refused, or nothing."""


def _check_behaviour(patched: Any, config: Any) -> None:
    """Raises UsageError unless a tiny random model with the settings of `config` computes the same when it is patched."""
    given = {**patched.tiny(config), "vocab_size": 40, "use_cache": True}
    name = type(config).__name__.removesuffix("Config")
    key = f"{name} {given}"
    if key not in _tried:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(0)
            _tried[key] = _difference(name, type(config)(**given))
    if _tried[key]:
        raise UsageError(
            f"[transformers] version {transformers.__version__} is not supported for {name}: {_tried[key]}; install another "
            "version from 5.23 on, and report this"
        )


def _difference(name: str, config: Any) -> str:
    """What a patched model computes differently, in words; nothing if it computes the same."""
    stock = getattr(transformers, f"{name}ForCausalLM")._from_config(
        config, attn_implementation="sdpa" if name == "Falcon" else "eager", dtype=torch.float32  # eager Falcon: ALiBi twice
    )
    stock.eval()
    with torch.no_grad():
        for parameter in stock.parameters():  # so that attention has something to choose from
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.1) + (parameter == 1))
    ids = torch.randint(3, 40, (2, 12))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0

    def gradients(model: Any) -> Tensor:
        model.zero_grad()
        model(ids, attention_mask=mask).logits[mask.bool()].square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    def continued(model: Any) -> Tensor:
        begin = model(ids[:, :8], attention_mask=mask[:, :8], use_cache=True)
        name = "cache" if "cache" in begin else "past_key_values"  # before 5.24
        rest: Tensor = model(ids[:, 8:], attention_mask=mask, **{name: begin[name]}, use_cache=True).logits
        return rest

    steps: dict[str, Callable[[Any], Tensor]] = {
        "the logits": lambda model: model(ids).logits,
        "the logits of a padded batch": lambda model: model(ids, attention_mask=mask).logits[mask.bool()],
        "the logits after a cache": continued,
        "the gradients": gradients,
    }
    ours = copy.deepcopy(stock)
    _change_classes(ours, 0.0)
    for what, step in steps.items():
        expected = step(stock).detach()
        try:
            found = step(ours).detach()
        except Exception as error:
            return f"{what} cannot be computed ({type(error).__name__}: {error})"
        limit = 1e-4 * max(1.0, float(expected.abs().max()))
        difference = float((found - expected).abs().max()) if found.shape == expected.shape else math.inf
        if not difference <= limit:
            return f"{what} of a random model differ by {difference:.2g}, expected at most {limit:.2g}"
    return ""


def _refuse_attentions(model: Any, args: Any, kwargs: Any) -> None:
    if kwargs.get("output_attentions") or model.config.output_attentions:
        raise UsageError("[transformers] output_attentions: weights never lie in memory; unpatch(model) gives them")


def _change_classes(model: Any, tolerance: float) -> None:
    """Makes the modules of a stock model ours, and gives it a configuration of its own: others may share the stock one."""
    found = [module for module in model.modules() if type(module) in _KNOWN]
    slopes = [_KNOWN[type(module)].slopes(module, model.config) for module in found]
    for module, of_module in zip(found, slopes):
        module.__class__ = _KNOWN[type(module)]
        module._alibi_slopes = torch.tensor(of_module, device="cpu", dtype=torch.float32)
        module._alibi_tolerance = tolerance
    shared = model.config
    config = copy.deepcopy(shared)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = config
    config._attn_implementation = _NAME


def patch(model: Any, *, tolerance: float = 0.0) -> Any:
    """Makes a model of transformers use this package's attention, and returns the model.

    tolerance  as in attention(): keys whose weight is provably at most this share of a row's sum are not visited

    The model then has a configuration of its own. A patched model can be copied and pickled. Raises UsageError for other
    models, and for versions of transformers with which the architecture computes something else; the model is unchanged
    then.
    """
    version = transformers.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise UsageError(f"[transformers] version {version} found, expected {_OLDEST[0]}.{_OLDEST[1]} or newer")
    is_module = isinstance(model, torch.nn.Module)
    if not is_module:
        raise UsageError(f"[transformers] model is a {type(model).__name__}, expected a model of transformers")
    if getattr(model, "_alibi_patched", None) is not None:
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
    for module in found:
        if "forward" in vars(module):
            raise UsageError(
                f"[transformers] the forward of a {type(module).__name__} was replaced, as hooks of accelerate do: patch "
                "the model before"
            )
    for kind in {type(module) for module in found}:
        _KNOWN[kind].slopes(next(module for module in found if type(module) is kind), model.config)  # refuses settings
        _check_behaviour(_KNOWN[kind], model.config)
    before = model.config._attn_implementation
    _change_classes(model, tolerance)
    model._alibi_patched = (model.register_forward_pre_hook(_refuse_attentions, with_kwargs=True), before)
    return model


def unpatch(model: Any) -> Any:
    """Undoes patch(model), and returns the model. Its configuration stays its own."""
    patched = getattr(model, "_alibi_patched", None)
    if patched is None:
        raise UsageError("[transformers] the model is not patched")
    hook, before = patched
    hook.remove()
    model.config._attn_implementation = before
    for module in model.modules():
        if isinstance(module, _Patched):
            del module._alibi_slopes, module._alibi_tolerance
            module.__class__ = type(module).__mro__[2]
    del model._alibi_patched
    return model
