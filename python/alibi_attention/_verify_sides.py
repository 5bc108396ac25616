"""The implementations that `verify` compares. Each runs in a process of its own, so that its memory is measured and its
crash is reported.

A job is a dict: "model" (a path), "texts" (str), "inputs" (a list of (ids, rows)), "prompt" (ids), "greedy" (a number of
tokens) and options. A result is a dict: "states" and "logits" by input ({point: array of rows}), and what else the side
knows. Point 0 is the stream before the first layer, 2n + 1 and 2n + 2 that after the attention and the feed-forward
network of layer n, and "final" the states after the last norm.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import multiprocessing
import os
import pathlib
import platform
import re
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from typing import Any

import numpy as np

from ._core import set_threads
from ._formulas import FAMILIES, Formulas
from ._weights import Array, Config, Folder

Job = dict[str, Any]
Found = dict[str, Any]


class SideError(Exception):
    """A side that cannot run the model; the text says why."""


def run(side: Callable[[Job], Found], job: Job, isolate: bool = True) -> Found:
    """The result of a side with "seconds" and "peak_bytes". Raises SideError."""
    if not isolate:
        return _measured(side, job)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_measured, side, job).result()
        except BrokenProcessPool:
            raise SideError("its process was ended by a crash or for lack of memory") from None


def _measured(side: Callable[[Job], Found], job: Job) -> Found:
    start = time.perf_counter()
    try:
        found = side(job)
    except Exception as error:
        raise SideError(f"{type(error).__name__}: {error}") from None
    found["seconds"] = time.perf_counter() - start
    found["peak_bytes"] = _peak_bytes()
    return found


def _peak_bytes() -> int:
    with contextlib.suppress(OSError, TypeError):
        status = pathlib.Path("/proc/self/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        if peak:
            return int(peak[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def _points(states: list[Array]) -> dict[Any, Array]:
    return {**dict(enumerate(states[:-1])), "final": states[-1]}


# ---------------------------------------------------------------- what can be compared


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def why_not_transformers(config: Config, trust: bool) -> str | None:
    """Why transformers is no reference of this model; None: it is one."""
    if version_of("transformers") is None or version_of("torch") is None:
        return "not installed: pip install transformers torch"
    kind = config.get("model_type")
    if kind not in ("mpt", "bloom", "falcon", "jais2", "gte") and not (trust and config.get("auto_map")):
        return f"it has no model type {kind!r} of its own; --trust-remote-code runs the Python code in the folder"
    attn = config.get("attn_config") or {}
    ignored = [name for name, is_used in {
        "alibi_bias_max": attn.get("alibi_bias_max", 8) != 8, "qk_ln": attn.get("qk_ln"),
        "clip_qkv": isinstance(attn.get("clip_qkv"), int), "attn_type": attn.get("attn_type", "multihead_attention") != "multihead_attention",
        "no_bias": not config.get("no_bias", True), "logit_scale": config.get("logit_scale") is not None,
        "expansion_ratio": config.get("expansion_ratio", 4) != 4,
    }.items() if is_used]  # fmt: skip
    if kind == "mpt" and not trust and ignored:
        return f"it ignores or refuses {', '.join(ignored)} of this configuration"
    return None


def doubt(name: str, kind: str) -> str | None:
    """Why a difference from this side does not count."""
    if name == "transformers" and kind == "falcon":
        return "it rounds Falcon's bias to bfloat16"
    if name == "llama.cpp" and kind == "refact":
        return "it computes RMS norms in place of layer norms"
    return None


# ---------------------------------------------------------------- this library


def alibi_opens(job: Job) -> Found:
    """What the model is, and its tokens of the texts."""
    from ._model import LanguageModel
    from ._tokenizer import Tokenizer

    if job.get("threads"):
        set_threads(job["threads"])
    model = LanguageModel.load(job["model"])
    config = model.config
    found: Found = {"config": config, "weight_bytes": model.weight_bytes, "tokens": None, "decoded": None}
    if config["tokenizer"] is None:
        return found
    if pathlib.Path(job["model"]).is_dir():
        tokenizer = Tokenizer.load(job["model"])
        found["tokens"] = [[tokenizer.encode(text, special) for special in (False, True)] for text in job["texts"]]
        found["decoded"] = [tokenizer.decode(plain) for plain, _ in found["tokens"]]
    else:
        found["tokens"] = [[model.encode(text).tolist()] for text in job["texts"]]
        found["decoded"] = [model.decode(ids[0]) for ids in found["tokens"]]
    return found


def alibi_runs(job: Job) -> Found:
    from ._model import LanguageModel

    if job.get("threads"):
        set_threads(job["threads"])
    model = LanguageModel.load(job["model"])
    found: Found = {"states": [], "logits": [], "slopes": model.slopes, "greedy": None}
    for ids, rows in job["inputs"]:
        states, logits = model._core.layer_states(np.asarray(ids, np.int32)[None], list(rows))
        found["states"].append(_points(states))
        found["logits"].append(logits)
    if model.config["causal"]:
        found["greedy"] = model.generate_ids(job["prompt"], job["greedy"], 0.0).tolist()
        found["text"] = None if model.config["tokenizer"] is None else model.decode(found["greedy"])
        # Does the order of words matter to the model?
        rng = np.random.default_rng(0)
        if job.get("words"):
            words = job["words"].split()
            shuffled = " ".join(words[i] for i in rng.permutation(len(words)))
            found["words"] = [model.score(text).perplexity for text in (job["words"], shuffled)]
    return found


# ---------------------------------------------------------------- the formulas


def formulas_of(path: pathlib.Path, layers: int | None = None) -> Formulas:
    if path.is_dir():
        config: Config = json.loads((path / "config.json").read_text())
        if config.get("model_type") not in FAMILIES:
            raise SideError(f"there are no formulas for the model type {config.get('model_type')!r}")
        source: Any = Folder(path)
    else:
        from ._gguf import Gguf  # needs the package gguf

        source = Gguf(path)
        config = source.config
    return Formulas(config, source, layers)


def formulas_run(job: Job) -> Found:
    """In float64, with the difference that float32 makes ("rounding") at each point and to the logits."""
    model = formulas_of(pathlib.Path(job["model"]), job.get("layers"))
    found: Found = {"states": [], "logits": [], "slopes": model.slopes().tolist(), "rounding": [], "greedy": None,
                    "type": getattr(model.source, "type", None)}  # fmt: skip
    inputs: list[tuple[Array, list[int]]] = [(np.asarray(ids), list(rows)) for ids, rows in job["inputs"]]
    if model.is_prefix_stable:  # the longest text has the others' results
        longest = max((ids for ids, _ in inputs), key=len)
        wanted = sorted({row for _, rows in inputs for row in rows})
        whole = {dtype: model.run(longest, wanted, dtype) for dtype in (np.float64, np.float32)}
        place = {row: i for i, row in enumerate(wanted)}

    for ids, rows in inputs:
        if model.is_prefix_stable:
            at = [place[row] for row in rows]
            pair = [([s[at] for s in states], None if logits is None else logits[at]) for states, logits in whole.values()]
        else:
            pair = [model.run(ids, rows, dtype) for dtype in (np.float64, np.float32)]
        (states, logits), (states32, logits32) = pair
        found["states"].append(_points(states))
        found["logits"].append(logits)
        rounding = {point: float(np.abs(a - b).max()) for (point, a), b in zip(_points(states).items(), states32)}
        if logits is not None and logits32 is not None:
            rounding["logits"] = float(np.abs(logits - logits32).max())
        found["rounding"].append(rounding)
    if job.get("greedy_ids") is not None:  # the best next tokens where the other side has its own
        ids = np.array([*job["prompt"], *job["greedy_ids"]][:-1])
        found["greedy_logits"] = model.run(ids, list(range(len(job["prompt"]) - 1, len(ids))), np.float64)[1]
        found["greedy"] = found["greedy_logits"].argmax(1).tolist()
    return found


# ---------------------------------------------------------------- transformers


def transformers_run(job: Job) -> Found:
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    given = {"trust_remote_code": job.get("trust_remote_code", False), "local_files_only": True}
    config = transformers.AutoConfig.from_pretrained(job["model"], **given)
    longest = max(len(job["prompt"]) + job["greedy"], *(len(ids) for ids, _ in job["inputs"]))
    if getattr(config, "max_seq_len", longest) < longest:
        config.max_seq_len = longest  # MPT refuses longer texts
    own = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or torch.float32
    kind = transformers.AutoModelForCausalLM if job["causal"] else transformers.AutoModel
    found: Found = {"states": [], "logits": [], "own_type": str(own).removeprefix("torch."), "own_logits": [], "greedy": None}
    model = kind.from_pretrained(job["model"], config=config, dtype=own, **given).eval()
    found["class"] = type(model).__name__

    keeps = "logits_to_keep" in inspect.signature(model.forward).parameters  # else the logits of all rows are in memory

    def array(x: Any) -> Array:
        return np.asarray(x.float().numpy())

    def answer(ids: Any, rows: Any, **more: Any) -> Any:
        keep = {"logits_to_keep": torch.tensor(rows)} if keeps else {}
        with torch.no_grad():
            out = model(torch.tensor(np.asarray(ids)[None], dtype=torch.long), use_cache=False, **keep, **more)
        logits = None if not job["causal"] else array(out.logits[0] if keep else out.logits[0, rows])
        return out, logits

    if own != torch.float32:
        if job["causal"]:
            found["own_logits"] = [answer(ids, rows)[1] for ids, rows in job["inputs"]]
        model.float()
    for ids, rows in job["inputs"]:
        out, logits = answer(ids, rows, output_hidden_states=True)
        hidden = [array(x[0, rows]) for x in out.hidden_states]
        # With this BLOOM's residual, the stream is taken after the next norm here, and before it there.
        is_sum = not getattr(config, "apply_residual_connection_post_layernorm", False)
        states: dict[Any, Array] = {2 * n: x for n, x in enumerate(hidden[:-1])} if is_sum else {}
        states["final"] = hidden[-1]
        found["states"].append(states)
        found["logits"].append(logits)
    if job["causal"]:
        prompt = torch.tensor([list(job["prompt"])])
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=job["greedy"], do_sample=False,
                             eos_token_id=None, pad_token_id=0)  # fmt: skip
        found["greedy"] = out[0, prompt.shape[1] :].tolist()
    return found


# ---------------------------------------------------------------- llama.cpp


def architecture(path: pathlib.Path) -> str | None:
    """Of a GGUF file, whose metadata usually begins with it."""
    with open(path, "rb") as file:
        found = re.search(rb"general\.architecture\x08\0\0\0(.)\0{7}", file.read(1 << 16), re.DOTALL)
        if found:
            file.seek(found.end())
            return file.read(found[1][0]).decode()
    return None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """llama.cpp writes to the process's standard error."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def llama_runs(job: Job) -> Found:
    llama_cpp = importlib.import_module("llama_cpp")
    longest = max(len(ids) for ids, _ in job["inputs"])
    found: Found = {"states": [], "logits": [], "greedy": None}
    with _silent():
        if not job["causal"]:
            model = llama_cpp.Llama(job["model"], vocab_only=True, verbose=False)
        else:
            model = llama_cpp.Llama(job["model"], n_ctx=longest + job["greedy"], n_batch=longest, n_ubatch=longest,
                                    logits_all=True, flash_attn=False, verbose=False)  # fmt: skip
            for ids, rows in job["inputs"]:
                model.reset()
                model.eval([int(i) for i in ids])
                found["states"].append({})
                found["logits"].append(np.array(model.scores[list(rows)]))
            model.reset()
            model.eval([int(i) for i in job["prompt"]])
            greedy: list[int] = []
            while len(greedy) < job["greedy"]:
                greedy.append(int(np.argmax(model.scores[model.n_tokens - 1])))
                model.eval(greedy[-1:])
            found["greedy"] = greedy
        found["tokens"] = [[model.tokenize(text.encode(), add_bos=False, special=False)] for text in job["texts"]]
    return found


# ---------------------------------------------------------------- tokenizers


def reference_tokens(folder: pathlib.Path, texts: list[str]) -> tuple[str, list[list[list[int]]]] | None:
    """The tokens of a folder's tokenizer, without and with special tokens, in the library that its file is of."""
    try:
        if (folder / "tokenizer.json").exists():
            tokenizers = importlib.import_module("tokenizers")
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            found = [[tokenizer.encode(text, add_special_tokens=special).ids for special in (False, True)] for text in texts]
            return f"tokenizers {tokenizers.__version__}", found
        models = sorted(folder.glob("*.model"))
        if models:
            sentencepiece = importlib.import_module("sentencepiece")
            processor = sentencepiece.SentencePieceProcessor(model_file=str(models[0]))
            found = [[processor.encode(text)] for text in texts]
            return f"sentencepiece {sentencepiece.__version__}", found
    except ImportError:
        pass
    return None
