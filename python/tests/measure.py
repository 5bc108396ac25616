"""What docs/explanation/benchmarks.md says of time and memory, measured here. Needs PyTorch, and transformers for the models.

    python measure.py overhead | operator LENGTH | pages KEYS | model NAME
"""

import gc
import math
import sys
import time

import numpy as np
import torch

import alibi_attention as alibi

torch.set_num_threads(2)


def best(function, count, turns):
    """Seconds of one call."""
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - start) / count)
    return min(times)


def overhead():
    slopes = torch.tensor(alibi.slopes(1))
    for length in (1, 128):
        q, k, v = (torch.randn(1, length, 1, 8) for _ in range(3))
        a, b, c, array_slopes = (x.numpy() for x in (q, k, v, slopes))
        ways = {
            "NumPy": lambda: alibi.attention(a, b, c, alibi_slopes=array_slopes),
            "PyTorch": lambda: alibi.attention(q, k, v, alibi_slopes=slopes),
        }
        times = {name: [] for name in ways}
        for _ in range(200):  # alternately, so that other work on the machine affects both
            for name, way in ways.items():
                times[name].append(best(way, 500, 1))
        print(f"{length} tokens: " + ", ".join(f"{name} {1e6 * min(seconds):.2f} us" for name, seconds in times.items()))


def operator(length):
    heads = 8
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, length, heads, 64, requires_grad=True) for _ in range(3))
    weights = torch.randn(1, length, heads, 64)
    slopes = torch.tensor(alibi.slopes(heads))
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    bias = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -math.inf)[None]

    def sdpa():
        given = [x.transpose(1, 2) for x in (q, k, v)]
        return torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=bias).transpose(1, 2)

    def ours():
        return alibi.attention(q, k, v, alibi_slopes=slopes, tolerance=2**-24)

    def both(function):
        q.grad = k.grad = v.grad = None
        (function() * weights).sum().backward()

    turns = 3 if length <= 2048 else 1
    times = {sdpa: [], ours: []}
    for _ in range(turns + 1):  # alternately, so that other work on the machine affects both
        for function in times:
            times[function].append(best(lambda: both(function), 1, 1))
    theirs, own = (min(times[function]) for function in (sdpa, ours))
    print(f"forward and backward at {length}: SDPA {1e3 * theirs:.0f} ms, alibi {1e3 * own:.0f} ms: {theirs / own:.1f} times")
    with torch.no_grad():
        rows = torch.randperm(length)[:512]
        exact = (q.double().transpose(1, 2)[:, :, rows] @ k.double().transpose(1, 2).transpose(2, 3)) / 8
        exact = (exact + bias.double()[:, :, rows]).softmax(-1) @ v.double().transpose(1, 2)
        for name, function in (("SDPA", sdpa), ("alibi", ours)):
            error = function().transpose(1, 2)[:, :, rows] - exact
            print(f"  error of 512 rows, {name}: largest {error.abs().max():.2e}, root mean square {error.square().mean().sqrt():.2e}")


def pages(keys):
    """Decoding over a cache in pages against one in one piece, and against alibi.KvCache; all visit every key."""
    batch, heads, rows = 4, 8, 256
    torch.manual_seed(0)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for kv_heads, head_dim, queries in ((8, 64, 1), (8, 128, 1), (2, 128, 1), (8, 64, 4), (8, 64, 64)):
            count = batch * keys // rows
            k, v = (torch.randn(count, rows, kv_heads, head_dim, dtype=dtype) for _ in range(2))
            q = torch.randn(batch, queries, heads, head_dim, dtype=dtype)
            table = torch.randperm(count, dtype=torch.int32).reshape(batch, -1)
            whole = [x[table.long()].flatten(1, 2).contiguous() for x in (k, v)]
            cache = alibi.KvCache(batch, kv_heads, head_dim, dtype=str(dtype).removeprefix("torch."))
            cache.append(*whole)
            given = {"cache_seqlens": keys, "causal": True, "alibi_slopes": torch.tensor(alibi.slopes(heads))}
            ways = {
                "pages": lambda: alibi.flash_attn_with_kvcache(q, k, v, block_table=table, **given),
                "one piece": lambda: alibi.flash_attn_with_kvcache(q, *whole, **given),
                "KvCache": lambda: alibi.attention_decode(q, cache, alibi_slopes=given["alibi_slopes"]),
            }
            times = {name: [] for name in ways}
            for _ in range(9):  # alternately, so that other work on the machine affects all
                for name, way in ways.items():
                    times[name].append(best(way, 3, 1))
            found = {name: min(seconds) for name, seconds in times.items()}
            print(f"{dtype} kv_heads {kv_heads} head_dim {head_dim} queries {queries}: "
                  + ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in found.items())
                  + f"; pages / one piece {found['pages'] / found['one piece']:.3f}")  # fmt: skip


def memory(name):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


def model(name):
    import transformers

    longest, width, heads = 8192, 512, 8
    if name == "mpt":
        config = transformers.MptConfig(d_model=width, n_heads=heads, n_layers=4, max_seq_len=longest, vocab_size=1000)
        made = transformers.MptForCausalLM._from_config(config, attn_implementation="eager")
    elif name == "bloom":
        config = transformers.BloomConfig(hidden_size=width, n_head=heads, n_layer=4, vocab_size=1000)
        made = transformers.BloomForCausalLM._from_config(config, attn_implementation="eager")
    else:
        config = transformers.FalconConfig(hidden_size=width, num_attention_heads=heads, num_hidden_layers=4, vocab_size=1000,
                                           alibi=True, multi_query=False, new_decoder_architecture=False)  # fmt: skip
        made = transformers.FalconForCausalLM._from_config(config, attn_implementation="sdpa")
    made.eval()
    ids = torch.randint(1000, (1, longest), generator=torch.Generator().manual_seed(0))

    def prefill(length):
        with torch.no_grad():
            made(ids[:, :length])

    found = {}
    for kind in ("stock", "patched"):
        if kind == "patched":
            alibi.transformers.patch(made, tolerance=2**-24)
        seconds = best(lambda: prefill(4096), 1, 2)
        gc.collect()
        before = memory("VmRSS")
        with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
            reset.write("5")
        prefill(longest)
        found[kind] = seconds, memory("VmHWM") - before, memory("VmHWM")
    (stock, stock_mb, stock_all), (ours, ours_mb, ours_all) = found["stock"], found["patched"]
    print(f"{name}: prefill at 4096 {1e3 * stock:.0f} ms and {1e3 * ours:.0f} ms: {stock / ours:.1f} times; at {longest} the peak "
          f"is {stock_mb:.0f} MB and {ours_mb:.0f} MB above what there was (of the process {stock_all:.0f} and {ours_all:.0f}): "
          f"{stock_mb / ours_mb:.1f} times")  # fmt: skip


if sys.argv[1] == "overhead":
    overhead()
elif sys.argv[1] == "operator":
    operator(int(sys.argv[2]))
elif sys.argv[1] == "pages":
    pages(int(sys.argv[2]))
else:
    model(sys.argv[2])
