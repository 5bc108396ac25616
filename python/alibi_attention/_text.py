"""Text that models are trained on and measured on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Union

from ._core import UsageError

Text = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
"""A str is text; a pathlib.Path is a file, a folder, or a folder of `alibi tokenize`; or several of these."""


@contextlib.contextmanager
def paths_of(operation: str, *texts: Text | None) -> Iterator[list[list[str]]]:
    """Of each text the files that it is in, for as long as the context lasts; None: no files."""
    with tempfile.TemporaryDirectory(prefix="alibi-") as folder:
        yield [_paths(operation, text, pathlib.Path(folder) / str(i)) for i, text in enumerate(texts)]


def _paths(operation: str, text: Text | None, folder: pathlib.Path) -> list[str]:
    if text is None:
        return []
    result = []
    for i, part in enumerate([text] if isinstance(text, (str, os.PathLike)) else text):
        if not isinstance(part, str):
            result.append(os.fspath(part))
            continue
        if "\n" not in part and len(part) < 4096 and "\0" not in part and os.path.exists(part):
            raise UsageError(f"[{operation}] '{part}' is a file or folder; a str is text: say pathlib.Path({part!r})")
        folder.mkdir(exist_ok=True)
        file = folder / f"{i}.txt"
        file.write_text(part, encoding="utf-8", newline="")
        result.append(str(file))
    return result
