"""Attention as a module of PyTorch's, for those who write their own models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import _core
from ._attention import attention
from ._cache import KvCache
from ._options import EVERYWHERE, Window, options_of, window_of
from ._torch import attention_decode


def _as_mask(given: Any, device: torch.device) -> Tensor:
    """A copy of what is no tensor: the backward pass reads it again."""
    return given.to(device) if isinstance(given, Tensor) else torch.tensor(given, device=device)


class AlibiAttention(nn.Module):
    """Multi-head self-attention with linear biases: projections, alibi.attention, and an output projection.

        layer = alibi.AlibiAttention(512, 8)
        y = layer(x)  # (batch, length, 512)


    embed_dim        width of the model
    num_heads        number of heads, each of width embed_dim / num_heads
    kv_heads         number of key/value heads, which divides num_heads; None: num_heads
    bias             whether the projections have a bias
    causal, window_size, dropout, tolerance
                     as in attention(); dropout acts in training only
    learned_slopes   slopes are parameters with the initial values alibi.slopes(); their logarithms are trained, so they
                     stay positive

    Padding: forward() takes key_padding_mask for a batch of sequences of different lengths, or cu_seqlens for packed
    sequences. See attention().

    Slopes that are not learned stay float32 when the module is cast, and are not in the state_dict.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kv_heads: int | None = None,
        bias: bool = False,
        causal: bool = True,
        window_size: Window = EVERYWHERE,
        dropout: float = 0.0,
        learned_slopes: bool = False,
        tolerance: float = 0.0,
    ) -> None:
        super().__init__()
        name = "AlibiAttention"
        embed_dim, num_heads = _core.integer(name, "embed_dim", embed_dim), _core.integer(name, "num_heads", num_heads)
        kv_heads = num_heads if kv_heads is None else _core.integer(name, "kv_heads", kv_heads)
        bias, causal = _core.flag(name, "bias", bias), _core.flag(name, "causal", causal)
        learned_slopes = _core.flag(name, "learned_slopes", learned_slopes)
        dropout, tolerance = _core.real(name, "dropout", dropout), _core.real(name, "tolerance", tolerance)
        window_of(causal, window_size)
        for given, share in (("dropout", dropout), ("tolerance", tolerance)):
            if not 0 <= share < 1:
                raise _core.UsageError(f"[AlibiAttention] {given} is {share}, expected 0 <= {given} < 1")
        if min(embed_dim, num_heads, kv_heads) < 1 or embed_dim % num_heads or num_heads % kv_heads:
            raise _core.UsageError(
                f"[AlibiAttention] embed_dim {embed_dim}, num_heads {num_heads}, kv_heads {kv_heads}: expected heads "
                "that divide embed_dim, and kv_heads that divide them"
            )
        self.embed_dim, self.num_heads, self.kv_heads = embed_dim, num_heads, kv_heads
        self.head_dim = embed_dim // num_heads
        self.causal, self.window_size, self.dropout, self.tolerance = causal, window_size, dropout, tolerance
        self.qkv = nn.Linear(embed_dim, (num_heads + 2 * kv_heads) * self.head_dim, bias=bias)
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias)
        # On the CPU also if the module is made on 'meta' and gets its memory later: nothing would fill them again.
        self._slopes = torch.tensor(_core.slopes(num_heads, 8.0), dtype=torch.float32, device="cpu")
        self.log_slopes = nn.Parameter(torch.empty(num_heads)) if learned_slopes else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the parameters of this module itself, as FSDP asks of modules that were made on 'meta'."""
        if self.log_slopes is not None:
            with torch.no_grad():
                self.log_slopes.copy_(self._slopes.log())

    @property
    def slopes(self) -> Tensor:
        """(num_heads,) float32"""
        return self._slopes if self.log_slopes is None else self.log_slopes.float().exp()

    def forward(
        self,
        x: Tensor,
        cache: KvCache | None = None,
        *,
        key_padding_mask: Any = None,
        cu_seqlens: Any = None,
    ) -> Tensor:
        """x (batch, length, embed_dim) -> the same shape.

        cache             x continues the text of the cache and is appended to it; there is no gradient
        key_padding_mask  (batch, length) bool, True where x is padding; rows of padding give zeros
        cu_seqlens        offsets (sequences + 1,) of the sequences packed in x, whose batch must be 1
        """
        if cache is not None and (key_padding_mask is not None or cu_seqlens is not None):
            raise _core.UsageError("[AlibiAttention] a cache holds sequences of one length, expected neither "
                                   "key_padding_mask nor cu_seqlens beside it")  # fmt: skip
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, self.num_heads + 2 * self.kv_heads, self.head_dim)
        q, k, v = heads.split((self.num_heads, self.kv_heads, self.kv_heads), dim=2)
        if cache is None:
            out = attention(q, k, v, alibi_slopes=self.slopes, causal=self.causal, window_size=self.window_size,
                            tolerance=self.tolerance, dropout_p=self.dropout if self.training else 0.0,
                            cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens,
                            key_padding_mask=key_padding_mask)  # fmt: skip
        else:
            if not isinstance(cache, KvCache):
                raise TypeError(f"[AlibiAttention] cache is a {type(cache).__name__}, expected a KvCache")
            cache.append(k, v)
            options = options_of(self.causal, self.window_size, alibi_slopes=self.slopes, tolerance=self.tolerance)
            out = attention_decode(q, cache._core, options, False)
        result: Tensor = self.out(out.reshape(batch, length, self.embed_dim))
        if key_padding_mask is not None:  # the projection may have a bias
            result = result.masked_fill(_as_mask(key_padding_mask, result.device)[..., None], 0)
        return result

    def extra_repr(self) -> str:
        learned = ", learned slopes" if self.log_slopes is not None else ""
        return f"{self.embed_dim}, heads={self.num_heads}, kv_heads={self.kv_heads}, causal={self.causal}{learned}"

