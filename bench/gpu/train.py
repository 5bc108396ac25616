"""Tokens per second of training a model of the size of `small` on one GPU: alibi's PyTorch operator beside others.

    python3 bench/gpu/train.py --text docs --flash-attention gpu-carry/libflash_attention.so --json train.json

6 layers of width 512 with 8 heads on bytes, bfloat16 by autocast, AdamW. All ways start from the same weights and see
the same text, so their losses after the last step can be compared. Ways take turns, and the median of a step counts.
It needs the package alibi_attention with kernels for GPUs (docs/how-to/gpu.md). See bench/gpu/README.md.
"""

import argparse
import importlib
import json
import pathlib
import statistics
import sys
import time

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peers  # noqa: E402

LAYERS, WIDTH, HEADS = 6, 512, 8


def flash_attention(path):
    """FlashAttention-2's kernels as a function of autograd."""
    import ctypes

    if path is None:
        raise peers.Left("no --flash-attention LIBRARY (bench/gpu/flash_attention/build makes one)")
    library = ctypes.CDLL(str(path))
    slopes = torch.tensor(peers.slopes_of(HEADS), device="cuda")

    def pointers(*tensors):
        return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]

    def call(function, tensors, *numbers):
        batch, length, heads, head_dim = tensors[0].shape
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        status = function(*pointers(*tensors), *numbers, batch, length, heads, head_dim, stream)
        if status != 0:
            raise RuntimeError(f"FlashAttention-2 gave {status}")

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            q, k, v = (tensor.contiguous() for tensor in (q, k, v))
            out = torch.empty_like(q)
            lse = torch.empty(q.shape[0], HEADS, q.shape[1], device="cuda")
            call(library.fa2_forward, (q, k, v, out, lse, slopes))
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx, dout):
            q, k, v, out, lse = ctx.saved_tensors
            batch, length, heads, head_dim = q.shape
            rounded = library.fa2_rounded(length)
            dq, dk, dv = (torch.empty_like(q) for _ in range(3))
            sums = torch.empty(batch, heads, rounded, device="cuda")
            dq_sums = torch.empty(batch, rounded, heads, head_dim, device="cuda")
            call(library.fa2_backward, (dout.contiguous(), q, k, v, out, lse, slopes, dq, dk, dv, sums, dq_sums), 0)
            return dq, dk, dv

    return Attention.apply


def flex_attention():
    module = importlib.import_module("torch.nn.attention.flex_attention")
    compiled = torch.compile(module.flex_attention, dynamic=False)
    slopes = torch.tensor(peers.slopes_of(HEADS), device="cuda")
    masks = {}

    def attend(q, k, v):
        length = q.shape[1]
        if length not in masks:
            masks[length] = module.create_block_mask(lambda _, head, i, j: i >= j, None, None, length, length, device="cuda")
        out = compiled(*(tensor.transpose(1, 2) for tensor in (q, k, v)),
                       score_mod=lambda score, _, head, i, j: score - slopes[head] * (i - j), block_mask=masks[length])
        return out.transpose(1, 2)

    return attend


def alibi(tolerance):
    import alibi_attention

    slopes = torch.tensor(peers.slopes_of(HEADS))
    return lambda q, k, v: alibi_attention.attention(q, k, v, alibi_slopes=slopes, tolerance=tolerance)


def no_biases():
    """PyTorch's own FlashAttention without positions: what a step costs when the bias costs nothing."""
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda *inputs: attend(*(tensor.transpose(1, 2) for tensor in inputs), is_causal=True).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).unbind(2)
        x = x + self.out(self.attend(q, k, v).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.words = nn.Embedding(256, WIDTH)
        self.blocks = nn.Sequential(*(Block(attend) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.words(ids))))


class Training:
    def __init__(self, attend, text, length, tokens):
        torch.manual_seed(1)
        self.model = Model(attend).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.text, self.length, self.tokens, self.steps, self.times = text, length, tokens, 0, []

    def step(self):
        starts = torch.randint(len(self.text) - self.length - 1, (self.tokens // self.length,),
                               generator=torch.Generator().manual_seed(self.steps)).cuda()
        ids = self.text[starts[:, None] + torch.arange(self.length + 1, device="cuda")].long()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        events[1].record()
        events[1].synchronize()
        self.steps += 1
        self.times.append(events[0].elapsed_time(events[1]))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True, help="a file, or a folder whose .md files are read")
    parser.add_argument("--lengths", default="1024,8192,32768")
    parser.add_argument("--tokens", type=int, default=65536, help="for each step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--flash-attention", type=pathlib.Path, help="libflash_attention.so")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    files = sorted(options.text.rglob("*.md")) if options.text.is_dir() else [options.text]
    text = torch.frombuffer(bytearray(b"\n".join(file.read_bytes() for file in files)), dtype=torch.uint8).cuda()
    ways = {"alibi, tolerance 0": lambda: alibi(0.0), "alibi, 2^-11": lambda: alibi(peers.TOLERANCE),
            "FlashAttention-2, carried": lambda: flash_attention(options.flash_attention),
            "FlexAttention": flex_attention, "PyTorch SDPA, no positions": no_biases}
    points = []
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {len(text)} bytes of text")
    for length in map(int, options.lengths.split(",")):
        trainings = {}
        for name, make in ways.items():
            try:
                training = Training(make(), text, length, options.tokens)
                training.step()
                trainings[name] = training
            except Exception as error:  # whatever a peer throws is its reason
                print(f"left out: {name}, length {length}: {peers.reason(error)}")
        losses, begin = {}, time.monotonic()
        for _ in range(options.steps):
            for name, training in trainings.items():
                losses[name] = training.step()
        print(f"\nlength {length}, {options.tokens} tokens a step ({time.monotonic() - begin:.1f} s)")
        for name, training in trainings.items():
            ms = statistics.median(training.times[3:])
            print(f"  {name:42} {ms:8.2f} ms {options.tokens / ms:8.0f} thousand tokens/s  loss {losses[name]:.4f}",
                  flush=True)
            points.append({"way": name, "length": length, "tokens": options.tokens, "ms": ms, "loss": losses[name]})
        if options.json:
            options.json.write_text(json.dumps(points, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
