"""Trains the same model in PyTorch beside `alibi bench train`, and prints ratios.

    python bench/peers/train.py --alibi build/alibi --preset small --lengths 1024,8192 --precision f32,bf16

The ALiBi model of the preset (same widths, heads, GELU, no biases, layer norm, tied embedding) on the same tokens, with
gradient clipping and AdamW. Every way of computing it runs in a process of its own; all of them and alibi take turns,
round after round, so that a slow phase of the machine hits all alike.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = ("eager, sdpa", "eager, naive", "compiled, sdpa", "compiled, naive", "compiled, flex")


def slopes(heads):
    """The published slopes: those of the largest power of two, then every other one of twice as many heads."""
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return first + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]


def resident(field):
    """VmRSS: resident bytes now; VmHWM: the most since the last reset."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    return 0


def make_attention(torch, how, model, length, dtype):
    """A function of q, k, v [batch, heads, length, head_dim]. The mask is made once and not timed."""
    if how == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        table = torch.tensor(slopes(model["heads"]))
        blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cpu")

        def flex(q, k, v):
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()  # on the CPU it refuses views of one tensor
            return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s - table[h] * (i - j), block_mask=blocks)

        return flex
    position = torch.arange(length, dtype=torch.float32)
    distance = position[:, None] - position[None, :]
    mask = torch.empty(1, model["heads"], length, length, dtype=dtype)
    for head, slope in enumerate(slopes(model["heads"])):
        mask[0, head] = (-slope * distance).masked_fill(distance < 0, -math.inf)
    if how == "sdpa":
        return lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def naive(q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype) @ v

    return naive


def make_model(torch, model, attention):
    from torch import nn

    width, heads, layers = model["d_model"], model["heads"], model["layers"]

    def linear(outputs, inputs, scale):
        layer = nn.Linear(inputs, outputs, bias=False)
        nn.init.normal_(layer.weight, std=scale / math.sqrt(3 * inputs))
        return layer

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
            self.qkv, self.out = linear(3 * width, width, 1), linear(width, width, (2 * layers) ** -0.5)
            self.up, self.down = linear(4 * width, width, 1), linear(width, 4 * width, (2 * layers) ** -0.5)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            x = x + self.out(attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(model["vocab_size"], width)
            nn.init.normal_(self.embedding.weight, std=width ** -0.5)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width, bias=False)

        def forward(self, ids, targets):
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x)
            logits = nn.functional.linear(self.norm(x), self.embedding.weight)
            return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return Model()


def run_way(task):
    """In a process of its own: seconds of each step, memory, first loss."""
    import torch

    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    model, length = task["model"], task["length"]
    before = resident("VmRSS")
    rounds = task["precision"] == "bf16"
    mode, how = task["way"].split(", ")
    attention = make_attention(torch, how, model, length, torch.bfloat16 if rounds else torch.float32)
    net = make_model(torch, model, attention)
    parameters = sum(p.numel() for p in net.parameters())
    if parameters != model["parameters"]:
        raise RuntimeError(f"{parameters} parameters here, {model['parameters']} there")
    matrices = [p for name, p in net.named_parameters() if name.startswith("blocks.") and p.dim() == 2]
    others = [p for name, p in net.named_parameters() if not (name.startswith("blocks.") and p.dim() == 2)]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-7, betas=(0.9, 0.98), eps=1e-8, fused=True)
    # Token i is floor(vocab_size * frac(i * 0.618...)), as in alibi bench train.
    fraction = torch.arange(task["tokens"], dtype=torch.int64) * 2654435769 % 2 ** 32
    targets = fraction * model["vocab_size"] >> 32
    ids = torch.cat([torch.tensor([model["vocab_size"] - 1]), targets[:-1]])
    ids, targets = ids.view(-1, length), targets.view(-1, length)
    forward = torch.compile(net, dynamic=False) if mode == "compiled" else net

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounds):
            loss = forward(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    loss = step()  # compiles, makes the optimizer's memory
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # not what the compiler needed
    except OSError:
        pass
    seconds = []
    while not seconds or (sum(seconds) < task["seconds"] and seconds[0] < task["seconds"]):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "resident_before": before, "peak_resident": resident("VmHWM"), "loss": loss}


def run_peer(task):
    """What run_way() gives, from another process; or {"note": why there is nothing}."""
    try:
        done = subprocess.run([sys.executable, __file__, "--task", json.dumps(task)], capture_output=True, text=True,
                              timeout=task["longest"])
    except subprocess.TimeoutExpired:
        return {"note": f"left out: took more than {task['longest']:.0f} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = [line for line in done.stderr.splitlines() if "Error" in line] or done.stderr.splitlines()[-1:]
    reason = lines[-1].strip().split("Error: ")[-1] if lines else f"exit code {done.returncode}"
    return {"note": f"failed: {reason[:120]}"}


def run_alibi(options, precision, length):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "alibi.json"
        command = [options.alibi, "bench", "train", "--presets", options.preset, "--lengths", length,
                   "--precision", precision, "--batch-tokens", options.batch_tokens, "--threads", options.threads,
                   "--seconds", options.seconds, "--longest", options.longest, "--json", file]
        if options.micro_batch_tokens:
            command += ["--micro-batch-tokens", options.micro_batch_tokens]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        results = json.loads(file.read_text())
    point = results["points"][0]
    if "seconds" not in point:
        raise SystemExit(f"train.py: alibi left out length {length}; raise --longest or lower --batch-tokens")
    return results, point


def bytes_needed(way, model, length, tokens, precision):
    """About what the matrices of all scores take: of each layer where they are kept, else the mask alone."""
    mask = model["heads"] * length * length * (2 if precision == "bf16" else 4)
    if "flex" in way:
        return 0
    return 2 * mask if "sdpa" in way else mask * (1 + 2 * model["layers"] * tokens // length)


def compare(options, precision, length):
    ours, peers, model = [], {way: [] for way in options.ways}, None
    for turn in range(options.rounds):
        results, model = run_alibi(options, precision, length)
        ours.append(model)
        task = {"model": model, "precision": precision, "length": length, "tokens": model["tokens"],
                "threads": options.threads, "seconds": options.seconds, "longest": options.longest}
        for way, runs in peers.items():
            if any("note" in run for run in runs):
                continue
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if bytes_needed(way, model, length, model["tokens"], precision) > 0.6 * memory:
                runs.append({"note": "left out: the scores of all layers do not fit into memory"})
                continue
            print(f"round {turn + 1} of {options.rounds}: {way}", end="\r", file=sys.stderr)
            runs.append(run_peer(dict(task, way=way)))
    point = {"preset": options.preset, "precision": precision, "length": length, "tokens": model["tokens"],
             "cpu": results["cpu"], "isa": results["isa"], "peers": {},
             "alibi": {"seconds": statistics.median(run["seconds"] for run in ours),
                       "memory": max(run["peak_resident_bytes"] - run["resident_before_bytes"] for run in ours),
                       "loss": model["loss"]}}
    for way, runs in peers.items():
        note = next((run["note"] for run in runs if "note" in run), "")
        if not note and not abs(runs[0]["loss"] - model["loss"]) <= 0.03 * model["loss"]:
            note = f"another model: loss {runs[0]['loss']:.3f}, alibi {model['loss']:.3f}"
        point["peers"][way] = {"note": note} if note else {
            "seconds": statistics.median(statistics.median(run["seconds"]) for run in runs),
            "memory": max(run["peak_resident"] - run["resident_before"] for run in runs), "loss": runs[0]["loss"]}
    return point


def show(point):
    ours = point["alibi"]
    print(f"\n{point['preset']}, {point['precision']}, length {point['length']}, {point['tokens']} tokens a step")
    print(f"  {'alibi':<16} {point['tokens'] / ours['seconds']:>8.0f} tokens/s {ours['memory'] / 2 ** 20:>7.0f} MiB")
    for way, peer in point["peers"].items():
        if peer.get("note"):
            print(f"  {way:<16} {peer['note']}")
        else:
            print(f"  {way:<16} {point['tokens'] / peer['seconds']:>8.0f} tokens/s {peer['memory'] / 2 ** 20:>7.0f} MiB"
                  f"   alibi is {peer['seconds'] / ours['seconds']:.2f} x as fast, takes "
                  f"{ours['memory'] / peer['memory']:.2f} x the memory")
    measured = {way: peer for way, peer in point["peers"].items() if not peer.get("note")}
    for name, kind in (("best eager", "eager"), ("best", "")):
        times = [peer["seconds"] for way, peer in measured.items() if way.startswith(kind)]
        if times:
            print(f"  against the {name}: {min(times) / ours['seconds']:.2f} x as fast")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alibi", help="path of the alibi command")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--lengths", default="1024,8192")
    parser.add_argument("--precision", default="f32,bf16")
    parser.add_argument("--batch-tokens", type=int, default=8192, help="tokens of a step, whatever the length")
    parser.add_argument("--micro-batch-tokens", type=int,
                        help="tokens that alibi computes at once; PyTorch computes all [as alibi train does]")
    parser.add_argument("--ways", default="/".join(WAYS), help="of PyTorch, with / between them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="time for the steps of each way in each round")
    parser.add_argument("--longest", type=float, default=900.0, help="a process may take this long, with compilation")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(run_way(json.loads(options.task))))
        return
    if not options.alibi:
        parser.error("--alibi is required")
    options.ways = options.ways.split("/")
    unknown = [way for way in options.ways if way not in WAYS]
    if unknown:
        parser.error(f"--ways: there is no '{unknown[0]}'; choose from {', '.join(map(repr, WAYS))}")

    from importlib.metadata import version

    print(f"PyTorch {version('torch')}, {options.threads} threads; times are medians, memory is the growth of the "
          "process at the peak of a step")
    points = []
    for precision in options.precision.split(","):
        for length in map(int, options.lengths.split(",")):
            points.append(compare(options, precision, length))
            show(points[-1])
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"benchmark": "train peers", "torch": version("torch"), "threads": options.threads, "points": points},
            indent=2) + "\n")


if __name__ == "__main__":
    main()
