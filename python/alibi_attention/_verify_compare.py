"""How `verify` compares two implementations and says where they begin to differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._weights import Array

_TIMES = 8
"""A difference counts from this multiple of what float32 changes in the formulas."""
_LEAST = 2e-6
_LEAST_OF_OTHERS = {"transformers": 2e-5, "llama.cpp": 5e-2}
"""Shares of the largest value that are rounding. transformers computes its softmax in float32, and llama.cpp rounds
the activations to the type of the weights."""
_LLAMA = {"F32": 2e-3, "F16": 2e-3, "BF16": 1.5e-2}


@dataclass(frozen=True)
class Comparison:
    outputs: list[float]
    """Largest difference of the outputs of each input, as a share of their largest value."""
    rounding: list[float]
    tolerance: float
    """Of the logits, absolute."""
    differences: list[str]


def name_of(point: Any, is_whole_layer: bool) -> str:
    if point == 0:
        return "the embedding"
    if isinstance(point, int) and is_whole_layer:
        return f"layer {(point - 1) // 2}"
    if isinstance(point, int):
        return f"layer {(point - 1) // 2}, {'attention' if point % 2 else 'feed-forward network'}"
    return {"final": "the last layer or the final norm" if is_whole_layer else "the final norm", "logits": "the output projection"}[point]


def _outputs(side: dict[str, Any], i: int) -> tuple[Any, Array]:
    logits = side["logits"][i]
    return ("final", side["states"][i]["final"]) if logits is None else ("logits", logits)


def compare_sides(
    name: str, ours: dict[str, Any], theirs: dict[str, Any], formulas: dict[str, Any] | None, config: dict[str, Any],
    lengths: Sequence[int],
) -> Comparison:  # fmt: skip
    least = _LEAST_OF_OTHERS.get(name, _LEAST)
    if name == "llama.cpp":
        least = _LLAMA.get(theirs.get("type", ""), least)
    outputs, rounding, places, most = [], [], [], 0.0
    for i, length in enumerate(lengths):
        point, here = _outputs(ours, i)
        largest = float(np.abs(here).max())
        outputs.append(float(np.abs(here - _outputs(theirs, i)[1]).max()) / largest)
        rounding.append(float("nan") if formulas is None else formulas["rounding"][i][point] / largest)
        most = max(most, largest * least)
        points = {**theirs["states"][i], **({} if theirs["logits"][i] is None else {"logits": theirs["logits"][i]})}
        for order, (at, there) in enumerate(points.items()):
            mine = ours["logits"][i] if at == "logits" else ours["states"][i][at]
            exact = np.abs(there).max() * least
            if formulas is not None:
                exact = max(exact, _TIMES * formulas["rounding"][i][at])
            difference = np.abs(mine - there).max(1)
            if not difference.max() <= exact:
                places.append((order, i, at, difference, exact, np.abs(there).max()))
                break
    if not places:
        return Comparison(outputs, rounding, most, [])
    _, i, at, difference, exact, largest = min(places, key=lambda place: place[:2])
    place = name_of(at, name != "formulas") if theirs["states"][i] else "the logits"
    if isinstance(at, int) and config.get("residual") == "normed" and config["causal"]:
        place += " or the norm after it"  # which is part of the stream
    text = (f"{place}: differs from {name} by {difference.max() / largest:.1e} of the largest value in a text of "
            f"{lengths[i]} tokens, expected at most {exact / largest:.1e}")  # fmt: skip
    if isinstance(at, int) and at % 2 and name == "formulas" and config["causal"]:
        if difference[0] <= exact:  # the first token sees one key, whatever its score is
            text += "; the first token is equal, so it is the scores: queries, keys, their scale, or the bias"
        else:
            text += "; also the first token, so it is the norm, the values or the output matrix"
    return Comparison(outputs, rounding, most, [text])


def compare_slopes(ours: Sequence[Sequence[float]], theirs: Sequence[float]) -> list[str]:
    for layer, heads in enumerate(ours):
        for head, (here, there) in enumerate(zip(heads, theirs, strict=True)):
            if not abs(here - there) <= 1e-5 * abs(there):
                return [f"the ALiBi slopes: head {head} of layer {layer} has {here:.6g} here, {there:.6g} in the formulas"]
    return []


def compare_tokens(ours: Sequence[Sequence[Sequence[int]]], theirs: Sequence[Sequence[Sequence[int]]]) -> str | None:
    """The first difference; None: all are equal."""
    for text, (here, there) in enumerate(zip(ours, theirs, strict=True)):
        for a, b in zip(here, there):
            if list(a) != list(b):
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                x, y = (str(ids[at]) if at < len(ids) else "no token" for ids in (a, b))
                return f"token {at} of text {text} is {x} here, {y} in the reference"
    return None


def compare_greedy(
    ours: Sequence[int], theirs: Sequence[int] | None, exact: Array | None, tolerance: float
) -> tuple[int, bool] | None:
    """The first token that differs, and whether both are the most likely ones up to rounding."""
    for i, (here, there) in enumerate(zip(ours, theirs or ())):
        if here != there:
            return i, exact is not None and bool(abs(exact[i][here] - exact[i][there]) <= 2 * tolerance)
    return None


def perplexity(logits: Array, ids: Array, rows: Sequence[int]) -> float:
    """Of the tokens after the rows."""
    kept = [i for i, row in enumerate(rows) if row + 1 < len(ids)]
    chosen = logits[kept].astype(np.float64)
    largest = chosen.max(1)
    total = largest + np.log(np.exp(chosen - largest[:, None]).sum(1))
    targets = np.asarray(ids)[[rows[i] + 1 for i in kept]]
    with np.errstate(over="ignore"):
        return float(np.exp((total - chosen[np.arange(len(kept)), targets]).mean()))
