"""Checks of arguments against the annotations of a function: an error names the operation, the argument and the value."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _core
from ._core import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Converts and checks the arguments whose annotations are in _CHECKS, before the function is called."""
    return _checked(function, inspect.signature(function), {})


def checked_options(options: type, defaults: Mapping[str, Any]) -> Callable[[Function], Function]:
    """checked() for functions whose `**options` are those of a TypedDict. They get all of them, with these defaults, and
    have all of them in their signature."""

    def decorator(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name],
                              annotation=getattr(hint, "__forward_arg__", hint))
            for name, hint in options.__annotations__.items()
        ]  # fmt: skip
        return _checked(function, signature.replace(parameters=[*own, *named]), defaults)

    return decorator


def _checked(function: Function, signature: inspect.Signature, defaults: Mapping[str, Any]) -> Function:
    owner = function.__qualname__.split(".")
    operation = owner[-2] if owner[-1] == "__init__" else owner[-1]
    checks = {
        name: _CHECKS[parameter.annotation]
        for name, parameter in signature.parameters.items()
        if parameter.annotation in _CHECKS
    }

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        bound = signature.bind(*args, **given)
        for name, value in bound.arguments.items():
            if name in checks:
                with naming(operation, name, value):
                    bound.arguments[name] = checks[name](operation, name, value)
        return function(*bound.args, **{**defaults, **bound.kwargs})

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


@contextlib.contextmanager
def naming(operation: str, name: str, value: Any) -> Iterator[None]:
    """Names the argument in what the value's own conversion raises."""
    try:
        yield
    except UsageError:
        raise
    except TypeError as error:
        if str(error).startswith(f"[{operation}]"):
            raise
        raise TypeError(f"[{operation}] {name} is a {type(value).__name__}: {error}") from error
    except Exception as error:
        kind = type(value).__name__
        raise TypeError(f"[{operation}] {name} is a {kind}, which cannot be converted: {error}") from error


def wrong_type(operation: str, name: str, value: Any, expected: str) -> TypeError:
    kind = type(value).__name__
    return TypeError(f"[{operation}] {name} is {'an' if kind[:1] in 'aeiou' else 'a'} {kind}, expected {expected}")


def integer(operation: str, name: str, value: Any) -> int:
    if name == "seed" and type(value) is int:  # of 64 bits without a sign
        if not 0 <= value < 2**64:
            raise UsageError(f"[{operation}] seed is {value}, expected 0 to {2**64 - 1}")
        return value
    number = _core.integer(operation, name, value)
    if name == "seed" and number < 0:
        raise UsageError(f"[{operation}] seed is {number}, expected 0 to {2**64 - 1}")
    return number


def text(operation: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(operation, name, value, "a str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"[{operation}] {name} has the character U+{ord(value[error.start]):04X} at {error.start}, which is half of a "
            "surrogate pair, expected text that UTF-8 can express"
        ) from None
    return value


def texts(operation: str, name: str, value: Any) -> list[str]:
    """Of a list; a single str is one text."""
    if isinstance(value, str):
        return [text(operation, name, value)]
    if isinstance(value, (bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise wrong_type(operation, name, value, "texts (a str or a list of str); read a file first")
    return [text(operation, f"{name}[{i}]", part) for i, part in enumerate(value)]


def list_of_texts(operation: str, name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        raise wrong_type(operation, name, value, "a list of str")
    return texts(operation, name, value)


def text_or_texts(operation: str, name: str, value: Any) -> str | list[str]:
    return text(operation, name, value) if isinstance(value, str) else texts(operation, name, value)


def path(operation: str, name: str, value: Any) -> str:
    with naming(operation, name, value):
        found = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(found, str):
        raise wrong_type(operation, name, value, "a str or a pathlib.Path")
    if not found or "\0" in found:
        raise UsageError(f"[{operation}] {name} is {found!r}, expected the path of a file or folder")
    return found


def function(operation: str, name: str, value: Any) -> Any:
    if not callable(value):
        raise wrong_type(operation, name, value, "a function or None")
    return value


def integers(operation: str, name: str, value: Any) -> list[int]:
    return [integer(operation, f"{name}[{i}]", one) for i, one in enumerate(_items(operation, name, value, "integers"))]


def numbers(operation: str, name: str, value: Any) -> list[float]:
    return [_core.real(operation, f"{name}[{i}]", one) for i, one in enumerate(_items(operation, name, value, "numbers"))]


def biases(operation: str, name: str, value: Any) -> dict[int, float]:
    """Numbers by token id."""
    if not isinstance(value, Mapping):
        raise wrong_type(operation, name, value, "a dict of token ids and numbers")
    found = {}
    for key, number in value.items():
        token = integer(operation, f"{name} has a key that", key)
        if not 0 <= token < 2**31:
            raise UsageError(f"[{operation}] {name} has the key {token}, expected the id of a token")
        found[token] = _core.real(operation, f"{name}[{token}]", number)
    return found


def _items(operation: str, name: str, value: Any, expected: str) -> list[Any]:
    if isinstance(value, (str, bytes, bytearray)) or not (isinstance(value, Sequence) or int(getattr(value, "ndim", 0)) == 1):
        raise wrong_type(operation, name, value, f"a list of {expected}")
    return list(value)


def token_ids(ids: Any, operation: str, name: str = "ids", vocab_size: int = 0) -> np.ndarray[Any, Any]:
    """int32. vocab_size 0: any integers of 32 bits."""
    try:
        if isinstance(ids, (bytes, bytearray)):
            raise TypeError("bytes are text")
        found = np.asarray(ids)
    except Exception as error:  # of NumPy, PyTorch or the object itself
        of_rows = isinstance(error, ValueError) and isinstance(ids, Sequence)
        why = "rows of different lengths, expected rows of one length" if of_rows else f"expected integers ({error})"
        raise UsageError(f"[{operation}] {name} {'have' if of_rows else f'are a {type(ids).__name__},'} {why}") from None
    if found.size and found.dtype.kind not in "iu":
        raise UsageError(f"[{operation}] {name} are {found.dtype}, expected integers")
    if found.size:
        least, most = (0, vocab_size - 1) if vocab_size else (-(2**31), 2**31 - 1)
        for value in (int(found.min()), int(found.max())):
            if not least <= value <= most:
                raise UsageError(f"[{operation}] {name} contain {value}, expected integers from {least} to {most}")
    return np.ascontiguousarray(found, np.int32)


def token_sequence(ids: Any, operation: str, name: str = "ids", vocab_size: int = 0) -> np.ndarray[Any, Any]:
    found = token_ids(ids, operation, name, vocab_size)
    if found.ndim != 1 or not found.size:
        raise UsageError(f"[{operation}] {name} have shape {found.shape}, expected (length,) with at least one")
    return found


def _or_none(check: Callable[[str, str, Any], Any]) -> Callable[[str, str, Any], Any]:
    return lambda operation, name, value: None if value is None else check(operation, name, value)


_CHECKS: dict[Any, Callable[[str, str, Any], Any]] = {
    "int": integer,
    "float": _core.real,
    "bool": _core.flag,
    "str": text,
    "str | Sequence[str]": text_or_texts,
    "Sequence[str]": list_of_texts,
    "str | os.PathLike[str]": path,
    "Sequence[int]": integers,
    "Sequence[float]": numbers,
    "Mapping[int, float]": biases,
}
_CHECKS.update({f"{name} | None": _or_none(check) for name, check in list(_CHECKS.items())})
_CHECKS.update({f"{name} | None": _or_none(function) for name in ("OnProgress", "Callable[[str], object]")})
