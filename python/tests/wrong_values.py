"""Wrong values for the arguments of public functions, by the kind of the argument, and the check that each is refused.

    wrong_values.check(alibi.attention, {"q": q, "k": k, "v": v}, {"q": "array", "causal": "flag"}, unchanged=[q, k, v])

calls the function once for each wrong value of each argument, beside right values of the others. Every call must raise
TypeError or ValueError whose message names the argument, and no array of `unchanged` may change.
"""

import decimal
import fractions
import inspect
import math
import re

import numpy as np


class Bare:
    """An object that is nothing else."""

    def __repr__(self):
        return "Bare()"


class Raises:
    """An object all of whose conversions fail."""

    def _fail(self, *given, **more):
        raise RuntimeError("this value cannot be converted")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = __str__ = __fspath__ = _fail

    def __repr__(self):
        return "Raises()"


# Of no kind at all: twenty for every argument but those of the kind of the value.
NOTHING = [
    Bare(), Raises(), Bare, len, (lambda: 1), Ellipsis, NotImplemented, {"a": 1}, {1.5}, b"bytes", bytearray(b"1"), 1 + 2j,
    np.complex64(1 + 1j), np.datetime64("2026-01-01"), np.array(["a", "b"]), np.array([None, 1], object), [[1], [2, 3]],
    ["a", "b"], range, iter([1.5, 2.5]),
]  # fmt: skip

WRONG = {
    "array": [None, 1, 1.5, "no", True, [], [1.0], (1, 2), np.float32(1), np.zeros((2, 3), np.int64),
              np.zeros((2, 3), bool), *NOTHING],  # fmt: skip
    "flag": ["no", "", "True", 1.5, math.nan, 2, -1, [], [True], (), np.array([True, False]), np.array([]),
             np.float32(1), *NOTHING],  # fmt: skip
    "integer": ["1", "", 1.5, 1.0, math.nan, math.inf, 2**70, -(2**70), [], [1], (1,), np.array([1, 2]), np.array([1.0]),
                np.float32(1), decimal.Decimal(1), fractions.Fraction(1, 2), *NOTHING],  # fmt: skip
    "count": [-1, -(2**63), *(np.int64(-7), np.int32(-1))],  # beside those of integer
    "number": ["1", "", "nan", math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e300, -1e300, [], [1.0], (1.0,),
               np.array([1.0, 2.0]), np.zeros((0,)), *NOTHING],  # fmt: skip
    "share": [-1e-3, -1, 1, 1.0, 1.5, 2, 100],  # 0 <= value < 1, beside those of number
    "text": [1, 1.5, True, math.nan, [], ["a"], (), np.array([1, 2]), 2**70, *NOTHING],
    "choice": ["", "no", "NONE", "\0", "x" * 1000],  # beside those of text
    "slopes": ["no", 1, 1.5, [-1.0], math.nan, [], np.array([1.0, math.nan]), np.zeros((3, 3, 3, 3), np.float32),
               np.full(7, -1, np.float32), np.array([1 + 2j] * 4), ["1", "2"], True, 2**70, *NOTHING],  # fmt: skip
    "offsets": ["no", 1.5, [0.0, 5.5], [0, 2**40], [0, -(2**40)], np.array([0.5, 1.5]), math.nan, [], [[0, 1], [1, 2]],
                np.array([1 + 2j] * 3), ["0", "5"], [True, False], [2**70], *NOTHING],  # fmt: skip
    "window": [1, 1.5, "no", "ab", (1,), (1, 2, 3), (1.5, 2), (None, None), ("a", "b"), [], (math.nan, 1), (2**70, 0),
               (1, [2]), (0, math.inf), *NOTHING],  # fmt: skip
}
WRONG["count"] += WRONG["integer"]
WRONG["share"] += WRONG["number"]
WRONG["choice"] += WRONG["text"]


def _state(arrays):
    return [np.array(a.detach().float() if hasattr(a, "detach") else a, copy=True) for a in arrays]


def check(function, given, kinds, unchanged=(), accepted=(), named=None):
    """Returns the number of calls. Each value of `kinds` is the name of a kind, or a list of wrong values.

    accepted   pairs of an argument and the repr of a value that is right there, such as ("seed", "-1")
    named      what the message calls an argument, for those that it calls by another name
    """
    before, calls, failures = _state(unchanged), 0, []
    for name, kind in kinds.items():
        values = WRONG[kind] if isinstance(kind, str) else kind
        assert len(values) >= 20 or not isinstance(kind, str)
        for value in values:
            if (name, repr(value)) in accepted:
                continue
            calls += 1
            # An iterator is used up by the first function that gets it.
            one = iter([1.5, 2.5]) if type(value) is type(iter([])) else value
            what = f"{getattr(function, '__qualname__', function)}({name}={value!r:.60})"
            try:
                function(**{**given, name: one})
            except (TypeError, ValueError) as error:
                message = str(error)
                if not re.search(rf"\b({(named or {}).get(name, name)})\b", message):
                    failures.append(f"{what}: the message does not name it: {message[:200]}")
            except Exception as error:
                failures.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
            else:
                failures.append(f"{what}: accepted")
    for index, (a, b) in enumerate(zip(before, _state(unchanged))):
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            failures.append(f"array {index} was changed")
    assert not failures, f"{len(failures)} of {calls}:\n" + "\n".join(failures)
    return calls


def arguments_of(function):
    """The names of all arguments, so that a table can be held to have all of them."""
    return [name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")]
