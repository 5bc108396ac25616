"""Text that models are trained on and measured on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Union

from ._arguments import naming, path, text as check_text, wrong_type
from ._core import UsageError

Text = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
"""A str is text; a pathlib.Path is a file, a folder, or a folder of `alibi tokenize`; or several of these."""


@contextlib.contextmanager
def paths_of(operation: str, *texts: Text | None) -> Iterator[list[list[str]]]:
    """Of each text the files that it is in, for as long as the context lasts; None: no files."""
    with tempfile.TemporaryDirectory(prefix="alibi-") as folder:
        named = zip(("text", "valid"), texts)
        yield [_paths(operation, name, text, pathlib.Path(folder) / name) for name, text in named]


def _paths(operation: str, name: str, text: Text | None, folder: pathlib.Path) -> list[str]:
    if text is None:
        return []
    expected = "a str, a pathlib.Path, or a list of these"
    if not isinstance(text, (str, os.PathLike)) and (isinstance(text, bytes) or not isinstance(text, Iterable)):
        raise wrong_type(operation, name, text, expected)
    with naming(operation, name, text):
        parts = [text] if isinstance(text, (str, os.PathLike)) else list(text)
    if not parts:
        raise UsageError(f"[{operation}] {name} is an empty list, expected at least one text, file or folder")
    result = []
    for i, part in enumerate(parts):
        if isinstance(part, os.PathLike):
            result.append(path(operation, name, part))
            continue
        if not isinstance(part, str):
            raise wrong_type(operation, name, part, expected)
        check_text(operation, name, part)
        if "\n" not in part and len(part) < 4096 and "\0" not in part and os.path.exists(part):
            raise UsageError(f"[{operation}] '{part}' is a file or folder; a str is text: say pathlib.Path({part!r})")
        folder.mkdir(exist_ok=True)
        file = folder / f"{i}.txt"
        file.write_text(part, encoding="utf-8", newline="")
        result.append(str(file))
    return result
