"""Models of the published ALiBi families in plain NumPy, written from the formulas: what `alibi verify` compares with.

Slow and independent of the library: tensors are read under the names that they have in the files, one matrix at a time,
so a large model needs the memory of one layer's feed-forward network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._weights import LAYER_KEYS, Array, Config, Kept, Weights, layers_of

# L length


# ---------------------------------------------------------------- pieces


def slopes(heads: int, bias_max: float = 8.0) -> Array:
    """Those of the largest power of two that fits, then every other one of twice that number, in this order."""
    power = 2 ** int(math.floor(math.log2(heads)))
    first = [2.0 ** (-bias_max * (i + 1) / power) for i in range(power)]
    second = [2.0 ** (-bias_max * (i + 1) / (2 * power)) for i in range(2 * power)][0::2]
    return np.array(first + second[: heads - power])


def attention(q: Array, k: Array, v: Array, scale: float, slopes_: Array, causal: bool, decay: Array | None = None) -> Array:
    """q [L, heads, head_dim]; k and v may have fewer heads, each of which serves several neighbouring query heads. decay
    [L, heads], float64, are running sums: a score has that of its query less that of its key."""
    length, heads = q.shape[:2]
    group = heads // k.shape[1]
    out = np.empty_like(q)
    positions = np.arange(length)
    for begin in range(0, length, 256):
        at = slice(begin, begin + 256)
        seen = min(length, begin + 256) if causal else length
        distance = np.abs(positions[at, None] - positions[None, :seen]).astype(q.dtype)
        hidden = positions[at, None] < positions[None, :seen]
        for h in range(heads):
            scores = q[at, h] @ k[:seen, h // group].T * scale
            scores -= float(slopes_[h]) * distance
            if decay is not None:
                scores += (decay[at, h][:, None] - decay[None, :seen, h]).astype(q.dtype)
            if causal:
                scores[hidden] = -np.inf
            scores = np.exp(scores - scores.max(1, keepdims=True))
            out[at, h] = scores @ v[:seen, h // group] / scores.sum(1, keepdims=True)
    return out.reshape(length, -1)


def layer_norm(x: Array, w: Any, name: str, eps: float = 1e-5) -> Array:
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"]
    return x + w[name + ".bias"] if name + ".bias" in w else x


def rms_norm(x: Array, w: Any, name: str, eps: float = 1e-6) -> Array:
    scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"]
    return scaled


def linear(x: Array, w: Any, name: str) -> Array:
    """Weights [out, in]; a bias where the file has one."""
    x = x @ w[name + ".weight"].T
    return x + w[name + ".bias"] if name + ".bias" in w else x


def conv1d(x: Array, w: Any, name: str) -> Array:
    """GPT-2's layout: weights [in, out]."""
    return np.asarray(x @ w[name + ".weight"] + w[name + ".bias"])


_TABLE = np.array([math.erf(i / 64) for i in range(-384, 385)])


def erf(x: Array) -> Array:
    """Taylor's series around the next multiple of 1/64; the error is below 1e-13."""
    x = np.clip(x, -6, 6)
    index = np.rint(x * 64)
    a = (index / 64).astype(x.dtype)
    d = x - a
    series = d * (1 + d * (-a + d * ((2 * a * a - 1) / 3 + d * ((3 * a - 2 * a**3) / 6 + d * (4 * a**4 - 12 * a * a + 3) / 30))))
    return np.asarray(_TABLE.astype(x.dtype)[index.astype(int) + 384] + 2 / math.sqrt(math.pi) * np.exp(-a * a) * series)


def gelu(x: Array) -> Array:
    return np.asarray(x * (1 + erf(x / math.sqrt(2))) / 2)


def gelu_tanh(x: Array) -> Array:
    return np.asarray(x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


def heads_of(x: Array, heads: int) -> Array:
    return x.reshape(x.shape[0], heads, -1)


def rotated(x: Array, c: Config, theta: float = 10000.0) -> Array:
    """Rotary positions of x [L, heads, head_dim] in two halves. NTK's rule of GTE scales the base, and then all frequencies."""
    rope, size = c.get("rope_parameters") or c, x.shape[-1]
    theta = rope.get("rope_theta") or c.get("rope_theta") or theta
    factor = rope["factor"] if rope.get("rope_type") == "linear" else 1.0
    if (c.get("rope_scaling") or {}).get("type") == "ntk":
        theta, factor = theta * c["rope_scaling"]["factor"], c["rope_scaling"]["factor"] ** (2 / size)
    angles = np.arange(len(x))[:, None, None] / factor * theta ** -(np.arange(0, size, 2) / size)
    cos, sin, a, b = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype), x[..., : size // 2], x[..., size // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def self_attention(qkv: Sequence[Array], heads: int, scale: float, slopes_: Array, causal: bool = True) -> Array:
    q, k, v = (heads_of(part, heads) for part in qkv)
    return attention(q, k, v, scale, slopes_, causal)


def by_rows(x: Array, w: Weights, compute: Callable[[Array, Any], Array]) -> Array:
    """A feed-forward network for some rows at a time, because its inner layer is wide. Each matrix is read once."""
    kept = Kept(w)
    return np.concatenate([compute(x[at : at + 512], kept) for at in range(0, len(x), 512)])


def swiglu(x: Array, w: Weights, p: str) -> Array:
    return by_rows(x, w, lambda r, m: linear(silu(linear(r, m, p + "gate_proj")) * linear(r, m, p + "up_proj"), m, p + "down_proj"))


# ---------------------------------------------------------------- decoders: note(x) after each branch, then the logits

Note = Callable[[Array], Array]


def head_of(w: Weights, embedding: str) -> str:
    return "lm_head.weight" if "lm_head.weight" in w else embedding


def mpt(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    a = c["attn_config"]
    heads, width = c["n_heads"], c["d_model"]
    size = width // heads
    kind = a.get("attn_type", "multihead_attention")
    kv = {"multihead_attention": heads, "multiquery_attention": 1, "grouped_query_attention": a.get("kv_n_heads")}[kind]
    scale = a["softmax_scale"] if a.get("softmax_scale") is not None else 1 / math.sqrt(size)
    eps = float(c.get("norm_eps") or c.get("layer_norm_epsilon") or 1e-5)
    x = w.rows("transformer.wte.weight", ids)
    note(x)
    for n in range(c["n_layers"]):
        p = f"transformer.blocks.{n}."
        qkv = linear(layer_norm(x, w, p + "norm_1", eps), w, p + "attn.Wqkv")
        if a.get("clip_qkv"):
            qkv = np.clip(qkv, -a["clip_qkv"], a["clip_qkv"])
        q, k, v = np.split(qkv, [width, width + kv * size], 1)
        if a.get("qk_ln"):  # over all heads together
            q, k = layer_norm(q, w, p + "attn.q_ln", eps), layer_norm(k, w, p + "attn.k_ln", eps)
        y = attention(heads_of(q, heads), heads_of(k, kv), heads_of(v, kv), scale, slopes_of(c, w), True)
        x = x + linear(y, w, p + "attn.out_proj")
        note(x)
        z = layer_norm(x, w, p + "norm_2", eps)
        x = x + by_rows(z, w, lambda r, m: linear(gelu(linear(r, m, p + "ffn.up_proj")), m, p + "ffn.down_proj"))
        note(x)
    x = note(layer_norm(x, w, "transformer.norm_f", eps))
    logits = w.project(x, head_of(w, "transformer.wte.weight"))
    factor = c.get("logit_scale")
    if factor == "inv_sqrt_d_model":
        factor = 1 / math.sqrt(width)
    return logits if factor is None else np.asarray(logits * factor)


def replit(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """MPT under other names; later revisions of the same repository use MPT's names of tensors."""
    old = {".ln_1.": ".norm_1.", ".ln_2.": ".norm_2.", ".mlp.mlp_up.": ".ffn.up_proj.",
           ".mlp.mlp_down.": ".ffn.down_proj.", ".ln_f.": ".norm_f."}  # fmt: skip
    for former, new in old.items():
        w.each_name(lambda name: name.replace(former, new))
    attn = {"alibi_bias_max": c["alibi_bias_max"], "clip_qkv": c["attn_clip_qkv"], "qk_ln": c["attn_qk_ln"],
            "softmax_scale": c["softmax_scale"]}  # fmt: skip
    return mpt({**c, "attn_config": attn, "norm_eps": 1e-5}, w, ids, note)


def interleaved(x: Array, heads: int) -> list[Array]:
    """BLOOM's and Falcon-RW's order: query, key and value of the first head, those of the second, ..."""
    x = x.reshape(x.shape[0], heads, 3, -1)
    return [x[:, :, i].reshape(x.shape[0], -1) for i in range(3)]


def bloom(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """BLOOM, and Falcon-RW, which differs in the bias, the embedding and the activation."""
    falcon = "falcon" in c["model_type"] or "Refined" in c["model_type"]
    heads = c.get("num_attention_heads") or c["n_head"]
    eps = c["layer_norm_epsilon"]
    after = c.get("apply_residual_connection_post_layernorm", False)
    activation = gelu if falcon else gelu_tanh
    x = w.rows("word_embeddings.weight", ids)
    if not falcon:
        x = layer_norm(x, w, "word_embeddings_layernorm", eps)
    scale = 1 / math.sqrt(x.shape[1] // heads)
    for n in range(layers_of(c)):
        p = f"h.{n}."
        z = layer_norm(x, w, p + "input_layernorm", eps)
        note(z if after else x)
        qkv = interleaved(linear(z, w, p + "self_attention.query_key_value"), heads)
        y = linear(self_attention(qkv, heads, scale, slopes_of(c, w)), w, p + "self_attention.dense")
        x = (z if after else x) + y
        z = layer_norm(x, w, p + "post_attention_layernorm", eps)
        note(z if after else x)
        y = by_rows(z, w, lambda r, m: linear(activation(linear(r, m, p + "mlp.dense_h_to_4h")), m, p + "mlp.dense_4h_to_h"))
        x = (z if after else x) + y
    z = layer_norm(x, w, "ln_f", eps)
    note(z if after else x)
    return w.project(note(z), head_of(w, "word_embeddings.weight"))


def baichuan(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """Baichuan2 divides each row of the head by its length. Its config.json says so by the vocabulary alone (125696);
    z_loss_weight, a field of its configuration, tells the two apart too."""
    heads, eps = c["num_attention_heads"], c["rms_norm_eps"]
    x = w.rows("model.embed_tokens.weight", ids)
    note(x)
    for n in range(layers_of(c)):
        p = f"model.layers.{n}."
        qkv = np.split(linear(rms_norm(x, w, p + "input_layernorm", eps), w, p + "self_attn.W_pack"), 3, 1)
        y = self_attention(qkv, heads, 1 / math.sqrt(x.shape[1] // heads), slopes_of(c, w))
        x = x + linear(y, w, p + "self_attn.o_proj")
        note(x)
        x = x + swiglu(rms_norm(x, w, p + "post_attention_layernorm", eps), w, p + "mlp.")
        note(x)
    x = note(rms_norm(x, w, "model.norm", eps))
    return w.project(x, "lm_head.weight", c["vocab_size"] == 125696 or "z_loss_weight" in c)


def btlm(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """BTLM and Jais: GPT-2's layout, SwiGLU, muP's multipliers, under two spellings."""
    heads, eps = c["n_head"], c["layer_norm_epsilon"]
    size = c["n_embd"] // heads
    by_d = c.get("mup_scale_qk_dot_by_d", c.get("scale_qk_dot_by_d", False))
    output = c["width_scale"] if "width_scale" in c else c.get("mup_output_alpha", 1) * c.get("mup_width_scale", 1)
    stretch, scaling = 1.0, c.get("alibi_scaling")
    if scaling and scaling.get("factor") is None and len(ids) > scaling["train_seq_len"]:
        stretch = len(ids) / scaling["train_seq_len"]  # by the number of keys of this very call
    x = w.rows("transformer.wte.weight", ids) * c.get("mup_embeddings_scale", c.get("embeddings_scale", 1.0))
    note(x)
    for n in range(layers_of(c)):
        p = f"transformer.h.{n}."
        qkv = np.split(conv1d(layer_norm(x, w, p + "ln_1", eps), w, p + "attn.c_attn"), 3, 1)
        y = self_attention(qkv, heads, 1 / size if by_d else 1 / math.sqrt(size), slopes_of(c, w) / stretch)
        x = x + conv1d(y, w, p + "attn.c_proj")
        note(x)
        z = layer_norm(x, w, p + "ln_2", eps)
        x = x + by_rows(z, w, lambda r, m: conv1d(conv1d(r, m, p + "mlp.c_fc") * silu(conv1d(r, m, p + "mlp.c_fc2")),
                                                  m, p + "mlp.c_proj"))  # fmt: skip
        note(x)
    x = note(layer_norm(x, w, "transformer.ln_f", eps))
    return np.asarray(w.project(x, head_of(w, "transformer.wte.weight")) * output)


def refact(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """One head of keys and values; LayerNorm without bias (not RMSNorm); gate before up; an untied head."""
    heads, eps = c["n_head"], c["layer_norm_epsilon"]
    x = w.rows("transformer.wte.weight", ids)
    note(x)
    for n in range(layers_of(c)):
        p = f"transformer.h.{n}."
        z = layer_norm(x, w, p + "ln_1", eps)
        if p + "attn.kv.weight" in w:
            k, v = np.split(linear(z, w, p + "attn.kv"), 2, 1)
        else:
            k, v = linear(z, w, p + "attn.k"), linear(z, w, p + "attn.v")
        y = attention(heads_of(linear(z, w, p + "attn.q"), heads), heads_of(k, 1), heads_of(v, 1),
                      1 / math.sqrt(c["n_embd"] // heads), slopes_of(c, w), True)  # fmt: skip
        x = x + linear(y, w, p + "attn.c_proj")
        note(x)

        def feed_forward(r: Array, m: Any) -> Array:
            if p + "mlp.gate_up_proj.weight" in m:
                gate, up = np.split(linear(r, m, p + "mlp.gate_up_proj"), 2, 1)
            else:
                gate, up = linear(r, m, p + "mlp.linear_1"), linear(r, m, p + "mlp.linear_3")
            return linear(silu(gate) * up, m, p + "mlp.c_proj")

        x = x + by_rows(layer_norm(x, w, p + "ln_2", eps), w, feed_forward)
        note(x)
    return w.project(note(layer_norm(x, w, "ln_f", eps)), "lm_head.weight")


def forgetting(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """The Forgetting Transformer of flash-linear-attention: a score has the logarithms of the gates after its key added."""
    heads, eps = c["num_heads"], c.get("norm_eps", 1e-6)
    x = w.rows("model.embeddings.weight", ids)
    note(x)
    for n in range(layers_of(c)):
        p = f"model.layers.{n}."
        z = rms_norm(x, w, p + "attn_norm", eps)

        def projected(name: str, count: int) -> Array:
            y = heads_of(linear(z, w, f"{p}attn.{name}_proj"), count)
            if not c.get("qk_norm") or name == "v":
                return y
            weight = w[f"{p}attn.{name}_norm.weight"].reshape(count, -1)
            return np.asarray(y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * weight)  # of each head, whatever norm_eps is

        q, k, v = (projected(name, (c.get("num_kv_heads") or heads) if name != "q" else heads) for name in "qkv")
        decay = -np.logaddexp(0, -linear(z, w, p + "attn.f_proj").astype(np.float64)).cumsum(0)
        y = attention(q, k, v, 1 / math.sqrt(q.shape[2]), slopes_of(c, w), True, decay)
        if c.get("use_output_gate"):
            y = y * sigmoid(linear(z, w, p + "attn.g_proj"))
        x = x + linear(y, w, p + "attn.o_proj")
        note(x)
        x = x + swiglu(rms_norm(x, w, p + "mlp_norm", eps), w, p + "mlp.")
        note(x)
    return w.project(note(rms_norm(x, w, "model.norm", eps)), head_of(w, "model.embeddings.weight"))


def jais2(c: Config, w: Weights, ids: Array, note: Note) -> Array:
    """Llama's layout with layer norms, and squared ReLU."""
    heads, eps = c["num_attention_heads"], c.get("layer_norm_eps", 1e-5)
    counts = {"q": heads, "k": c.get("num_key_value_heads") or heads, "v": c.get("num_key_value_heads") or heads}
    x = w.rows("model.embed_tokens.weight", ids)
    note(x)
    for n in range(layers_of(c)):
        p = f"model.layers.{n}."
        z = layer_norm(x, w, p + "input_layernorm", eps)
        q, k, v = (heads_of(linear(z, w, f"{p}self_attn.{name}_proj"), count) for name, count in counts.items())
        y = attention(rotated(q, c), rotated(k, c), v, 1 / math.sqrt(q.shape[2]), np.zeros(heads), True)
        x = x + linear(y, w, p + "self_attn.o_proj")
        note(x)
        z = layer_norm(x, w, p + "post_attention_layernorm", eps)
        x = x + by_rows(z, w, lambda r, m: linear(relu(linear(r, m, p + "mlp.up_proj")) ** 2, m, p + "mlp.down_proj"))
        note(x)
    return w.project(note(layer_norm(x, w, "model.norm", eps)), head_of(w, "model.embed_tokens.weight"))


# ---------------------------------------------------------------- encoders


def bert(c: Config, w: Weights, ids: Array, note: Note) -> None:
    """Post-norm. MosaicBERT and DNABERT-2 have one matrix Wqkv. Tensors tell the kinds of jina-bert-v2 apart: English
    style (gated_layers), code style (norms of queries and keys, up_gated_layer), and that with an ungated up_layer."""
    heads, eps, inner = c["num_attention_heads"], c["layer_norm_eps"], c["intermediate_size"]
    act = {"geglu": gelu, "reglu": relu, "original": gelu}[c.get("feed_forward_type", "geglu")]
    x = w.rows("embeddings.word_embeddings.weight", ids) + w.rows("embeddings.token_type_embeddings.weight", 0)
    x = layer_norm(x, w, "embeddings.LayerNorm", eps)
    note(x)
    for n in range(layers_of(c)):
        p = f"encoder.layer.{n}."
        at = p + "attention.self."
        if at + "Wqkv.weight" in w:
            qkv = np.split(linear(x, w, at + "Wqkv"), 3, 1)
        else:
            qkv = [linear(x, w, at + name) for name in ("query", "key", "value")]
        code = at + "layer_norm_q.weight" in w
        if code:  # over all heads together
            qkv[:2] = [layer_norm(part, w, at + name, eps) for part, name in zip(qkv, ("layer_norm_q", "layer_norm_k"))]
        y = self_attention(qkv, heads, 1 / math.sqrt(x.shape[1] // heads), slopes_of(c, w), False)
        y = layer_norm(x + linear(y, w, p + "attention.output.dense"), w, p + "attention.output.LayerNorm", eps)
        if code:  # a second residual and norm around the attention
            y = layer_norm(x + y, w, p + "layer_norm_1", eps)
        note(y)

        def feed_forward(r: Array, m: Any) -> Array:
            if p + "mlp.up_layer.weight" in m:
                return linear(act(linear(r, m, p + "mlp.up_layer")), m, p + "mlp.down_layer")
            if p + "mlp.up_gated_layer.weight" in m:  # the gate is the second half
                z = linear(r, m, p + "mlp.up_gated_layer")
                return linear(z[:, :inner] * act(z[:, inner:]), m, p + "mlp.down_layer")
            z = linear(r, m, p + "mlp.gated_layers")
            return linear(act(z[:, :inner]) * z[:, inner:], m, p + "mlp.wo")

        x = layer_norm(y + by_rows(y, w, feed_forward), w, p + ("layer_norm_2" if code else "mlp.layernorm"), eps)
        note(x)
    note(x)


def gte(c: Config, w: Weights, ids: Array, note: Note) -> None:
    """GTE: post-norm and rotary; the gate is the second half of its matrix. Some have no token types."""
    heads, eps, inner = c["num_attention_heads"], c.get("layer_norm_eps", 1e-12), c["intermediate_size"]
    theta = 10000.0 if c["model_type"] == "new" else 160000.0
    x = w.rows("embeddings.word_embeddings.weight", ids)
    if "embeddings.token_type_embeddings.weight" in w:
        x = x + w.rows("embeddings.token_type_embeddings.weight", 0)
    x = layer_norm(x, w, "embeddings.LayerNorm", eps)
    note(x)
    for n in range(layers_of(c)):
        p = f"encoder.layer.{n}."
        q, k, v = (heads_of(part, heads) for part in np.split(linear(x, w, p + "attention.qkv_proj"), 3, 1))
        y = attention(rotated(q, c, theta), rotated(k, c, theta), v, 1 / math.sqrt(q.shape[2]), np.zeros(heads), False)
        x = layer_norm(x + linear(y, w, p + "attention.o_proj"), w, p + "attn_ln", eps)
        note(x)

        def feed_forward(r: Array, m: Any) -> Array:
            z = linear(r, m, p + "mlp.up_gate_proj")
            return linear(z[:, :inner] * gelu(z[:, inner:]), m, p + "mlp.down_proj")

        x = layer_norm(x + by_rows(x, w, feed_forward), w, p + "mlp_ln", eps)
        note(x)
    note(x)


# ---------------------------------------------------------------- by configuration

Family = Callable[[Config, Weights, Array, Note], Any]
FAMILIES: dict[str, Family] = {
    "mpt": mpt, "bloom": bloom, "falcon": bloom, "RefinedWebModel": bloom, "RefinedWeb": bloom, "baichuan": baichuan,
    "btlm": btlm, "jais": btlm, "gpt_refact": refact, "replit_lm": replit, "bert": bert,
    "forgetting_transformer": forgetting, "jais2": jais2, "gte": gte, "new": gte,
}  # fmt: skip


def heads_in(c: Config) -> int:
    return next(int(c[key]) for key in ("n_heads", "num_attention_heads", "n_head", "num_heads") if c.get(key) is not None)


def slopes_of(c: Config, w: Weights) -> Array:
    """What a distance of one takes off a score."""
    heads = heads_in(c)
    if FAMILIES[c["model_type"]] in (forgetting, jais2, gte):  # gates or rotations alone
        return np.zeros(heads)
    if "transformer.relative_pe.slopes" in w:  # Jais and BTLM store them
        return w["transformer.relative_pe.slopes"].reshape(heads) / ((c.get("alibi_scaling") or {}).get("factor") or 1)
    attn = c.get("attn_config") or {}
    found = slopes(heads, float(attn.get("alibi_bias_max") or c.get("alibi_bias_max") or 8))
    if FAMILIES[c["model_type"]] is bloom and c["model_type"] != "bloom":
        return found / math.sqrt(c["hidden_size"] // heads)  # Falcon scales the bias with the scores
    return found


class Formulas:
    """A model of a folder. Computes the states of ids: those of some rows after each branch, and their logits."""

    def __init__(self, config: Config, source: Any, layers: int | None = None) -> None:
        self.config = config if layers is None else {**config, **{key: layers for key in LAYER_KEYS if key in config}}
        self.source = source
        self.is_decoder = FAMILIES[config["model_type"]] not in (bert, gte)
        scaling = config.get("alibi_scaling") or {}
        self.is_prefix_stable = self.is_decoder and (not scaling or scaling.get("factor") is not None)

    def weights(self, dtype: type) -> Weights:
        return Weights(self.source, dtype, ("transformer.",) if self.is_decoder else ("bert.", "new.", "gte."))

    def slopes(self) -> Array:
        return slopes_of(self.config, self.weights(np.float64))

    def run(self, ids: Array, rows: Sequence[int], dtype: type) -> tuple[list[Array], Array | None]:
        states: list[Array] = []

        def note(x: Array) -> Array:
            states.append(x[list(rows)])
            return states[-1]

        logits = FAMILIES[self.config["model_type"]](self.config, self.weights(dtype), ids, note)
        return states, logits
