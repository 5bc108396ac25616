#!/usr/bin/env python3
"""Write a model folder with random weights, to measure how large models are opened and run.

The defaults are the shape of MPT-7B: 13.3 GB in bfloat16, in shards of 5 GB with an index. With --family jina they are the
shape of jina-embeddings-v2-base: 137 million parameters in float32. Programs that need a tokenizer get one of bytes with
--tokenizer; the other entries of its vocabulary are never used.

    bench/random_model.py /tmp/mpt-7b && alibi bench generate --model /tmp/mpt-7b
    bench/random_model.py /tmp/mpt-7b --sparse         # all zeros, needs no disk space
    bench/random_model.py /tmp/jina --family jina
    bench/random_model.py /tmp/mpt-1.3b --layers 24 --d-model 2048 --heads 16 --tokenizer
    bench/random_model.py /tmp/small --layers 2 --d-model 256 --heads 4 --dtype float16
"""
import argparse
import json
import pathlib
import random
import struct

BLOCK = 1 << 25  # bytes of random numbers, of which all tensors are made
DEFAULTS = {
    "mpt": {"layers": 32, "d_model": 4096, "heads": 32, "vocab": 50432, "dtype": "bfloat16"},
    "jina": {"layers": 12, "d_model": 768, "heads": 12, "vocab": 30528, "dtype": "float32"},
}
TYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}


def jina_shapes(o):
    """Name and shape of each tensor of jina-bert-v2."""
    width, hidden = o.d_model, 4 * o.d_model

    def with_bias(name, *shape):
        yield name + ".weight", list(shape)
        yield name + ".bias", [shape[0]]

    yield "embeddings.word_embeddings.weight", [o.vocab, width]
    yield "embeddings.token_type_embeddings.weight", [2, width]
    yield from with_bias("embeddings.LayerNorm", width)
    for layer in range(o.layers):
        at = f"encoder.layer.{layer}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            yield from with_bias(at + "attention." + name, width, width)
        yield from with_bias(at + "attention.output.LayerNorm", width)
        yield at + "mlp.gated_layers.weight", [2 * hidden, width]
        yield from with_bias(at + "mlp.wo", width, hidden)
        yield from with_bias(at + "mlp.layernorm", width)
    if o.labels > 0:
        yield from with_bias("pooler.dense", width, width)
        yield from with_bias("classifier", o.labels, width)


def mpt_shapes(o):
    """Name and shape of each tensor, as MPT orders them."""
    width, hidden = o.d_model, 4 * o.d_model
    yield "transformer.wte.weight", [o.vocab, width]
    for layer in range(o.layers):
        at = f"transformer.blocks.{layer}."
        yield at + "norm_1.weight", [width]
        yield at + "attn.Wqkv.weight", [3 * width, width]
        yield at + "attn.out_proj.weight", [width, width]
        yield at + "norm_2.weight", [width]
        yield at + "ffn.up_proj.weight", [hidden, width]
        yield at + "ffn.down_proj.weight", [width, hidden]
    yield "transformer.norm_f.weight", [width]


def random_block(dtype, rng):
    """Random numbers between 2^-7 and 2^-5 of either sign: layers keep the size of what they are given."""
    size = TYPES[dtype][1]
    block = bytearray(rng.randbytes(BLOCK))
    # The high byte: sign, exponent and, in float16, two bits of the fraction.
    high = [0x3C, 0xBC] if dtype != "float16" else [h | s for h in range(0x20, 0x28) for s in (0, 0x80)]
    block[size - 1 :: size] = rng.randbytes(BLOCK // size).translate(bytes(high[i % len(high)] for i in range(256)))
    return memoryview(bytes(block))


def ones(dtype, count):
    return {"bfloat16": b"\x80\x3f", "float16": b"\x00\x3c", "float32": struct.pack("<f", 1)}[dtype] * count


def write_shard(path, tensors, o, block, rng):
    name, size = TYPES[o.dtype]
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor, shape in tensors:
        end = at + size * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[tensor] = {"dtype": name, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if o.sparse:
            return file.truncate(8 + len(text) + at)
        for tensor, shape in tensors:
            if len(shape) == 1:
                file.write(bytes(size * shape[0]) if tensor.endswith(".bias") else ones(o.dtype, shape[0]))
                continue
            left = size * shape[0] * shape[1]
            while left > 0:
                begin = rng.randrange(0, BLOCK // 2, 64)
                part = block[begin : begin + left]
                file.write(part)
                left -= len(part)


def write_tokenizer(path, vocab):
    """A tokenizer.json of byte-level BPE without merges, as GPT-2 writes bytes: printable ones as they are."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    entries = ["<|endoftext|>", *letters, *(f"<unused{i}>" for i in range(vocab - 257))]
    bytes_as_letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 0, "content": entries[0], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}
    path.write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": bytes_as_letters,
        "post_processor": bytes_as_letters, "decoder": bytes_as_letters,
        "model": {"type": "BPE", "vocab": {entry: i for i, entry in enumerate(entries)}, "merges": []}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--family", choices=DEFAULTS, default="mpt")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--d-model", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--labels", type=int, default=0, help="jina: outputs of a classifier; 1 for a reranker")
    parser.add_argument("--dtype", choices=TYPES)
    parser.add_argument("--shard-gb", type=float, default=5, help="most bytes of a shard, in GB")
    parser.add_argument("--sparse", action="store_true", help="files of zeros without disk space")
    parser.add_argument("--tokenizer", action="store_true", help="also write a tokenizer of bytes")
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    for name, value in DEFAULTS[o.family].items():
        if getattr(o, name) is None:
            setattr(o, name, value)
    rng = random.Random(o.seed)
    o.folder.mkdir(parents=True, exist_ok=True)
    block = None if o.sparse else random_block(o.dtype, rng)

    shards, filled = [[]], 0
    for tensor, shape in (jina_shapes if o.family == "jina" else mpt_shapes)(o):
        size = TYPES[o.dtype][1] * shape[0] * (shape[1] if len(shape) > 1 else 1)
        if filled > 0 and filled + size > o.shard_gb * 1e9:
            shards.append([])
            filled = 0
        shards[-1].append((tensor, shape))
        filled += size
    files = {}
    for i, tensors in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(o.folder / file, tensors, o, block, rng)
        files.update({tensor: file for tensor, _ in tensors})
    index = {"metadata": {}, "weight_map": files}
    (o.folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    jina = {
        "model_type": "bert",
        "architectures": ["JinaBertModel"],
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "hidden_size": o.d_model,
        "num_hidden_layers": o.layers,
        "num_attention_heads": o.heads,
        "intermediate_size": 4 * o.d_model,
        "max_position_embeddings": 8192,
        "type_vocab_size": 2,
        "vocab_size": o.vocab,
        "layer_norm_eps": 1e-12,
        "torch_dtype": o.dtype,
    }
    mpt = {
        "model_type": "mpt",
        "architectures": ["MPTForCausalLM"],
        "d_model": o.d_model,
        "n_layers": o.layers,
        "n_heads": o.heads,
        "expansion_ratio": 4,
        "max_seq_len": 2048,
        "vocab_size": o.vocab,
        "no_bias": True,
        "attn_config": {"alibi": True, "alibi_bias_max": 8},
        "torch_dtype": o.dtype,
    }
    (o.folder / "config.json").write_text(json.dumps(jina if o.family == "jina" else mpt, indent=1))
    if o.tokenizer:
        write_tokenizer(o.folder / "tokenizer.json", o.vocab)
    print(f"{o.folder}: {len(shards)} shards, {sum(f.stat().st_size for f in o.folder.iterdir()):,} bytes")


if __name__ == "__main__":
    main()
