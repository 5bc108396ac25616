"""Makes golden.json: the losses and gradient norms of the golden run, by PyTorch in float64.

    python tests/train/golden/make_golden.py --tests build/tests/alibi_tests

The test program writes the model before training, its batches and the options (ALIBI_EXPORT_GOLDEN); everything else is
written here once more, from the papers and PyTorch's own modules. Needs what bench/peers/requirements.txt
names.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file
from torch.nn import functional as F


def alibi_bias(heads, distance):
    """[heads, length, length]; slopes of Press et al. 2022, section 3, for a power of two of heads."""
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
    return -slopes[:, None, None] * distance


def t5_bias(table, distance, max_distance):
    """[heads, length, length] of a table [buckets, heads]: half of the buckets are exact, the others logarithmic."""
    exact = table.shape[0] // 2
    distance = distance.clamp(min=0)
    far = exact + (torch.log(distance.clamp(min=1) / exact) / math.log(max_distance / exact) * exact).long()
    bucket = torch.where(distance < exact, distance.long(), far.clamp(max=table.shape[0] - 1))
    return table[bucket].permute(2, 0, 1)


def rotated(x, theta):
    """x [batch, heads, length, head_dim]; element i and i + head_dim / 2 are a pair (Su et al. 2021)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * theta ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


def mean_loss(weights, config, ids, targets):
    heads, layers, own = config["n_heads"], config["n_layers"], config["alibi"]
    batch, length = ids.shape
    position = torch.arange(length, dtype=torch.float64)
    distance = position[:, None] - position[None, :]
    mask = torch.zeros(length, length).masked_fill(distance < 0, -math.inf)
    if own["position"] == "alibi":
        mask = mask + alibi_bias(heads, distance)
    elif own["position"] == "t5":
        mask = mask + t5_bias(weights["relative_bias.weight"], distance, own["t5_max_distance"])
    elif own["position"] != "rotary":
        raise SystemExit(f"make_golden.py: no positions called {own['position']}")

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name], eps=config["norm_eps"])

    x = F.embedding(ids, weights["wte.weight"])
    for i in range(layers):
        block = f"blocks.{i}."
        qkv = F.linear(norm(x, block + "norm_1.weight"), weights[block + "attn.Wqkv.weight"])
        q, k, v = qkv.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        if own["position"] == "rotary":
            q, k = rotated(q, own["rotary_theta"]), rotated(k, own["rotary_theta"])
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask
        attended = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + F.linear(attended, weights[block + "attn.out_proj.weight"])
        hidden = F.gelu(F.linear(norm(x, block + "norm_2.weight"), weights[block + "ffn.up_proj.weight"]))
        x = x + F.linear(hidden, weights[block + "ffn.down_proj.weight"])
    logits = F.linear(norm(x, "norm_f.weight"), weights["wte.weight"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate(options, step):
    """Linear warmup, then half a cosine down to a fraction of the peak."""
    if step < options["warmup_steps"]:
        return options["learning_rate"] * (step + 1) / options["warmup_steps"]
    progress = (step - options["warmup_steps"]) / (options["steps"] - options["warmup_steps"])
    fraction = options["final_fraction"]
    return options["learning_rate"] * (fraction + (1 - fraction) * (1 + math.cos(math.pi * progress)) / 2)


def train(folder):
    config = json.loads((folder / "config.json").read_text())
    options = json.loads((folder / "options.json").read_text())
    batches = load_file(folder / "batches.safetensors")
    weights = {name.removeprefix("transformer."): torch.nn.Parameter(tensor.double())
               for name, tensor in load_file(folder / "model.safetensors").items()}
    start = {"sum": sum(w.sum().item() for w in weights.values()),
             "sum_of_squares": sum(w.square().sum().item() for w in weights.values())}
    matrices = [w for name, w in weights.items() if "attn." in name or "ffn." in name]
    others = [w for name, w in weights.items() if not ("attn." in name or "ffn." in name)]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": options["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}],
                                  betas=(options["beta1"], options["beta2"]), eps=options["eps"])
    losses, norms = [], []
    for step in range(options["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = rate(options, step)
        optimizer.zero_grad()
        loss = mean_loss(weights, config, batches[f"ids.{step}"].long(), batches[f"targets.{step}"].long())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), options["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    clipped = sum(norm > options["clip"] for norm in norms)
    if not 0 < clipped < len(norms):
        raise SystemExit(f"make_golden.py: {clipped} of {len(norms)} gradients were clipped, expected some and not all")
    return {"weights": start, "loss": losses, "gradient_norm": norms}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", required=True, help="path of the test program")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_name("golden.json"))
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.tests, "--gtest_filter=*GoldenRun.Float32*"], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, ALIBI_EXPORT_GOLDEN=folder))
        if not any(pathlib.Path(folder).iterdir()):
            raise SystemExit(f"make_golden.py: {arguments.tests} wrote no runs; is it the test program?")
        runs = {run.name: train(run) for run in sorted(pathlib.Path(folder).iterdir())}
    arguments.out.write_text(json.dumps({"torch": torch.__version__, "runs": runs}, indent=1) + "\n")
    for name, run in runs.items():
        print(f"{name}: loss {run['loss'][0]:.4f} to {run['loss'][-1]:.4f}, "
              f"gradient norm {min(run['gradient_norm']):.3f} to {max(run['gradient_norm']):.3f}")


if __name__ == "__main__":
    main()
