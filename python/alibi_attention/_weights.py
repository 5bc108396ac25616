"""Tensors of model folders in NumPy, read from mapped files, and folders with the first layers of a model."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Config = dict[str, Any]

LAYER_KEYS = ("n_layers", "n_layer", "num_hidden_layers")
_BLOCK = re.compile(r"(?:^|\.)(?:blocks|h|layers?)\.(\d+)\.")


def layers_of(config: Config) -> int:
    return next(int(config[key]) for key in LAYER_KEYS if config.get(key) is not None)


def read_header(path: pathlib.Path) -> tuple[dict[str, Any], int]:
    """The tensors of a safetensors file, and the place of the first byte of data."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    index = folder / "model.safetensors.index.json"
    names = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
    return [folder / name for name in sorted(names)]


_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Folder:
    """The tensors of a folder, which stay in the mapped files until they are used."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._tensors: dict[str, tuple[Array, str]] = {}
        for path in weight_files(folder):
            header, first = read_header(path)
            data = np.memmap(path, np.uint8, "r")
            for name, tensor in header.items():
                begin, end = tensor["data_offsets"]
                if tensor["dtype"] in _KINDS:
                    values = data[first + begin : first + end].view(_KINDS[tensor["dtype"]])
                    self._tensors[name] = values.reshape(tensor["shape"]), tensor["dtype"]

    def names(self) -> Iterator[str]:
        return iter(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name][0].shape)

    def read(self, name: str, rows: Any = slice(None)) -> Array:
        values, kind = self._tensors[name]
        found = np.asarray(values[rows])
        return (found.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else found


class Weights:
    """Tensors in the type of the computation. A prefix that no name has may be left out of the names that are asked."""

    def __init__(self, source: Any, dtype: type, prefixes: Sequence[str] = ()) -> None:
        self.source, self.dtype = source, dtype
        self._names = {name: name for name in source.names()}
        for prefix in prefixes:
            self._names.update({n.removeprefix(prefix): n for n in source.names() if n.startswith(prefix)})

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Array:
        return self.rows(name, slice(None))

    def rows(self, name: str, rows: Any) -> Array:
        return np.asarray(self.source.read(self._names[name], rows).astype(self.dtype))

    def each_name(self, change: Callable[[str], str]) -> None:
        """Other names for the same tensors."""
        for name, stored in list(self._names.items()):
            self._names.setdefault(change(name), stored)

    def project(self, x: Array, name: str, normalized: bool = False) -> Array:
        """x @ the rows of a large table, a part of them at a time: logits."""
        count = self.source.shape(self._names[name])[0]
        parts = []
        for begin in range(0, count, 16384):
            table = self.rows(name, slice(begin, begin + 16384))
            if normalized:
                table /= np.maximum(np.sqrt((table * table).sum(1, keepdims=True)), 1e-12)
            parts.append(x @ table.T)
        return np.concatenate(parts, 1)


class Kept:
    """Weights that are kept once they were read."""

    def __init__(self, w: Weights) -> None:
        self._w, self._kept = w, dict[str, Array]()

    def __contains__(self, name: str) -> bool:
        return name in self._w

    def __getitem__(self, name: str) -> Array:
        if name not in self._kept:
            self._kept[name] = self._w[name]
        return self._kept[name]


def write_first_layers(folder: pathlib.Path, layers: int, out: pathlib.Path) -> None:
    """A model folder with the first layers alone: their weights are copied, other files are linked."""
    config = json.loads((folder / "config.json").read_text())
    config.update({key: min(layers, config[key]) for key in LAYER_KEYS if key in config})
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    files = weight_files(folder)
    for path in folder.iterdir():
        if path.is_file() and path.name != "config.json" and path.suffix not in (".safetensors", ".bin", ".pt", ".h5"):
            if path.name != "model.safetensors.index.json":
                (out / path.name).symlink_to(path.resolve())
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    places = []
    size = 0
    for file in files:
        tensors, first = read_header(file)
        for name, tensor in tensors.items():
            block = _BLOCK.search(name)
            if block is None or int(block[1]) < layers:
                begin, end = tensor["data_offsets"]
                places.append((file, first + begin, end - begin))
                header[name] = {**tensor, "data_offsets": [size, size + end - begin]}
                size += end - begin
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out / "model.safetensors", "wb") as target:
        target.write(len(text).to_bytes(8, "little") + text)
        for file, begin, count in places:
            with open(file, "rb") as source:
                source.seek(begin)
                while count > 0:
                    count -= target.write(source.read(min(count, 1 << 24)))
