#!/usr/bin/env python3
"""Compare EncoderModel with sentence-transformers (PyTorch), ONNX Runtime and llama.cpp on a model of Jina embeddings
v2's shape with random weights.

    venv/bin/python bench/random_model.py /tmp/jina --family jina
    venv/bin/python bench/peers/embed.py /tmp/jina --json embed.json --markdown embed.md

All compute the mean of the states, normalized, of the same token ids, at equal lengths and for lengths as in
practice (log-normal, median 180). Each job has a process of its own, which gives its peak memory; programs take turns for
--rounds rounds, and the table has the best round. --precision bf16 computes in bfloat16, except in ONNX Runtime, which
stays at float32. The model in PyTorch is written from the published formulas:
scaled_dot_product_attention with the bias as its mask. llama.cpp reads a GGUF file that is written here. A vector of each
job is compared with alibi's. A program that needs more memory than the machine has fails, and the table says so.
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

JOBS = {"128": 32, "512": 8, "2048": 2, "8192": 1, "mix": 32, "32768": 1}  # texts of each
WAYS = ("alibi", "sentence-transformers", "onnxruntime", "llama.cpp")


def rows_of(job, vocab):
    rng = np.random.default_rng(7)
    if job == "mix":
        lengths = np.clip(rng.lognormal(math.log(180), 1.0, JOBS[job]), 8, 8192).astype(int)
    else:
        lengths = [int(job)] * JOBS.get(job, 1)
    return [rng.integers(5, vocab, n).tolist() for n in lengths]


def tensors_of(folder):
    from safetensors.numpy import load_file

    files = sorted(set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values()))
    return {name: value for file in files for name, value in load_file(folder / file).items()}


def torch_model(folder):
    import torch
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
            bias = -self.slopes.float() * (at[:, None] - at[None, :]).abs()
            bias = bias + (1 - attention_mask[:, None, None, :].float()) * -1e30
            bias = bias.to(self.norm.weight.dtype)
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
    state = {f"{names[name.rsplit('.', 1)[0]]}.{name.rsplit('.', 1)[1]}": torch.from_numpy(value)
             for name, value in tensors_of(folder).items()}
    model = Encoder().eval()
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys == ["slopes"] and not missing.unexpected_keys, missing
    return model


def write_gguf(folder, file, precision):
    """The model as llama.cpp names its parts, without a tokenizer."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    hidden = config["intermediate_size"]
    writer = gguf.GGUFWriter(str(file), "jina-bert-v2")
    writer.add_context_length(1 << 20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    is_bf16 = precision == "bf16"
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if is_bf16 else gguf.LlamaFileType.ALL_F32)

    def add(name, value):
        if is_bf16 and value.ndim == 2 and name.startswith("blk."):
            kind = gguf.GGMLQuantizationType.BF16
            return writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        writer.add_tensor(name, value)

    names = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
             "embeddings.LayerNorm": "token_embd_norm"}
    parts = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
             "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
             "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm"}
    for name, value in tensors_of(folder).items():
        base, kind = name.rsplit(".", 1)
        if base.startswith("encoder.layer."):
            layer, part = base.removeprefix("encoder.layer.").split(".", 1)
            if part == "mlp.gated_layers":
                add(f"blk.{layer}.ffn_gate.weight", np.ascontiguousarray(value[:hidden]))
                add(f"blk.{layer}.ffn_up.weight", np.ascontiguousarray(value[hidden:]))
                continue
            add(f"blk.{layer}.{parts[part]}.{kind}", value)
        else:
            add(f"{names[base]}.{kind}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_embedder(folder, longest, precision):
    """llama.cpp through its C interface. All tokens of an encoder's call must be in one batch."""
    import ctypes

    import llama_cpp as llama

    file = folder / f"encoder-{precision}.gguf"
    if not file.exists():
        write_gguf(folder, file, precision)
    quiet = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(str(file).encode(), llama.llama_model_default_params())
    assert model, f"llama.cpp cannot read {file}"
    most, texts = max(longest, 2048), 16
    params = llama.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = most
    params.n_seq_max = texts
    params.kv_unified = True
    params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
    params.embeddings, params.pooling_type = True, llama.LLAMA_POOLING_TYPE_MEAN
    context = llama.llama_init_from_model(model, params)
    assert context, "llama.cpp cannot make a context, probably for lack of memory"
    width = llama.llama_model_n_embd(model)
    batch = llama.llama_batch_init(most, 0, 1)

    def run(rows):  # several texts end to end in a batch, as llama.cpp's server does it
        result, waiting = np.empty((len(rows), width), np.float32), []

        def encode():
            batch.n_tokens = 0
            for number, i in enumerate(waiting):
                for at, token in enumerate(rows[i]):
                    n = batch.n_tokens
                    batch.token[n], batch.pos[n], batch.logits[n] = token, at, 1
                    batch.n_seq_id[n], batch.seq_id[n][0] = 1, number
                    batch.n_tokens += 1
            if llama.llama_encode(context, batch) != 0:
                raise MemoryError("llama_encode failed")
            for number, i in enumerate(waiting):
                found = llama.llama_get_embeddings_seq(context, number)
                vector = np.ctypeslib.as_array(ctypes.cast(found, ctypes.POINTER(ctypes.c_float)), (width,))
                result[i] = vector / np.linalg.norm(vector)
            waiting.clear()

        for i in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
            if waiting and (len(waiting) == texts or sum(len(rows[w]) for w in waiting) + len(rows[i]) > most):
                encode()
            waiting.append(i)
        encode()
        return result

    return run


def embedder(way, folder, longest, precision):
    """A function from rows of ids to vectors."""
    if way == "alibi":
        import alibi_attention as alibi
        model = alibi.EncoderModel.load(folder, precision=precision)
        return lambda rows: model.embed_ids(rows, pooling="mean", normalize=True)
    if way == "llama.cpp":
        return llama_embedder(folder, longest, precision)
    import torch
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = torch_model(folder)
    if precision == "bf16" and way == "sentence-transformers":
        model.to(torch.bfloat16)
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
                states = self.model(features["input_ids"], features["attention_mask"])
                features["token_embeddings"] = states.float()
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


def job(way, folder, name, precision):
    """Runs one job in this process and prints what it took."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # an error, before the machine has no memory left
    config = json.loads((folder / "config.json").read_text())
    rows = rows_of(name, config["vocab_size"])
    embed = embedder(way, folder, max(map(len, rows)), precision)
    embed([[5, 6, 7]] * 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    vectors = np.asarray(embed(rows))
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"way": way, "job": name, "tokens": sum(map(len, rows)), "seconds": seconds,
                      "tokens_per_second": sum(map(len, rows)) / seconds, "peak_mib": peak / 1024,
                      "more_mib": (peak - before) / 1024, "vector": vectors[0].tolist()}))


def table(results, failures, jobs, ways):
    """The best round of each job as Markdown, with the ratio of alibi to the best of the others."""
    lines = []
    for title, key, best, form in (("tokens/s", "tokens_per_second", max, "{:.0f}"), ("peak MiB", "peak_mib", min, "{:.0f}"),
                                   ("MiB above the loaded model", "more_mib", min, "{:.0f}")):
        lines += [f"| {title} | {' | '.join(ways)} | alibi to the best other |", "|---" * (len(ways) + 2) + "|"]
        for name in jobs:
            found = {way: best(r[key] for r in results if (r["way"], r["job"]) == (way, name))
                     for way in ways if any((r["way"], r["job"]) == (way, name) for r in results)}
            others = [value for way, value in found.items() if way != "alibi"]
            ratio = f"{found['alibi'] / best(others):.2f}" if "alibi" in found and others and best(others) > 0 else "-"
            cells = [form.format(found[way]) if way in found else failures.get((way, name), "-") for way in ways]
            lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
        lines.append("")
    cosines = [1 - r["cosine_to_alibi"] for r in results]
    lines.append(f"Largest difference of a cosine to alibi's vector from 1: {max(cosines, default=0):.1e}.")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--precision", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.job:
        return job(o.job[0], o.folder, o.job[1], o.precision)
    jobs, ways = o.jobs.split(","), o.ways.split(",")
    results, failures = [], {}
    for name in jobs:
        for turn in range(o.rounds):
            for way in ways:
                if (way, name) in failures:
                    continue
                command = [sys.executable, __file__, str(o.folder), "--precision", o.precision, "--job", way, name]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                lines = done.stdout.splitlines()
                if done.returncode or not lines:
                    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                    is_memory = any(word in reason.lower() for word in ("memory", "allocate", "bad_alloc")) or done.returncode < 0
                    failures[way, name] = "not enough memory" if is_memory else "failed"
                    print(f"{name:>6}  {way:22} failed: {reason[:200]}", flush=True)
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
    text = table(results, failures, jobs, ways)
    print("\n" + text)
    if o.json:
        failed = [{"way": way, "job": name, "reason": reason} for (way, name), reason in failures.items()]
        o.json.write_text(json.dumps({"results": results, "failures": failed}, indent=1))
    if o.markdown:
        o.markdown.write_text(text)


if __name__ == "__main__":
    main()
