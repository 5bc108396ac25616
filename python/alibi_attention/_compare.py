"""Train short, test long."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _core
from ._arguments import checked, texts as texts_of
from ._model import need_models
from ._progress import OnProgress, from_core
from ._results import Result, axes, frame, table
from ._text import Text, paths_of
from ._training import tokenizer_choice


@dataclass(frozen=True)
class Point(Result):
    """One evaluation: the held-out text in windows of `length` that advance by `stride`. nan where there is a `gap`."""

    length: int
    stride: int
    tokens: int
    nll: float
    perplexity: float
    bits_per_byte: float
    tokens_per_second: float
    low: float
    """Of the 95 % interval of the nll; nan: not known."""
    high: float
    gap: str
    """Not empty: why the model cannot be evaluated at this length."""


@dataclass(frozen=True)
class Method(Result):
    """A position method at one training length; with several seeds the means."""

    name: str
    """The method; with several training lengths "alibi@128"."""
    method: str
    train_length: int
    seeds: tuple[int, ...]
    parameters: int
    train_tokens: int
    learning_rate: float
    train_seconds: float
    train_tokens_per_second: float
    loss: tuple[tuple[int, int, float], ...]
    """(updates, tokens, mean nll since the last one)"""
    evaluations: tuple[Point, ...]
    """Rising lengths, windows that do not overlap."""
    sliding: tuple[Point, ...]
    streaming: tuple[Point, ...]
    sample_prompt: str
    sample: str
    model_folder: str
    """Empty without `out`."""


@dataclass(frozen=True)
class AnswerPoint(Result):
    """Questions of a task of one length and one range of distances, which ends at `distance`, from all seeds."""

    length: int
    distance: int
    questions: int
    accuracy: float
    low: float
    """Of the 95 % interval of the accuracy."""
    high: float


@dataclass(frozen=True)
class Answers(Result):
    """What a method answers of a task."""

    name: str
    method: str
    train_length: int
    seeds: tuple[int, ...]
    largest_length: int
    """0: it does not answer reliably at its training length."""
    largest_distance: int
    points: tuple[AnswerPoint, ...]


@dataclass(frozen=True)
class Task(Result):
    """A synthetic task that asks for far tokens."""

    name: str
    meaning: str
    chance: float
    beside_text: bool
    """Whether the models are those that were also trained on the text."""
    methods: tuple[Answers, ...]


@dataclass(frozen=True)
class CompareResults(Result):
    """What a comparison measured."""

    methods: tuple[Method, ...]
    """On text."""
    tasks: tuple[Task, ...]
    train_length: int
    seed: int
    preset: str
    train_bytes: int
    valid_bytes: int
    tokenizer: str
    vocab_size: int
    runs_done: int
    runs_planned: int
    machine: str
    threads: int
    version: str
    started: str
    seconds: float
    settings: dict[str, str]

    def to_pandas(self) -> Any:
        """A row for each method and length; `windows` says how they were read."""
        rows = [
            {"name": method.name, "method": method.method, "train_length": method.train_length, "windows": windows,
             **point.to_dict()}
            for method in self.methods
            for windows in ("evaluations", "sliding", "streaming")
            for point in getattr(method, windows)
        ]  # fmt: skip
        names = list(rows[0]) if rows else []
        return frame({name: [row[name] for row in rows] for name in names})

    def plot(self, ax: Any = None) -> Any:
        """Perplexity by length, a line for each method; where they were trained is marked."""
        ax = axes(ax)
        for method in self.methods:
            points = [point for point in method.evaluations if not point.gap]
            ax.plot([p.length for p in points], [p.perplexity for p in points], "o-", markersize=3, label=method.name)
        for length in sorted({method.train_length for method in self.methods}):
            ax.axvline(length, color="grey", linestyle=":", linewidth=1)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
        ax.set(xlabel="length of the window (dotted: of training)", ylabel="perplexity")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        lengths = sorted({point.length for method in self.methods for point in method.evaluations})
        rows = []
        for method in self.methods:
            found = {point.length: point.perplexity for point in method.evaluations}
            rows.append([method.name, *(found.get(length, float("nan")) for length in lengths)])
        caption = f"Perplexity at each length; trained at {self.train_length} ({self.preset}, {self.vocab_size} tokens)"
        html = table(["method", *map(str, lengths)], rows, caption) if rows else ""
        for task in self.tasks:
            rows = [[answers.name, answers.largest_distance, answers.largest_length] for answers in task.methods]
            caption = f"{task.name}: how far each method answers; trained at {self.train_length}"
            html += table(["method", "largest distance", "largest length"], rows, caption)
        return html


@checked
def compare(
    text: Text | None = None,
    *,
    valid: Text | None = None,
    positions: str | Sequence[str] | None = None,
    preset: str = "tiny",
    seeds: int = 1,
    train_lengths: Sequence[int] = (),
    lengths: Sequence[int] = (),
    stride: int = 0,
    one_pass: bool = False,
    windowed: str | Sequence[str] = (),
    eval_tokens: int = 0,
    sample_tokens: int = 0,
    tasks: str | Sequence[str] = (),
    task_tokens: int = 0,
    task_questions: int = 100,
    task_share: float = 0.0,
    tune_rates: Sequence[float] = (),
    tokenizer: str = "byte",
    vocab_size: int = 0,
    min_count: int = 1,
    like: str | os.PathLike[str] | None = None,
    dropout: float | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    timing_rounds: int = 0,
    field: str = "text",
    on_progress: OnProgress | None = None,
    **options: Any,
) -> CompareResults:
    """Trains position methods at a short length on the same batches and evaluates each at longer lengths.

    text, valid       as in train()
    positions         position methods to compare; None: those of `alibi compare`. The error for a wrong name lists all
    seeds             number of runs for each method, with consecutive seeds
    train_lengths     training lengths in tokens; each method is trained at each of them. () uses the option train_length
    lengths           evaluation lengths in tokens. () evaluates at 1 to 16 times the training length
    stride, one_pass  also evaluate with a sliding window that advances by `stride` tokens; also in one pass
    windowed          methods to evaluate also with a sliding window of the training length, without another training
    eval_tokens       number of held-out tokens to score, in blocks spread evenly (0: as many as the preset says)
    sample_tokens     number of tokens to generate as a sample (0: none, -1: 4 times the training length)
    tasks             synthetic tasks to compare on as well; without a text, only on these. The error for a wrong name
                      lists all
    task_tokens       number of tokens to train on for each task (0: train_tokens)
    task_questions    number of questions for each length and range of distances
    task_share        share of the sequences that belongs to the tasks in a training on text and tasks (0: a model for
                      each task)
    tune_rates        learning rates to try; each method gets its best one
    tokenizer, vocab_size, min_count, like, dropout
                      as in train()
    out               folder for report.html, the models and the state of the comparison. The same call continues an
                      interrupted comparison, if the text is given by its path
    overwrite         replaces the comparison that the folder holds
    timing_rounds     number of timing rounds after training (0: no timing)
    on_progress       called with a Progress, e.g. alibi.show_progress; if it returns False, the comparison ends with the
                      runs that are complete
    options           those of train()

    Ctrl-C ends the comparison; with a folder the same call continues it. Raises UsageError for wrong options and Error
    if the folder holds another comparison.
    """
    need_models()
    one_pass = _core.flag("compare", "one_pass", one_pass)
    chosen = None if positions is None else texts_of("compare", "positions", positions)
    with paths_of("compare", text, valid) as (texts, held_out):
        found = _core.compare(
            texts, held_out, field, tokenizer_choice(tokenizer, vocab_size, min_count, like), chosen, preset,
            dropout, seeds, train_lengths, lengths, stride, one_pass,
            texts_of("compare", "windowed", windowed), eval_tokens, sample_tokens,
            texts_of("compare", "tasks", tasks), task_tokens, task_questions, task_share, timing_rounds, tune_rates,
            options, out or "", overwrite, from_core(on_progress),
        )  # fmt: skip
    if message := found.pop("warning"):
        warnings.warn(f"[compare] {message}", stacklevel=3)
    measured = ("evaluations", "sliding", "streaming")
    for method in found["methods"]:
        method.update({name: tuple(Point(**point) for point in method[name]) for name in measured})
        folder = os.path.join(out, method["model_folder"]) if out is not None else ""
        method.update(loss=tuple(method["loss"]), seeds=tuple(method["seeds"]), model_folder=folder)
    found["methods"] = tuple(Method(**method) for method in found["methods"])
    for task in found["tasks"]:
        for answers in task["methods"]:
            points = tuple(AnswerPoint(**point) for point in answers["points"])
            answers.update(points=points, seeds=tuple(answers["seeds"]))
        task["methods"] = tuple(Answers(**answers) for answers in task["methods"])
    found["tasks"] = tuple(Task(**task) for task in found["tasks"])
    return CompareResults(**found)
