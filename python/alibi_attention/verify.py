"""Whether a model folder or GGUF file runs here as in its reference: `alibi verify MODEL`.

    python -m alibi_attention.verify MODEL
    report = alibi_attention.verify.verify("mpt-7b", layers=2)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import platform
import re
import signal
import sys
import tempfile
import unicodedata
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from . import _verify_sides as sides
from ._core import UsageError
from ._results import Result
from ._verify_compare import Comparison, compare_greedy, compare_sides, compare_slopes, compare_tokens, perplexity
from ._gguf import write_first_layers_of_gguf
from ._weights import Array, write_first_layers

_ROWS = 64
"""Positions of a text that are compared."""
_GREEDY = 24
_MOST_OPERATIONS = 2e12
"""Longer texts are shortened: the formulas would take minutes."""
_PROSE = """The harbour was quiet when the first boats came back. Nets hung over the rails, and the men who had hauled \
them since midnight sat on crates and talked about the price of herring. A girl of nine or ten walked along the wall \
with a basket of bread. She sold all of it before she reached the lighthouse, because nobody had eaten since the \
storm. Her brother kept the money in a tin box under the counter of the shop; he wrote every sum into a book with a \
green cover, and on Sundays they counted it together. In the spring they wanted to buy a small boat of their own. \
It would need a mast, two oars and a coat of blue paint. The old man at the end of the pier had promised to teach \
them how to read the clouds, although he said that the sea never learned to read at all. """
_TEXTS = [
    _PROSE,
    "def add(a: int, b: int) -> int:\n    return a + b  # 3.14e-5, 0xFF\n\n\tif x != y: print('it''s')\n",
    "Ein naïver Fuchs, 1.234,56 €; “quoted” – l’été à Besançon. Ελληνικά, русский текст, עברית, العربية.",
    "日本語の文章です。中文句子,没有空格。한국어 문장. ไทย हिन्दी 😀👩‍👩‍👧 e\u0301 \u00a0 x\u200by   three   spaces \n\n  end ",
    "ACGTTGCAACGGTACCATTTGGGACACATG",
    "",
]


@dataclass(frozen=True)
class Verification(Result):
    """str() gives the report."""

    verdict: str
    """ "equal", "differs", or "no reference" """
    differences: tuple[str, ...]
    """What differs, the first cause first."""
    results: dict[str, Any]
    """The content of verify.json."""
    report: str

    def __str__(self) -> str:
        return self.report


def _scrubbed(text: str, *paths: pathlib.Path) -> str:
    """Without the paths of this machine."""
    for path in paths:
        text = text.replace(str(path), "MODEL").replace(str(path.resolve()), "MODEL")
    return re.sub(r"(?<![\w.])/[^\s'\":,;()]+", "PATH", text).strip().split("\n")[0][:300]


def _name_of(model: pathlib.Path) -> str:
    """The name of a folder or a file, and of a repository for a folder in the cache of the Hugging Face hub."""
    if model.parent.name != "snapshots":
        return model.name
    return model.parent.parent.name.removeprefix("models--").replace("--", "/")


class _Run:
    """One verification: it collects the lines of the report, the results for the file, and the differences."""

    def __init__(self, model: pathlib.Path, reference: pathlib.Path, isolate: bool, verbose: bool) -> None:
        self.model, self.reference, self.isolate, self.verbose = model, reference, isolate, verbose
        self.lines: list[str] = []
        self.differences: list[str] = []
        self.results: dict[str, Any] = {"verify": 1}

    def say(self, line: str = "") -> None:
        self.lines.append(line)

    def progress(self, line: str) -> None:
        if self.verbose:
            print(f"{line} ...", file=sys.stderr, flush=True)

    def side(self, name: str, side: Any, job: sides.Job) -> sides.Found | None:
        """The result of a side. Its failure is reported, and is a difference if it is this library's."""
        self.progress(name)
        try:
            found = sides.run(side, job, self.isolate)
        except sides.SideError as error:
            text = _scrubbed(str(error), self.model, self.reference, pathlib.Path(job["model"]))
            self.results.setdefault("failed", {})[name] = text
            self.say(f"{name} cannot run it: {text}")
            if name == "alibi":
                self.differences.append(f"alibi cannot run the model: {text}")
            return None
        self.results.setdefault("cost", {})[name] = {key: round(found[key], 2) for key in ("seconds", "peak_bytes")}
        return found

    def end(self, references: int) -> Verification:
        verdict = "differs" if self.differences else "equal" if references else "no reference"
        self.results.update(verdict=verdict, differences=self.differences)
        self.say()
        if verdict == "differs":
            self.say("DIFFERS:")
            self.lines += [f"  {line}" for line in self.differences]
        elif verdict == "equal":
            self.say("EQUAL: alibi computes what the references compute, up to rounding")
        else:
            self.say("NO REFERENCE was found, so only what needs none was checked")
        return Verification(verdict, tuple(self.differences), self.results, "\n".join(self.lines))


def verify(
    model: str | os.PathLike[str],
    *,
    text: str | None = None,
    tokens: int | None = None,
    layers: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    trust_remote_code: bool = False,
    reference: str | os.PathLike[str] | None = None,
    isolate: bool = True,
    verbose: bool = False,
) -> Verification:
    """Compares a model here with all implementations of it that are installed: the published formulas in NumPy,
    transformers, and llama.cpp (llama-cpp-python) for a GGUF file.

    text               what the models read (None: a text in English)
    tokens             length of the longest text (None: twice the training length, shortened for large models)
    layers             only the first layers, in all implementations; needs the package gguf for a GGUF file
    seed               of the token ids that a model without a tokenizer reads
    threads            of alibi (None: all cores)
    trust_remote_code  lets transformers run the Python code of the folder
    reference          the references read this folder or file in place of `model`
    isolate            each implementation runs in a process of its own, which measures its memory
    verbose            says on standard error what it does
    """
    path = pathlib.Path(_core.find_model(os.fspath(model)))
    source = path if reference is None else pathlib.Path(reference)
    if not path.exists():
        raise UsageError(f"[verify] {path}: no such folder or file")
    if layers is not None and layers < 1:
        raise UsageError(f"[verify] layers is {layers}, expected at least 1")
    if layers is not None and not path.is_dir() and sides.version_of("gguf") is None:
        raise UsageError("[verify] layers of a GGUF file need the package gguf: pip install gguf")
    if tokens is not None and tokens < 4:
        raise UsageError(f"[verify] tokens is {tokens}, expected at least 4")
    run = _Run(path, source, isolate, verbose)
    with ExitStack() as stack:
        if layers is not None:
            scratch = "/var/tmp" if "TMPDIR" not in os.environ and os.path.isdir("/var/tmp") else None  # not in memory
            run.progress(f"first {layers} layers")
            here = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alibi-verify-", dir=scratch)))
            shortened: dict[pathlib.Path, pathlib.Path] = {}
            for model in {path, source}:
                shortened[model] = here / f"{len(shortened)}{'' if model.is_dir() else '.gguf'}"
                (write_first_layers if model.is_dir() else write_first_layers_of_gguf)(model, layers, shortened[model])
            path, source = shortened[path], shortened[source]
        return _verify(run, path, source, text, tokens, layers,
                       {"trust_remote_code": trust_remote_code, "threads": threads, "seed": seed})  # fmt: skip


def _verify(
    run: _Run, path: pathlib.Path, source: pathlib.Path, text: str | None, tokens: int | None, layers: int | None, given: sides.Job
) -> Verification:
    texts = [*([] if text is None else [text[:20000]]), *_TEXTS]
    if not path.is_dir():  # the tokenizer of MPT normalizes to NFC, which llama.cpp does not
        texts = [unicodedata.normalize("NFC", each) for each in texts]
    opened = run.side("alibi", sides.alibi_opens, {**given, "model": str(path), "texts": texts})
    if opened is None:
        return run.end(0)
    config, is_folder = opened["config"], path.is_dir()
    raw = json.loads((source / "config.json").read_text()) if is_folder else {}
    run.results.update(
        file="folder" if is_folder else "gguf",
        model_type=raw.get("model_type") if is_folder else sides.architecture(path),
        dtype=raw.get("torch_dtype", raw.get("dtype")),
        layers_compared=layers,
        config={k: v for k, v in config.items() if isinstance(v, (int, float, bool)) or k in ("position", "norm", "activation")},
        weight_bytes=opened["weight_bytes"],
        versions={"alibi": _core.version, "python": platform.python_version(), "machine": platform.machine(),
                  **{name: sides.version_of(name) for name in ("numpy", "torch", "transformers", "tokenizers", "llama_cpp_python", "gguf")}},
    )  # fmt: skip
    shown = f"the first {layers} of its layers" if layers else f"{config['layers']} layers"
    run.say(f"{_name_of(run.model)}: {run.results['model_type']}, {shown}, "
            f"{config['parameters']:,} parameters, {opened['weight_bytes'] / 2**30:.2f} GiB of weights")  # fmt: skip

    inputs, lengths = _inputs(run, opened, config, tokens, bool(text), given["seed"])
    prompt = inputs[0][0][:12].tolist()
    job = {**given, "model": str(source), "texts": texts, "inputs": inputs, "prompt": prompt, "greedy": _GREEDY,
           "causal": config["causal"],
           "words": (text or _PROSE)[:2000] if config["tokenizer"] else None}  # fmt: skip
    ours = run.side("alibi", sides.alibi_runs, {**job, "model": str(path)})
    if ours is None:
        return run.end(0)
    if not all(np.isfinite(x).all() for states in ours["states"] for x in states.values()):
        run.differences.append("alibi's states are not finite")

    # The references.
    found: dict[str, sides.Found] = {}
    formulas = run.side("formulas", sides.formulas_run, {**job, "greedy_ids": ours["greedy"]})
    if formulas is not None:
        found["formulas"] = formulas
    if is_folder:
        why = sides.why_not_transformers(raw, given["trust_remote_code"])
        if why is None:
            answer = run.side("transformers", sides.transformers_run, job)
            if answer is not None:
                found["transformers"] = answer
        else:
            run.say(f"transformers is not compared: {why}")
    elif sides.version_of("llama_cpp_python") is None:
        run.say("llama.cpp is not compared: pip install llama-cpp-python")
    else:
        answer = run.side("llama.cpp", sides.llama_runs, job)
        if answer is not None:
            found["llama.cpp"] = {**answer, "type": formulas and formulas["type"]}

    _report_tokens(run, opened, source, texts, found)
    comparisons = {}
    for name, theirs in found.items():
        if theirs["logits"]:
            comparisons[name] = compare_sides(name, ours, theirs, formulas, config, lengths)
    if formulas is not None:
        run.differences += compare_slopes(ours["slopes"], formulas["slopes"])
    for name, comparison in comparisons.items():
        note = sides.doubt(name, run.results["model_type"])
        if note and comparison.differences:
            run.say(f"{name} differs, which does not count: {note}")
        else:
            run.differences += comparison.differences
    _report_numbers(run, lengths, inputs, ours, found, comparisons)
    _report_greedy(run, ours, found, formulas, comparisons)
    if ours.get("words"):
        ordered, shuffled = ours["words"]
        run.results["words"] = {"perplexity": ordered, "shuffled": shuffled}
        run.say(f"perplexity of a text {ordered:.4g}, of its words in random order {shuffled:.4g}")
        if ordered >= shuffled:
            run.say("  (a trained model predicts the text better than its shuffled words; random weights do not)")
    run.say()
    run.say(f"{'':14}{'seconds':>9}{'memory (GiB)':>14}")
    for name, cost in run.results["cost"].items():
        run.say(f"{name:14}{cost['seconds']:9.1f}{cost['peak_bytes'] / 2**30:14.2f}")
    return run.end(len(found))


def _inputs(
    run: _Run, opened: sides.Found, config: dict[str, Any], tokens: int | None, is_given: bool, seed: int
) -> tuple[list[tuple[Array, list[int]]], list[int]]:
    """Token ids of a short text, one of the training length and one of twice that, with the rows to compare."""
    trained = config["train_length"] or 128
    longest = tokens or 2 * trained
    inner = max(1, config["parameters"] - config["vocab_size"] * config["d_model"])
    most = max(64, int(_MOST_OPERATIONS / (2 * inner)))
    if tokens is None and longest > most:
        run.say(f"texts are shortened from {longest} to {most} tokens (--tokens {longest} compares the whole length)")
        longest = most
    middle = trained if trained < longest else longest // 2
    lengths = sorted({min(16, max(1, middle // 2)), middle, longest})
    if opened["tokens"] is None:
        run.say("the model has no tokenizer, so it reads random token ids")
        ids = np.random.default_rng(seed).integers(0, config["vocab_size"], longest)
    else:
        ids = np.resize(np.array(opened["tokens"][0][0]), longest)
        if is_given and len(opened["tokens"][0][0]) < longest:
            run.say(f"the text has {len(opened['tokens'][0][0])} tokens and is repeated up to {longest}")
    run.results.update(trained_length=config["train_length"], lengths=lengths)
    rows = [np.unique(np.linspace(0, n - 1, min(n, _ROWS)).astype(int)).tolist() for n in lengths]
    return [(ids[:n], r) for n, r in zip(lengths, rows)], lengths


def _report_tokens(run: _Run, opened: sides.Found, source: pathlib.Path, texts: list[str], found: dict[str, sides.Found]) -> None:
    if opened["tokens"] is None:
        return
    if source.is_dir():
        theirs = sides.reference_tokens(source, texts)
    else:
        theirs = ("llama.cpp", found["llama.cpp"]["tokens"]) if "llama.cpp" in found else None
    if theirs is None:
        same = sum(a == b for a, b in zip(opened["decoded"], texts))
        run.results["tokens"] = {"round_trip": same, "texts": len(texts)}
        run.say(f"tokens: no reference (pip install tokenizers, or sentencepiece); {same} of {len(texts)} texts are equal "
                "after encoding and decoding (tokenizers that normalize change some)")  # fmt: skip
        return
    by, ids = theirs
    difference = compare_tokens(opened["tokens"], ids)
    run.results["tokens"] = {"reference": by, "texts": len(texts), "equal": difference is None}
    run.say(f"tokens: {'equal' if difference is None else 'DIFFERENT'} in {len(texts)} texts ({by})")
    if difference is not None:
        run.differences.append(f"the tokenizer: {difference}")


def _report_numbers(
    run: _Run,
    lengths: Sequence[int],
    inputs: Sequence[tuple[Array, list[int]]],
    ours: sides.Found,
    found: dict[str, sides.Found],
    comparisons: dict[str, Comparison],
) -> None:
    if not comparisons:
        return
    what = "logits" if ours["logits"][0] is not None else "hidden states"
    run.say()
    run.say(f"largest difference of the {what}, as a share of their largest value; the rounding of the references beside it")
    names = list(comparisons)
    own = found.get("transformers", {}).get("own_logits") and found["transformers"]["own_type"]
    columns = [*names, *(["float32"] if "formulas" in found else []), *([own] if own else [])]
    run.say(f"{'tokens':>8}" + "".join(f"{name:>14}" for name in columns))
    table = []
    for i, length in enumerate(lengths):
        row: dict[str, Any] = {name: comparisons[name].outputs[i] for name in names}
        if "formulas" in found:
            row["float32"] = comparisons["formulas"].rounding[i]
        if own:
            exact = found["transformers"]["logits"][i]
            row[own] = float(np.abs(found["transformers"]["own_logits"][i] - exact).max() / np.abs(exact).max())
        run.say(f"{length:8}" + "".join(f"{row[name]:14.1e}" for name in columns))
        table.append({"tokens": length, **row})
    run.results["differences_of_outputs"] = table
    if ours["logits"][0] is None:
        return
    run.say("perplexity")
    run.say(f"{'tokens':>8}{'alibi':>14}" + "".join(f"{name:>14}" for name in names))
    table = []
    for i, (ids, rows) in enumerate(inputs):
        values = {name: perplexity((ours if name == "alibi" else found[name])["logits"][i], ids, rows) for name in ("alibi", *names)}
        run.say(f"{len(ids):8}" + "".join(f"{value:14.6g}" for value in values.values()))
        table.append({"tokens": len(ids), **values})
    run.results["perplexity"] = table


def _report_greedy(
    run: _Run,
    ours: sides.Found,
    found: dict[str, sides.Found],
    formulas: sides.Found | None,
    comparisons: dict[str, Comparison],
) -> None:
    if ours["greedy"] is None:
        return
    if ours.get("text"):
        run.say(f"greedy text: {ours['text']!r}")
    exact = None if formulas is None else formulas.get("greedy_logits")
    for name, comparison in comparisons.items():
        first = compare_greedy(ours["greedy"], found[name]["greedy"], exact, comparison.tolerance)
        text = "equal" if first is None else f"token {first[0]} differs{', by rounding' if first[1] and not comparison.differences else ''}"
        run.results.setdefault("greedy", {})[name] = text
        run.say(f"greedy continuation of {len(ours['greedy'])} tokens, {name}: {text}")
        if first is not None and not first[1] and not comparison.differences and exact is not None:
            run.differences.append(f"generation: token {first[0]} differs from {name}, although the logits agree")


def _is_part_of(file: pathlib.Path, path: pathlib.Path) -> bool:
    return any(place.samefile(path) for place in (file, file.absolute().parent) if path.is_dir() == place.is_dir())


def _end(number: int, frame: Any) -> None:
    """Ends the command at a signal, so that temporary folders are removed, and the processes that it waits for."""
    for process in multiprocessing.active_children():
        process.terminate()
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _end)
    parser = argparse.ArgumentParser(prog="alibi verify", description="Check that a model runs here as in its reference.")
    parser.add_argument("model", metavar="MODEL", help="model folder of Hugging Face, or GGUF file")
    parser.add_argument("--text", metavar="FILE", help="the text to read")
    parser.add_argument("--tokens", type=int, metavar="N", help="length of the longest text")
    parser.add_argument("--layers", type=int, metavar="N", help="compare the first N layers only")
    parser.add_argument("--trust-remote-code", action="store_true", help="let transformers run the Python code in the folder")
    parser.add_argument("--json", metavar="FILE", default="verify.json", help="file for the results (- is standard output)")
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the token ids that a model without a tokenizer reads")
    given = parser.parse_args(arguments)
    try:
        for name in filter(None, (given.model, given.text)):
            if os.path.exists(given.json) and os.path.exists(name) and _is_part_of(pathlib.Path(given.json), pathlib.Path(name)):
                raise UsageError(f"[verify] --json {given.json} would replace a part of {name}")
        if given.threads is not None:  # of the processes that follow
            os.environ.update({f"{name}_NUM_THREADS": str(given.threads) for name in ("OMP", "OPENBLAS", "MKL")})
        text = None if given.text is None else pathlib.Path(given.text).read_text(errors="replace")
        found = verify(given.model, text=text, tokens=given.tokens, layers=given.layers, seed=given.seed,
                       threads=given.threads, trust_remote_code=given.trust_remote_code, verbose=sys.stderr.isatty())  # fmt: skip
        written = json.dumps(found.results, indent=1) + "\n"
        if given.json != "-":
            pathlib.Path(given.json).write_text(written)
    except (_core.Error, OSError) as error:
        print(f"alibi: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    if given.json == "-":
        print(written, end="")
    else:
        print(f"{found}\nresults: {given.json} (no text, no paths; attach it to an issue)")
    return 1 if found.verdict == "differs" else 0


if __name__ == "__main__":
    sys.exit(main())
