#!/usr/bin/env python3
"""Compare EncoderModel with sentence-transformers (PyTorch) and ONNX Runtime on a model of Jina embeddings v2's shape.

    venv/bin/python bench/random_model.py /tmp/jina --family jina
    venv/bin/python bench/peers/embed.py /tmp/jina --json embed.json

All compute the mean of the states, normalized, of the same token ids, at equal lengths and for lengths as in practice
(log-normal, median 180). Each job has a process of its own, which gives its peak memory; jobs take turns for --rounds
rounds. The model in PyTorch is written from the published formulas: scaled_dot_product_attention with the bias as its
mask. Vectors are compared with alibi's before anything is timed.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np

JOBS = {"128": 64, "512": 16, "2048": 4, "8192": 1, "mix": 64, "32768": 1}  # texts of each
WAYS = ("alibi", "sentence-transformers", "onnxruntime")


def rows_of(job, vocab):
    rng = np.random.default_rng(7)
    if job == "mix":
        lengths = np.clip(rng.lognormal(math.log(180), 1.0, JOBS[job]), 8, 8192).astype(int)
    else:
        lengths = [int(job)] * JOBS[job]
    return [rng.integers(5, vocab, n).tolist() for n in lengths]


def torch_model(folder):
    import torch
    from safetensors.torch import load_file
    from torch import nn
    from torch.nn.functional import gelu, scaled_dot_product_attention

    config = json.loads((folder / "config.json").read_text())
    width, heads, hidden = config["hidden_size"], config["num_attention_heads"], config["intermediate_size"]

    def slopes(n):
        def of_power(n):
            return [2 ** (-8 * (i + 1) / n) for i in range(n)]
        below = 2 ** int(math.log2(n))
        return of_power(n) if below == n else of_power(below) + of_power(2 * below)[::2][: n - below]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
            self.norm, self.layernorm = (nn.LayerNorm(width, eps=config["layer_norm_eps"]) for _ in range(2))
            self.gated_layers, self.wo = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width)

        def forward(self, x, bias):
            q, k, v = (f(x).unflatten(-1, (heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
            y = scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
            x = self.norm(x + self.dense(y))
            gate, up = self.gated_layers(x).chunk(2, dim=-1)
            return self.layernorm(x + self.wo(gelu(gate) * up))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.word_embeddings = nn.Embedding(config["vocab_size"], width)
            self.token_type_embeddings = nn.Embedding(2, width)
            self.norm = nn.LayerNorm(width, eps=config["layer_norm_eps"])
            self.layer = nn.ModuleList(Layer() for _ in range(config["num_hidden_layers"]))
            self.register_buffer("slopes", torch.tensor(slopes(heads)).view(1, heads, 1, 1))

        def forward(self, input_ids, attention_mask):
            at = torch.arange(input_ids.shape[1])
            bias = -self.slopes * (at[:, None] - at[None, :]).abs()
            bias = bias + (1 - attention_mask[:, None, None, :].float()) * -1e30
            x = self.norm(self.word_embeddings(input_ids) + self.token_type_embeddings.weight[0])
            for layer in self.layer:
                x = layer(x, bias)
            return x

    names = {"embeddings.word_embeddings": "word_embeddings", "embeddings.token_type_embeddings": "token_type_embeddings",
             "embeddings.LayerNorm": "norm"}
    for i in range(config["num_hidden_layers"]):
        at, to = f"encoder.layer.{i}.", f"layer.{i}."
        names |= {at + f"attention.self.{n}": to + n for n in ("query", "key", "value")}
        names |= {at + "attention.output.dense": to + "dense", at + "attention.output.LayerNorm": to + "norm",
                  at + "mlp.gated_layers": to + "gated_layers", at + "mlp.wo": to + "wo", at + "mlp.layernorm": to + "layernorm"}
    files = sorted(set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values()))
    tensors = {name: value for file in files for name, value in load_file(folder / file).items()}
    state = {f"{names[name.rsplit('.', 1)[0]]}.{name.rsplit('.', 1)[1]}": value for name, value in tensors.items()}
    model = Encoder().eval()
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys == ["slopes"] and not missing.unexpected_keys, missing
    return model


def embedder(way, folder):
    """A function from rows of ids to vectors."""
    if way == "alibi":
        import alibi_attention as alibi
        model = alibi.EncoderModel.load(folder)
        return lambda rows: model.embed_ids(rows, pooling="mean", normalize=True)
    import torch
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = torch_model(folder)
    if way == "sentence-transformers":
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Normalize, Pooling

        class Transformer(torch.nn.Module):
            """Texts are ids in decimal, so that tokenization costs little."""
            def __init__(self):
                super().__init__()
                self.model, self.max_seq_length = model, None
            def tokenize(self, texts, **_):
                rows = [list(map(int, text.split())) for text in texts]
                longest = max(map(len, rows))
                ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
                mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
                return {"input_ids": ids, "attention_mask": mask}
            preprocess = tokenize
            def forward(self, features, **_):
                features["token_embeddings"] = self.model(features["input_ids"], features["attention_mask"])
                return features

        width = json.loads((folder / "config.json").read_text())["hidden_size"]
        whole = SentenceTransformer(modules=[Transformer(), Pooling(width, "mean"), Normalize()], device="cpu")

        def encode(rows):
            texts = [" ".join(map(str, row)) for row in rows]
            return whole.encode(texts, batch_size=16, show_progress_bar=False)
        return encode
    import onnxruntime
    file = folder / "encoder.onnx"
    if not file.exists():
        sample = (torch.zeros(2, 16, dtype=torch.long), torch.ones(2, 16, dtype=torch.long))
        axes = {0: "batch", 1: "length"}
        torch.onnx.export(model, sample, str(file), input_names=["input_ids", "attention_mask"], output_names=["states"],
                          dynamic_axes={"input_ids": axes, "attention_mask": axes, "states": axes}, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    del model

    def run(rows):  # sorted by length, padded, as sentence-transformers does it
        result = [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for begin in range(0, len(order), 16):
            part = order[begin:begin + 16]
            longest = max(len(rows[i]) for i in part)
            ids, mask = np.zeros((2, len(part), longest), np.int64)
            for r, i in enumerate(part):
                ids[r, :len(rows[i])], mask[r, :len(rows[i])] = rows[i], 1
            states = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
            means = (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
            for r, i in enumerate(part):
                result[i] = means[r] / np.linalg.norm(means[r])
        return np.array(result)
    return run


def job(way, folder, name):
    """Runs one job in this process and prints what it took."""
    config = json.loads((folder / "config.json").read_text())
    embed = embedder(way, folder)
    embed([[5, 6, 7]] * 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = rows_of(name, config["vocab_size"])
    begun = time.perf_counter()
    vectors = np.asarray(embed(rows))
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"way": way, "job": name, "tokens": sum(map(len, rows)), "seconds": seconds,
                      "tokens_per_second": sum(map(len, rows)) / seconds, "peak_mib": peak / 1024,
                      "more_mib": (peak - before) / 1024, "vector": vectors[0].tolist()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--jobs", default="128,512,2048,8192,mix")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.job:
        return job(o.job[0], o.folder, o.job[1])
    results = []
    for name in o.jobs.split(","):
        for turn in range(o.rounds):
            for way in o.ways.split(","):
                command = [sys.executable, __file__, str(o.folder), "--job", way, name]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                lines = done.stdout.splitlines()
                if done.returncode or not lines:
                    print(f"{name:>6}  {way:22} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}", flush=True)
                    continue
                found = json.loads(lines[-1])
                first = next((r for r in results if r["job"] == name and r["way"] == "alibi"), found)
                cosine = float(np.dot(found["vector"], first["vector"]))
                found |= {"round": turn, "cosine_to_alibi": cosine}
                results.append(found)
                print(f"{name:>6}  {way:22} {found['tokens_per_second']:9.0f} tokens/s  peak {found['peak_mib']:7.0f} MiB  "
                      f"cosine {cosine:.7f}", flush=True)
    for found in results:
        del found["vector"]
    if o.json:
        o.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
