"""The share of one process's speed that PyTorch DDP over gloo keeps, by the measure of bench/ranks.py.

    python bench/peers/ddp.py --ranks 2

Trains an ALiBi model of the same widths (bench/peers/train.py) in one process with as many threads as ranks, and in
ranks with one thread each, on one core each. The two alternate, and the best of each counts. Gradients are accumulated
over micro-batches; DDP exchanges them with the last one, while its backward pass runs.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

import train


def run_rank(task):
    """The seconds of a step of this rank."""
    import torch
    from torch import distributed

    ranks, rank, length = task["ranks"], task["rank"], task["length"]
    if ranks > 1:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{task['port']}", rank=rank, world_size=ranks)
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    rounds = task["precision"] == "bf16"
    attention = train.make_attention(torch, "sdpa", task["model"], length, torch.bfloat16 if rounds else torch.float32)
    net = train.make_model(torch, task["model"], attention)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-7, betas=(0.9, 0.98), fused=True)
    forward = torch.nn.parallel.DistributedDataParallel(net) if ranks > 1 else net
    if task["compiled"]:
        forward = torch.compile(forward, dynamic=False)
    ids = torch.randint(task["model"]["vocab_size"], (task["tokens"] // length // ranks, length))
    parts = ids.split(max(1, task["micro_batch_tokens"] // length))

    def accumulate(part):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounds):
            loss = forward(part, part)
        (loss * (len(part) / len(ids))).backward()

    def step():
        for part in parts[:-1]:
            if ranks > 1:
                with (forward._orig_mod if task["compiled"] else forward).no_sync():
                    accumulate(part)
            else:
                accumulate(part)
        accumulate(parts[-1])
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()  # compiles, and allocates
    begin = time.perf_counter()
    for _ in range(task["steps"]):
        step()
    if ranks > 1:
        distributed.barrier()
    return (time.perf_counter() - begin) / task["steps"]


def tokens_per_second(task):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [subprocess.Popen([sys.executable, __file__, "--task", json.dumps(dict(task, rank=rank, port=port))],
                                  stdout=subprocess.PIPE, text=True) for rank in range(task["ranks"])]
    seconds = []
    for process in processes:
        output = process.communicate()[0]
        if process.returncode != 0:
            raise SystemExit(f"ddp.py: a rank ended with exit code {process.returncode}")
        seconds.append(float(output.split()[-1]))
    return task["tokens"] / max(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="steps of a run")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compiled", action="store_true", help="through torch.compile")
    for name, default in (("layers", 6), ("d-model", 256), ("heads", 8), ("vocab-size", 257), ("length", 256),
                          ("batch-tokens", 16384), ("micro-batch-tokens", 4096)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(run_rank(json.loads(options.task)))
        return
    model = {name: getattr(options, name) for name in ("layers", "d_model", "heads", "vocab_size")}
    task = {"model": model, "length": options.length, "tokens": options.batch_tokens, "steps": options.steps,
            "micro_batch_tokens": options.micro_batch_tokens, "precision": options.precision,
            "compiled": options.compiled}
    kinds = {"one process": dict(task, ranks=1, threads=options.ranks), "ranks": dict(task, ranks=options.ranks, threads=1)}
    best = dict.fromkeys(kinds, 0.0)
    for _ in range(options.rounds):
        for kind, one in kinds.items():
            best[kind] = max(best[kind], tokens_per_second(one))
    for kind, speed in best.items():
        print(f"{kind:<12} {speed:10,.0f} tokens/s")
    print(f"share of one process: {best['ranks'] / best['one process']:.3f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"benchmark": "ddp", **task, "ranks": options.ranks, "tokens_per_second": best}, file, indent=2)


if __name__ == "__main__":
    main()
