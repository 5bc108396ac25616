"""Models in GGUF files under the names that Hugging Face's folders have, for `verify`. Needs the package gguf."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._weights import Array, Config

_NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "mpt": ("transformer.blocks.", {
        "token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head", "attn_norm": "norm_1",
        "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj", "attn_q_norm": "attn.q_ln", "attn_k_norm": "attn.k_ln",
        "ffn_norm": "norm_2", "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj"}),
    "bloom": ("h.", {
        "token_embd": "word_embeddings", "token_embd_norm": "word_embeddings_layernorm", "output_norm": "ln_f",
        "output": "lm_head", "attn_norm": "input_layernorm", "attn_qkv": "self_attention.query_key_value",
        "attn_output": "self_attention.dense", "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h"}),
    "refact": ("transformer.h.", {
        "token_embd": "transformer.wte", "output_norm": "ln_f", "output": "lm_head", "attn_norm": "ln_1",
        "attn_q": "attn.q", "attn_k": "attn.k", "attn_v": "attn.v", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
        "ffn_gate": "mlp.linear_1", "ffn_up": "mlp.linear_3", "ffn_down": "mlp.c_proj"}),
    "jina-bert-v2": ("encoder.layer.", {
        "token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm", "attn_q": "attention.self.query", "attn_k": "attention.self.key",
        "attn_v": "attention.self.value", "attn_q_norm": "attention.self.layer_norm_q",
        "attn_k_norm": "attention.self.layer_norm_k", "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm", "attn_norm_2": "layer_norm_1"}),
}  # fmt: skip


def write_first_layers_of_gguf(path: str | os.PathLike[str], layers: int, out: str | os.PathLike[str]) -> None:
    """A file with the metadata, the tokenizer and the first layers of another; their weights keep their types."""
    gguf = importlib.import_module("gguf")
    reader = gguf.GGUFReader(path)
    arch = reader.fields["general.architecture"].contents()
    count = f"{arch}.block_count"
    writer = gguf.GGUFWriter(out, arch)
    if "general.alignment" in reader.fields:
        writer.data_alignment = reader.fields["general.alignment"].contents()
    for name, field in reader.fields.items():
        if name != "general.architecture" and not name.startswith("GGUF."):
            value = field.contents()
            is_array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(name, min(value, layers) if name == count else value, field.types[0], field.types[-1] if is_array else None)
    block = re.compile(r"blk\.(\d+)\.")
    kept = [tensor for tensor in reader.tensors if not (match := block.match(tensor.name)) or int(match[1]) < layers]
    for tensor in kept:
        writer.add_tensor_info(tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in kept:
        writer.write_tensor_data(tensor.data)
    writer.close()


class Gguf:
    """The tensors of a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        gguf = importlib.import_module("gguf")
        self._quants = gguf.quants
        self._type = gguf.GGMLQuantizationType
        reader = gguf.GGUFReader(path)
        arch = reader.fields["general.architecture"].contents()
        if arch not in _NAMES:
            raise ValueError(f"there are no formulas for GGUF files of {arch}")
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._parts: dict[str, list[str]] = {}

        def get(key: str, other: Any = None) -> Any:
            field = reader.fields.get(f"{arch}.{key}")
            return other if field is None else field.contents()

        self._heads = get("attention.head_count")
        layers, width = get("block_count"), get("embedding_length")
        eps = float(get("attention.layer_norm_epsilon", get("attention.layer_norm_rms_epsilon", 0)))
        self.config: Config = {"n_layers": layers, "n_heads": self._heads, "d_model": width}
        is_code = "blk.0.attn_q_norm.weight" in self._tensors
        if arch == "mpt":
            kv = get("attention.head_count_kv", self._heads)
            attn = {"alibi_bias_max": get("attention.max_alibi_bias"), "clip_qkv": get("attention.clamp_kqv"), "qk_ln": is_code}
            if kv != self._heads:
                attn |= {"attn_type": "grouped_query_attention", "kv_n_heads": kv}
            self.config |= {"model_type": "mpt", "norm_eps": eps, "attn_config": attn}
        elif arch == "bloom":
            self.config |= {"model_type": "bloom", "n_head": self._heads, "layer_norm_epsilon": eps}
        elif arch == "refact":
            self.config |= {"model_type": "gpt_refact", "n_head": self._heads, "n_embd": width, "layer_norm_epsilon": eps}
        else:
            self.config |= {"model_type": "bert", "num_attention_heads": self._heads, "layer_norm_eps": eps,
                            "intermediate_size": get("feed_forward_length")}  # fmt: skip
        self._name_tensors(*_NAMES[arch], is_code)

    def _name_tensors(self, prefix: str, names: dict[str, str], is_code: bool) -> None:
        for name in self._tensors:
            parts = name.split(".")
            if parts[0] != "blk":
                self._parts[f"{names[parts[0]]}.{parts[1]}"] = [name]
                continue
            at, stem, suffix = f"{prefix}{parts[1]}.", parts[2], parts[3]
            if stem in names:
                self._parts[f"{at}{names[stem]}.{suffix}"] = [name]
            elif stem == "layer_output_norm":
                self._parts[f"{at}{'layer_norm_2' if is_code else 'mlp.layernorm'}.{suffix}"] = [name]
            elif stem == "ffn_down":
                self._parts[f"{at}mlp.{'down_layer' if is_code else 'wo'}.{suffix}"] = [name]
            elif stem == "ffn_up":  # the gate apart, or first in the same tensor; the code models have it second
                gate = name.replace("ffn_up", "ffn_gate")
                joined = [name] if gate not in self._tensors else [name, gate] if is_code else [gate, name]
                self._parts[f"{at}mlp.{'up_gated_layer' if is_code else 'gated_layers'}.{suffix}"] = joined

    @property
    def type(self) -> str:
        """The type of most matrices."""
        types = [t.tensor_type.name for t in self._tensors.values() if len(t.shape) == 2]
        return str(max(set(types), key=types.count))

    def names(self) -> Iterator[str]:
        return iter(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        tensors = [self._tensors[part] for part in self._parts[name]]
        return (sum(int(t.shape[-1]) for t in tensors), *(int(n) for n in reversed(tensors[0].shape[:-1])))

    def read(self, name: str, rows: Any = slice(None)) -> Array:
        found = np.concatenate([self._values(self._tensors[part], rows) for part in self._parts[name]])
        if "query_key_value" not in name:
            return found
        # The queries of all heads, the keys, the values: back to those of each head.
        return np.asarray(np.swapaxes(found.reshape(3, self._heads, -1, *found.shape[1:]), 0, 1).reshape(found.shape))

    def _values(self, tensor: Any, rows: Any) -> Array:
        kind = tensor.tensor_type
        values = self._quants.dequantize(tensor.data[rows], kind)
        return np.asarray(values, np.float32)
