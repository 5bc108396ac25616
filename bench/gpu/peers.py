"""Times other systems' ALiBi attention beside alibi's on one GPU, alternately, and prints ratios.

    python3 bench/gpu/peers.py --library build-gpu/tests/gpu/libalibi_gpu.so --json peers.json

Causal, bfloat16, N(0, 1), heads * head_dim = 2048, batches of at least --tokens tokens. Every way is compared with
float64 on a small shape before it is timed, and what is missing is reported with the reason. See bench/gpu/README.md.
"""

import argparse
import ctypes
import importlib
import inspect
import json
import math
import pathlib
import statistics
import sys
import time
import warnings

try:
    import torch
except ImportError as error:
    print(f"python3 has no PyTorch: {error}")
    sys.exit(77)  # scripts/gpu-check: this step cannot run here

TOLERANCE = 2.0**-11
LAST_ROWS = -(2**63)


class Left(Exception):
    """Why a way is left out."""


def slopes_of(heads):
    """The published slopes for a power of two of heads."""
    return [2 ** (-8 * (i + 1) / heads) for i in range(heads)]


# --- alibi, through its C interface

class CTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("shape", ctypes.c_int64 * 4),
                ("strides", ctypes.c_int64 * 4)]


class COptions(ctypes.Structure):
    """alibi_attention_options of include/alibi/c.h; tests/gpu/ holds it to that."""

    _fields_ = [("size", ctypes.c_size_t), ("alibi_slopes", ctypes.c_void_p), ("alibi_slopes_count", ctypes.c_size_t),
                ("alibi_slopes_after", ctypes.c_void_p), ("alibi_slopes_after_count", ctypes.c_size_t),
                ("buckets", ctypes.c_void_p), ("num_buckets", ctypes.c_int64), ("max_distance", ctypes.c_int64),
                ("query_offset", ctypes.c_int64), ("sliding_window", ctypes.c_int64), ("cu_seqlens_q", ctypes.c_void_p),
                ("cu_seqlens_q_count", ctypes.c_size_t), ("cu_seqlens_k", ctypes.c_void_p),
                ("cu_seqlens_k_count", ctypes.c_size_t), ("dropout_seed", ctypes.c_uint64), ("dropout_p", ctypes.c_float),
                ("softmax_scale", ctypes.c_float), ("tolerance", ctypes.c_float), ("bidirectional", ctypes.c_int32),
                ("device", ctypes.c_int32), ("stream", ctypes.c_void_p), ("sliding_window_after", ctypes.c_int64),
                ("softcap", ctypes.c_float), ("reserved", ctypes.c_int32), ("block_table", ctypes.c_void_p),
                ("block_table_pages", ctypes.c_int64), ("seqused_k", ctypes.c_void_p), ("seqused_k_count", ctypes.c_size_t),
                ("leftpad_k", ctypes.c_void_p), ("leftpad_k_count", ctypes.c_size_t),
                ("sinks", ctypes.c_void_p), ("sinks_count", ctypes.c_size_t),
                ("log_decay", ctypes.c_void_p), ("log_decay_count", ctypes.c_size_t)]


class Alibi:
    dtypes = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.alibi_last_error.restype = ctypes.c_char_p
        self.state = ctypes.c_void_p()
        self.check(self.library.alibi_attention_state_create(ctypes.byref(self.state)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.library.alibi_last_error().decode())

    def view(self, tensor):
        assert tensor.is_cuda and tensor.dim() == 4
        return ctypes.byref(CTensor(tensor.data_ptr(), self.dtypes[tensor.dtype], (ctypes.c_int64 * 4)(*tensor.shape),
                                    (ctypes.c_int64 * 4)(*tensor.stride())))

    def options(self, heads, tolerance):
        slopes = (ctypes.c_float * heads)(*slopes_of(heads))
        options = COptions(size=ctypes.sizeof(COptions), alibi_slopes=ctypes.addressof(slopes), alibi_slopes_count=heads,
                           query_offset=LAST_ROWS, tolerance=tolerance, device=1,
                           stream=torch.cuda.current_stream().cuda_stream)
        options.kept = slopes
        return options

    def way(self, tolerance):
        def prepare(inputs):
            q, k, v, dout = inputs
            out, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
            options = self.options(q.shape[2], tolerance)

            def forward():
                self.check(self.library.alibi_attention(self.view(q), self.view(k), self.view(v), ctypes.byref(options),
                                                        self.view(out), None))
                return out

            def both():
                self.check(self.library.alibi_attention(self.view(q), self.view(k), self.view(v), ctypes.byref(options),
                                                        self.view(out), self.state))
                self.check(self.library.alibi_attention_backward(
                    self.view(dout), self.view(q), self.view(k), self.view(v), self.view(out), self.state,
                    ctypes.byref(options), self.view(dq), self.view(dk), self.view(dv), None, None, None, None))
                return out, dq, dk, dv

            return forward, both

        return prepare

    def decode(self, tolerance):
        """One query for each sequence over a cache on the GPU."""
        def prepare(q, k, v):
            cache, out = ctypes.c_void_p(), torch.empty_like(q)
            batch, _, heads, head_dim = k.shape
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.check(self.library.alibi_kv_cache_create_on(*map(ctypes.c_int64, (batch, heads, head_dim)), 1, 1, stream,
                                                             ctypes.byref(cache)))
            self.check(self.library.alibi_kv_cache_append(cache, self.view(k), self.view(v)))
            options, views = self.options(heads, tolerance), (self.view(q), self.view(out))

            def run():
                self.check(self.library.alibi_attention_decode(views[0], cache, ctypes.byref(options), views[1], None))
                return out

            return run, lambda: self.library.alibi_kv_cache_destroy(cache)

        return prepare

    def visited(self, inputs, tolerance):
        q, k, v, _ = inputs
        out = torch.empty_like(q)
        self.check(self.library.alibi_attention(self.view(q), self.view(k), self.view(v),
                                                ctypes.byref(self.options(q.shape[2], tolerance)),
                                                self.view(out), self.state))
        visited, total = ctypes.c_int64(), ctypes.c_int64()
        self.check(self.library.alibi_attention_state_blocks(self.state, ctypes.byref(visited), ctypes.byref(total)))
        return visited.value / max(total.value, 1)


# --- the others; each way(inputs) gives (forward, both), both None where there is no backward pass

def by_autograd(function, inputs, head_first=False):
    """A function of q, k, v (with gradients) as the two calls that are timed."""
    q, k, v, dout = inputs
    if head_first:
        q, k, v, dout = (tensor.transpose(1, 2) for tensor in inputs)
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]

    def back(tensor):
        return tensor.transpose(1, 2) if head_first else tensor

    def forward():
        with torch.no_grad():
            return back(function(q, k, v))

    def both():
        out = function(*leaves)
        gradients = torch.autograd.grad(out, leaves, dout)
        return tuple(back(tensor) for tensor in (out.detach(), *gradients))

    return forward, both


def flash_attention(deterministic):
    """The package with its PyTorch extension."""
    try:
        function = importlib.import_module("flash_attn").flash_attn_func
    except Exception as error:  # an extension may fail in any way
        raise Left(f"flash_attn cannot be imported: {error}") from error

    def prepare(inputs):
        slopes = torch.tensor(slopes_of(inputs[0].shape[2]), device="cuda")
        return by_autograd(lambda q, k, v: function(q, k, v, causal=True, alibi_slopes=slopes,
                                                    deterministic=deterministic), inputs)

    return prepare


def flash_attention_library(path, deterministic):
    """What bench/gpu/flash_attention/build makes."""
    if path is None:
        raise Left("no --flash-attention LIBRARY (bench/gpu/flash_attention/build makes one)")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Left(str(error)) from error

    def prepare(inputs):
        q, k, v, dout = inputs
        batch, length, heads, head_dim = q.shape
        slopes = torch.tensor(slopes_of(heads), device="cuda")
        out, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
        lse = torch.empty(batch, heads, length, device="cuda")
        rounded = library.fa2_rounded(length)
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        splits = -(-processors // (batch * heads)) if deterministic else 0
        sums = torch.empty(batch, heads, rounded, device="cuda")
        dq_sums = torch.zeros(max(splits, 1), batch, rounded, heads, head_dim, device="cuda")

        def pointers(*tensors):
            return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]

        def check(status):
            if status != 0:
                raise RuntimeError(f"FlashAttention-2 gave {status}")

        def stream():
            return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def forward():
            check(library.fa2_forward(*pointers(q, k, v, out, lse, slopes), batch, length, heads, head_dim, stream()))
            return out

        def both():
            forward()
            if deterministic:
                dq_sums.zero_()  # as its own package does for each call
            check(library.fa2_backward(*pointers(dout, q, k, v, out, lse, slopes, dq, dk, dv, sums, dq_sums), splits,
                                       batch, length, heads, head_dim, stream()))
            return out, dq, dk, dv

        return forward, both

    return prepare


def flash_attention_decode(path):
    """Its kernels for a cache, with as many splits as its package chooses (num_splits_heuristic)."""
    if path is None:
        raise Left("no --flash-attention LIBRARY")
    library = ctypes.CDLL(str(path))

    def splits_of(rows, blocks):
        processors = 2 * torch.cuda.get_device_properties(0).multi_processor_count
        if rows >= 0.8 * processors:
            return 1
        choices = [s for s in range(1, min(128, processors, blocks) + 1)
                   if s == 1 or -(-blocks // s) != -(-blocks // (s - 1))]
        efficiency = {s: rows * s / processors / math.ceil(rows * s / processors) for s in choices}
        return next(s for s in choices if efficiency[s] >= 0.85 * max(efficiency.values()))

    def prepare(q, k, v):
        batch, length, heads, head_dim = k.shape
        splits = splits_of(batch * heads, -(-length // (256 if head_dim <= 64 else 128)))
        slopes, out = torch.tensor(slopes_of(heads), device="cuda"), torch.empty_like(q)
        lse, lse_sums, sums = (torch.empty(shape, device="cuda") for shape in (
            (batch, heads), (splits, batch, heads), (splits, batch, heads, head_dim)))
        first = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (q, k, v, out, lse, slopes)]
        last = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (sums, lse_sums)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def run():
            status = library.fa2_decode(*first, batch, length, heads, head_dim, splits, *last, stream)
            if status != 0:
                raise RuntimeError(f"FlashAttention-2 gave {status}")
            return out

        run.kept = (slopes, lse, lse_sums, sums)
        return run, None

    return prepare


def flex_decode():
    module = importlib.import_module("torch.nn.attention.flex_attention")
    compiled = torch.compile(module.flex_attention, dynamic=False)

    def prepare(q, k, v):
        slopes = torch.tensor(slopes_of(k.shape[2]), device="cuda")
        last = k.shape[1] - 1
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))

        def score(value, _, head, i, j):
            return value - slopes[head] * (last - j)

        return lambda: compiled(q, k, v, score_mod=score).transpose(1, 2), None

    return prepare


def sdpa_decode(q, k, v):
    slopes = torch.tensor(slopes_of(k.shape[2]), device="cuda")
    distance = torch.arange(k.shape[1] - 1, -1, -1, device="cuda").float()
    bias = (-slopes[:, None] * distance)[None, :, None].to(q.dtype)
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, attn_mask=bias).transpose(1, 2), None


def decode_ways(options, alibi):
    return {
        "alibi, tolerance 0": lambda: alibi.decode(0.0),
        "alibi, 2^-11": lambda: alibi.decode(TOLERANCE),
        "FlashAttention-2, carried": lambda: flash_attention_decode(options.flash_attention),
        "FlexAttention": flex_decode,
        "PyTorch SDPA, bias in memory": lambda: sdpa_decode,
    }


def flex_attention(reach):
    """reach(inputs) gives for each head how far it sees; None: all."""
    try:
        module = importlib.import_module("torch.nn.attention.flex_attention")
    except ImportError as error:
        raise Left(f"PyTorch {torch.__version__} has no FlexAttention") from error
    for limit in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):  # each shape is compiled again; beyond the limit it is not compiled
            setattr(torch._dynamo.config, limit, 1024)
    warnings.filterwarnings("ignore", "_compile flag on create_block_mask")
    compiled = torch.compile(module.flex_attention, dynamic=False)

    def prepare(inputs):
        batch, length, heads, _ = inputs[0].shape
        slopes = torch.tensor(slopes_of(heads), device="cuda")
        far = torch.tensor(reach(inputs) if reach else [length] * heads, device="cuda")

        def score(value, _, head, i, j):
            return value - slopes[head] * (i - j)

        def seen(_, head, i, j):
            return (i >= j) & (i - j < far[head])

        mask = module.create_block_mask(seen, None, heads if reach else None, length, length, device="cuda",
                                        _compile=True)
        return by_autograd(lambda q, k, v: compiled(q, k, v, score_mod=score, block_mask=mask), inputs, head_first=True)

    return prepare


def proven_windows(inputs):
    """Beyond these a key's weight is below TOLERANCE of the row's sum, whatever the keys: by the largest norms."""
    q, k = inputs[0].float(), inputs[1].float()
    batch, length, heads, head_dim = q.shape
    most = (q.norm(dim=-1).amax(dim=(0, 1)) * k.norm(dim=-1).amax(dim=(0, 1)) / math.sqrt(head_dim)).tolist()
    return [min(length, math.ceil((2 * u + math.log(length) - math.log(TOLERANCE)) / slope))
            for u, slope in zip(most, slopes_of(heads))]


def usual_windows(inputs):
    """By slope alone, as a user would choose them: the error is looked at, nothing is proven."""
    length, heads = inputs[0].shape[1:3]
    return [min(length, math.ceil((-math.log(TOLERANCE) + 6) / slope)) for slope in slopes_of(heads)]


def flash_attention_windows(path):
    """FlashAttention-2 with a window for each head that is proven, a call per head: what its users can do today."""
    try:
        function = importlib.import_module("flash_attn").flash_attn_func
    except Exception as error:
        raise Left("flash_attn cannot be imported: a window for each head needs its whole extension") from error

    def prepare(inputs):
        slopes = torch.tensor(slopes_of(inputs[0].shape[2]), device="cuda")
        windows = proven_windows(inputs)

        def run(q, k, v):
            parts = [function(q[:, :, h:h + 1], k[:, :, h:h + 1], v[:, :, h:h + 1], causal=True,
                              alibi_slopes=slopes[h:h + 1], window_size=(windows[h], 0)) for h in range(len(windows))]
            return torch.cat(parts, dim=2)

        return by_autograd(run, inputs)

    return prepare


def sdpa(inputs):
    """PyTorch's attention with the bias as a matrix in memory, which is made once and not timed. It chooses among its
    backends; the one without matrices in memory that takes such a bias is the memory-efficient one."""
    _, length, heads, _ = inputs[0].shape
    if heads * length * length * 2 > 6e9:
        raise Left("the bias would take more than 6 GB")
    position = torch.arange(length, device="cuda")
    distance = (position[:, None] - position[None, :]).float()
    bias = torch.empty(1, heads, length, length, device="cuda", dtype=inputs[0].dtype)
    for head, slope in enumerate(slopes_of(heads)):
        bias[0, head] = (-slope * distance).masked_fill(distance < 0, -math.inf)
    attend = torch.nn.functional.scaled_dot_product_attention
    return by_autograd(lambda q, k, v: attend(q, k, v, attn_mask=bias), inputs, head_first=True)


def cudnn_alibi():
    """cuDNN's alibi_mask, by its Python front end; forward alone."""
    try:
        cudnn = importlib.import_module("cudnn")
    except Exception as error:
        raise Left(f"cuDNN's front end (nvidia-cudnn-frontend) cannot be imported: {error}") from error

    def prepare(inputs):
        q, k, v = (tensor.transpose(1, 2) for tensor in inputs[:3])  # [batch, heads, length, head_dim], by strides
        out = torch.empty_like(inputs[0]).transpose(1, 2)
        handle = cudnn.create_handle()
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph = cudnn.pygraph(io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
                              compute_data_type=cudnn.data_type.FLOAT, handle=handle)
        tensors = [graph.tensor_like(tensor) for tensor in (q, k, v)]
        result, _ = graph.sdpa(name="sdpa", q=tensors[0], k=tensors[1], v=tensors[2], is_inference=True,
                               attn_scale=1 / math.sqrt(q.shape[-1]), use_alibi_mask=True, use_causal_mask=True)
        result.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride()))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(max(graph.get_workspace_size(), 1), device="cuda", dtype=torch.uint8)

        def forward():
            graph.execute({tensors[0]: q, tensors[1]: k, tensors[2]: v, result: out}, workspace, handle=handle)
            return out.transpose(1, 2)

        return forward, None

    return prepare


def forgetting_transformer(path):
    """Its kernel with log_fgate = -slope, which is ALiBi, and its pruning where the source has it."""
    if path is None:
        raise Left("no --forgetting-transformer FOLDER (its repository's src folder)")
    sys.path.insert(0, str(path))
    try:
        module = importlib.import_module("forgetting_transformer.ops.forgetting_attention")
    except Exception as error:
        raise Left(f"the Forgetting Transformer's kernel cannot be imported: {error}") from error
    parameters = inspect.signature(module.forgetting_attention).parameters
    pruned = "adaptive_threshold" in parameters

    def prepare(inputs):
        batch, length, heads, head_dim = inputs[0].shape
        gate = -torch.tensor(slopes_of(heads), device="cuda").expand(batch, length, heads).contiguous()
        options = {}
        if pruned:
            q, k = inputs[0].float(), inputs[1].float()
            most = (q.norm(dim=-1).amax() * k.norm(dim=-1).amax() / math.sqrt(head_dim)).item()
            options["adaptive_threshold"] = -(2 * most + math.log(length)) + math.log(TOLERANCE)
        return by_autograd(lambda q, k, v: module.forgetting_attention(q, k, v, gate, **options), inputs)

    prepare.remark = "pruned, at the same tolerance" if pruned else "this source has no pruning"
    return prepare


# --- the measurement

def inputs_of(batch, length, heads, head_dim, seed=1):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shape = (batch, length, heads, head_dim)
    return [torch.randn(shape, generator=generator, device="cuda").bfloat16() for _ in range(4)]


def float64(inputs):
    """out, dq, dk, dv by the formula, with relative distances."""
    q, k, v = (tensor.double().transpose(1, 2).requires_grad_() for tensor in inputs[:3])
    length, heads = q.shape[2], q.shape[1]
    position = torch.arange(length, device="cuda")
    distance = (position[:, None] - position[None, :]).double()
    bias = -torch.tensor(slopes_of(heads), device="cuda").double()[:, None, None] * distance
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias.masked_fill(distance < 0, -math.inf)
    out = torch.softmax(scores, dim=-1) @ v
    gradients = torch.autograd.grad(out, (q, k, v), inputs[3].double().transpose(1, 2))
    return [tensor.detach().transpose(1, 2) for tensor in (out, *gradients)]


def errors_of(prepare, head_dim, length=768, heads=4):
    """Largest errors relative to the largest value, of out and, where there are any, of dq, dk, dv."""
    inputs = inputs_of(2, length, heads, head_dim)
    expected = float64(inputs)
    forward, both = prepare(inputs)
    found = [forward()] if both is None else list(both())
    torch.cuda.synchronize()
    result = []
    for got, wanted in zip(found, expected):
        error = ((got.double() - wanted).abs().max() / wanted.abs().max()).item()
        result.append(error)
        if not error <= 0.02:
            raise Left(f"wrong: errors of out, dq, dk, dv against float64 are {result}")
    return result


def time_in_turns(works, seconds):
    """Milliseconds by the GPU's clock: name -> median. works: name -> function."""
    for work in works.values():
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    runs = {name: [] for name in works}
    begin = time.monotonic()
    while len(next(iter(runs.values()))) < 5 or (time.monotonic() - begin < seconds * len(works)
                                                 and len(next(iter(runs.values()))) < 200):
        for name, work in works.items():
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            work()
            last.record()
            last.synchronize()
            runs[name].append(first.elapsed_time(last))
    return {name: statistics.median(values) for name, values in runs.items()}


def reason(error):
    return f"{type(error).__name__}: {error}".splitlines()[0][:300] if not isinstance(error, Left) else str(error)


def all_ways(options, alibi):
    """name -> how the way is made; making it may throw."""
    return {
        "alibi, tolerance 0": lambda: alibi.way(0.0),
        "alibi, 2^-11": lambda: alibi.way(TOLERANCE),
        "FlashAttention-2": lambda: flash_attention(False),
        "FlashAttention-2, deterministic": lambda: flash_attention(True),
        "FlashAttention-2, carried": lambda: flash_attention_library(options.flash_attention, False),
        "FlashAttention-2, carried, deterministic": lambda: flash_attention_library(options.flash_attention, True),
        "FlashAttention-2, proven windows": lambda: flash_attention_windows(options.flash_attention),
        "FlexAttention": lambda: flex_attention(None),
        "FlexAttention, proven windows": lambda: flex_attention(proven_windows),
        "PyTorch SDPA, bias in memory": lambda: sdpa,
        "cuDNN alibi_mask": cudnn_alibi,
        "Forgetting Transformer": lambda: forgetting_transformer(options.forgetting_transformer),
    } | ({"FlexAttention, usual windows": lambda: flex_attention(usual_windows)} if options.all else {})


def measure_decoding(options, alibi, report, leave_out, save):
    """One query for each sequence over caches of these lengths."""
    for length in map(int, options.decode_lengths.split(",")):
        for head_dim in map(int, options.head_dims.split(",")):
            heads, batch = 2048 // head_dim, max(1, 16384 // length)
            k, v = (torch.empty(batch, length, heads, head_dim, device="cuda", dtype=torch.bfloat16).normal_()
                    for _ in range(2))
            q = torch.randn(batch, 1, heads, head_dim, device="cuda").bfloat16()
            works, ends = {}, []
            for name, make in decode_ways(options, alibi).items():
                try:
                    work, end = make()(q, k, v)
                    found = work().float().clone()
                    torch.cuda.synchronize()
                    ends += [end] if end else []
                    if name == "alibi, tolerance 0":
                        wanted = decoded_in_float64(q, k, v)
                    error = ((found - wanted).abs().max() / wanted.abs().max()).item()
                    if not error <= 0.02:
                        raise Left(f"wrong: the error against float64 is {error:.2g}")
                    works[name] = work
                except Exception as error:
                    leave_out(f"{name}, decoding, head_dim {head_dim}, length {length}", error)
            times = time_in_turns(works, options.seconds)
            bytes_read = 2 * k.numel() * k.element_size()
            print(f"\nhead_dim {head_dim}, {length} cached keys, batch {batch}, heads {heads}, decoding")
            for name, ms in times.items():
                rate = bytes_read / ms * 1e-6
                print(f"  {name:42} {ms:9.4f} ms {rate:8.0f} GB/s  {ms / times.get('alibi, 2^-11', math.nan):6.2f} times "
                      "alibi's at 2^-11", flush=True)
                report["points"].append({"way": name, "pass": "decode", "head_dim": head_dim, "length": length,
                                         "batch": batch, "heads": heads, "ms": ms, "gbps": rate})
            for end in ends:
                end()
            del k, v, works
            torch.cuda.empty_cache()
            save()


def decoded_in_float64(q, k, v):
    slopes = torch.tensor(slopes_of(k.shape[2]), device="cuda").double()
    distance = torch.arange(k.shape[1] - 1, -1, -1, device="cuda").double()
    result = []
    for head in range(k.shape[2]):  # one at a time, to save memory
        scores = (k[:, :, head].double() @ q[:, 0, head].double()[:, :, None])[..., 0] / math.sqrt(q.shape[-1])
        weights = torch.softmax(scores - slopes[head] * distance, dim=-1)
        result.append((weights[:, None] @ v[:, :, head].double())[:, 0])
    return torch.stack(result, dim=1)[:, None].float()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="alibi's operator as a shared library")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--lengths", default="8192,2048,16384,65536")
    parser.add_argument("--decode-lengths", default="4096,32768,262144,1048576")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each way at each shape")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further shape is begun")
    parser.add_argument("--all", action="store_true", help="windows that nothing proves, too")
    parser.add_argument("--flash-attention", type=pathlib.Path, help="libflash_attention.so")
    parser.add_argument("--forgetting-transformer", type=pathlib.Path, help="folder of its Python package")
    options = parser.parse_args()
    start = time.monotonic()
    if not torch.cuda.is_available():
        raise SystemExit("peers.py: PyTorch sees no GPU")
    alibi = Alibi(options.library)
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "left_out": {}, "errors": {},
              "points": []}

    def save():  # after every step: the process may be stopped at any time
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")

    def leave_out(name, error):
        report["left_out"][name] = reason(error)
        print(f"left out: {name}: {reason(error)}", flush=True)
        if name.startswith("alibi"):
            report["failed"] = True

    ways = {}
    for name, make in all_ways(options, alibi).items():
        try:
            way = make()
            report["errors"][name] = {d: errors_of(way, d) for d in map(int, options.head_dims.split(","))}
        except Exception as error:  # whatever a peer throws is its reason
            torch.cuda.synchronize()
            leave_out(name, error)
            continue
        ways[name] = way
        print(f"errors of out, dq, dk, dv against float64: {name}: "
              + "; ".join(f"d {d}: " + ", ".join(f"{e:.1e}" for e in all_of)
                          for d, all_of in report["errors"][name].items())
              + (f" ({way.remark})" if hasattr(way, "remark") else ""), flush=True)
        save()
    for length in map(int, options.lengths.split(",")):
        for head_dim in map(int, options.head_dims.split(",")):
            if time.monotonic() - start > options.budget:
                print(f"head_dim {head_dim}, length {length}: left out, the time is up")
                continue
            heads, batch = 2048 // head_dim, -(-options.tokens // length)
            inputs = inputs_of(batch, length, heads, head_dim)
            works = {"forward": {}, "forward + backward": {}}
            for name, way in ways.items():
                try:
                    forward, both = way(inputs)
                    forward()
                    works["forward"][name] = forward
                    if both is not None:
                        both()
                        works["forward + backward"][name] = both
                    torch.cuda.synchronize()
                except Exception as error:
                    leave_out(f"{name}, head_dim {head_dim}, length {length}", error)
            visited = alibi.visited(inputs, TOLERANCE)
            flops = 4 * length * (length + 1) / 2 * batch * heads * head_dim
            for which, some in works.items():
                if not some:
                    continue
                times = time_in_turns(some, options.seconds)
                ours = times.get("alibi, 2^-11")
                print(f"\nhead_dim {head_dim}, length {length}, batch {batch}, heads {heads}, {which}; "
                      f"visited {visited:.3f}")
                for name, ms in times.items():
                    rate = flops * (1 if which == "forward" else 3.5) / ms * 1e-9
                    ratio = f"{ms / ours:6.2f}" if ours else "     ?"
                    print(f"  {name:42} {ms:9.3f} ms {rate:8.1f} TFLOP/s  {ratio} times alibi's at 2^-11", flush=True)
                    report["points"].append({"way": name, "pass": which, "head_dim": head_dim, "length": length,
                                             "batch": batch, "heads": heads, "ms": ms, "tflops": rate,
                                             "visited": visited})
            del inputs, works
            torch.cuda.empty_cache()
            save()
    if time.monotonic() - start < options.budget:
        measure_decoding(options, alibi, report, leave_out, save)
    return 1 if report.get("failed") else 0


if __name__ == "__main__":
    sys.exit(main())
