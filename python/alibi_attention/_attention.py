"""attention(), in as few steps as possible: they take as long as a small call's work."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kind import is_torch, refuse_other_kinds, torch_operator
from ._options import EVERYWHERE, Options, Window, offsets_of, window_of
from ._padding import padded_attention

_ndarray, _attention_result = np.ndarray, _core.attention_result
_DROPOUT_P, _CU_SEQLENS_Q, _CU_SEQLENS_K = map(Options._fields.index, ("dropout_p", "cu_seqlens_q", "cu_seqlens_k"))


def _converted(given: Options) -> Options:
    """With offsets as int32, and a seed if weights are dropped."""
    seed = given.dropout_seed
    if seed is None and _core.real("attention", "dropout_p", given.dropout_p):
        seed = int(np.random.randint(1 << 62))
    return given._replace(dropout_seed=seed, cu_seqlens_q=offsets_of("attention", "cu_seqlens_q", given.cu_seqlens_q),
                          cu_seqlens_k=offsets_of("attention", "cu_seqlens_k", given.cu_seqlens_k))  # fmt: skip


def attend(q: Any, k: Any, v: Any, options: tuple[Any, ...], return_lse: bool) -> Any:
    """attention() with its options in the order of Options, as the caller gave them but for the window."""
    if type(q) is not _ndarray and is_torch(q):
        return torch_operator().attend(q, k, v, options, return_lse)
    if not (type(k) is _ndarray and type(v) is _ndarray) and (is_torch(k) or is_torch(v)):
        refuse_other_kinds("attention", q=q, k=k, v=v)  # a tensor's gradient would be lost
    dropout_p = options[_DROPOUT_P]
    if type(dropout_p) is not float or dropout_p or options[_CU_SEQLENS_Q] is not None or options[_CU_SEQLENS_K] is not None:
        options = _converted(Options(*options))
    try:
        return _attention_result(q, k, v, options, return_lse)
    except (AttributeError, TypeError):
        refuse_other_kinds("attention", q=q, k=k, v=v)
        raise


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
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
    key_padding_mask: Any = None,
    softcap: float = 0.0,
    sinks: Any = None,
    log_decay: Any = None,
) -> Any:
    """Attention with linear biases: softmax(q k' * softmax_scale - slope * |i - j|) v over the visible keys j.

        out = alibi.attention(q, k, v, alibi_slopes=alibi.slopes(8))

    q                   (batch, queries, heads, head_dim), float32, bfloat16 or float16
    k, v                (batch, keys, kv_heads, head_dim), same type as q; heads is a multiple of kv_heads
    alibi_slopes        (heads,) or (batch, heads), with packed sequences (sequences, heads), float32, >= 0; None: no
                        bias. A PyTorch tensor gets a gradient.
    causal              True (the default): keys after the query are not visible. flash_attn_func has False.
    window_size         (left, right): keys from i - left to i + right are visible; -1: no limit on that side. The token
                        itself does not count. If causal, right has no meaning.
    softmax_scale       None: 1 / sqrt(head_dim)
    softcap             above 0: a score is softcap * tanh(softmax_scale * q k' / softcap) plus its bias; 0: no cap
    sinks               (heads,) float32: a logit for each head that joins the softmax without a value, so that a row's weights
                        may sum to less than 1 (as in gpt-oss); -infinity or None: no sink. A PyTorch tensor gets a gradient.
    dropout_p           probability that a weight is dropped; the others are scaled up
    query_offset        position of the first query; key row j has position j. None: the queries are the last rows, at
                        keys - queries, as in FlashAttention (of each packed sequence)
    cu_seqlens_q, _k    packed sequences: row offsets (sequences + 1,), int32; batch must be 1
    alibi_slopes_after  if not causal: slopes of keys after the query; None: alibi_slopes (symmetric); infinity closes
                        that side for the head
    tolerance           keys whose weight is provably at most this share of a row's sum are not visited; 0 visits all.
                        2 ** -24 (float32) and 2 ** -11 (bfloat16) are below the rounding of the result.
    return_lse          return (out, lse); lse is (batch, heads, queries) float32 and has no gradient
    dropout_seed        None: drawn from PyTorch's generator, or from NumPy's global one
    key_padding_mask    (batch, keys) bool, True at padding, as in torch.nn.MultiheadAttention
    log_decay           forget gates, log f_t of each key and query head: (batch, keys, heads) float32, <= 0. Query i adds
                        the sum of log f_t over t in (j, i] to its score of key j; -infinity begins a document, whose
                        queries do not see the keys before it. Causal. A PyTorch tensor gets a gradient. On a GPU what is
                        no gate is no error: it makes NaN.

    Padding. For a batch of sequences of different lengths give key_padding_mask, which is True at padding (the opposite
    of transformers' attention_mask). Padding may be before the tokens of a row, after them, or both; padding between
    tokens is an error. Each row gets the result that its tokens would get alone, with gradients, causal or not. Queries
    must be the last rows (in self-attention, all rows), and padded rows give zeros. alibi_slopes must be (heads,). The
    mask packs the tokens, which copies q, k, v and the result once; cu_seqlens_q and cu_seqlens_k copy nothing. Without
    either, padding is attended to like tokens. Only causal attention with padding on the right is correct then, in the
    rows of the tokens.

    Returns (batch, queries, heads, head_dim), contiguous: a tensor for tensors, else a NumPy array. A query without
    visible keys gives zeros. Results have the same bits at any number of threads.
    """
    if return_lse is not True and return_lse is not False:
        return_lse = _core.flag("attention", "return_lse", return_lse)
    window = after = 0
    if window_size is not EVERYWHERE:
        causal, window, after = window_of(causal, window_size)
    options = (alibi_slopes, alibi_slopes_after, causal, window, softmax_scale, dropout_p, dropout_seed, query_offset,
               cu_seqlens_q, cu_seqlens_k, tolerance, after, softcap, sinks, log_decay)  # fmt: skip
    if key_padding_mask is not None:
        return padded_attention(attend, q, k, v, key_padding_mask, Options(*options), return_lse)
    return attend(q, k, v, options, return_lse)
