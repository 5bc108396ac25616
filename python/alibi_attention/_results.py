"""What results have in common: rows for pandas, a table for notebooks, axes for figures."""

from __future__ import annotations

import dataclasses
import html
import importlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ._core import Error


class Result:
    """A dataclass of plain values and NumPy arrays."""

    def to_dict(self) -> dict[str, Any]:
        """Its fields; results in it are dicts too, arrays stay arrays."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def frame(columns: dict[str, Any]) -> Any:
    """A pandas.DataFrame."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise Error("[to_pandas] needs the package pandas: pip install pandas") from error
    return pandas.DataFrame(columns)


def axes(ax: Any) -> Any:
    """`ax`, or the axes of a new figure of matplotlib's."""
    if ax is not None:
        return ax
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise Error("[plot] needs the package matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


def show(value: Any) -> str:
    """A number as people read it."""
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """HTML."""
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    names = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    lines = ("".join(f"<td>{html.escape(show(cell))}</td>" for cell in row) for row in rows)
    return f"<table>{above}<tr>{names}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
