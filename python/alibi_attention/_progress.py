"""Where long work stands, for callbacks."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where train(), compare() or evaluate() stands. What a phase does not have is left at its default."""

    phase: str
    fraction: float
    """Of the phase."""
    method: str = ""
    task: str = ""
    """compare(): the task of the run; empty: text."""
    run: int = 0
    """compare(): counted from 0, of `runs`."""
    runs: int = 0
    step: int = 0
    steps: int = 0
    tokens: int = 0
    loss: float = float("nan")
    """Nats, of the last update."""
    valid_loss: float | None = None
    """Held-out nll, if it was measured after this update (eval_steps)."""
    learning_rate: float = 0.0
    tokens_per_second: float = 0.0
    length: int = 0
    """compare(), in phase "evaluate"."""
    seconds: float = 0.0
    seconds_left: float = 0.0
    """Estimate; 0 if not known yet."""

    def __str__(self) -> str:
        parts = [" ".join(filter(None, (self.phase, self.task, self.method)))]
        if self.runs:
            parts.append(f"{self.run + 1}/{self.runs}")
        parts.append(f"{100 * self.fraction:3.0f} %")
        if self.loss == self.loss:
            parts.append(f"loss {self.loss:.3f}")
        if self.phase == "evaluate" and self.length:
            parts.append(f"at length {self.length}")
        if self.seconds_left > 0:
            parts.append(f"{self.seconds_left:.0f} s left")
        return "  ".join(parts)


OnProgress = Callable[[Progress], object]


class _Line:
    """One line that is rewritten, in terminals and in notebooks."""

    def __init__(self) -> None:
        self._at = 0.0
        self._phase = ""

    def __call__(self, progress: Progress) -> None:
        if not isinstance(progress, Progress):
            raise TypeError(f"[show_progress] progress is a {type(progress).__name__}, expected a Progress")
        phase = f"{progress.phase} {progress.method} {progress.run}"
        ends = progress.fraction >= 1
        if phase == self._phase and not ends and time.monotonic() - self._at < 0.1:
            return
        if self._phase not in ("", phase):
            sys.stdout.write("\n")
        sys.stdout.write(f"\r{str(progress):<79}")
        sys.stdout.flush()
        self._phase, self._at = phase, time.monotonic()
        if ends:
            sys.stdout.write("\n")
            self._phase = ""


show_progress: OnProgress = _Line()
"""For `on_progress`: one line, which is rewritten, in a terminal or a notebook."""


def from_core(on_progress: OnProgress | None) -> Callable[[Any], object] | None:
    """What _core calls: with a dict of the fields, or with the fraction of an evaluation."""
    if on_progress is None:
        return None

    def call(status: Any) -> object:
        if isinstance(status, float):
            return on_progress(Progress("evaluate", status))
        return on_progress(Progress(**status))

    return call
