"""What bench/gpu/peers.py tells ctypes of the C interface is what include/alibi/c.h says.

    python3 tests/gpu/peers_test.py
"""

import ast
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = {"size_t": "c_size_t", "int64_t": "c_int64", "uint64_t": "c_uint64", "int32_t": "c_int32", "float": "c_float"}


def of_header(name):
    """[(field, type)] of a struct of c.h; a pointer is c_void_p, an array its type and size."""
    text = (ROOT / "include" / "alibi" / "c.h").read_text(encoding="utf-8")
    body = re.search(rf"typedef struct {name} \{{(.*?)\n\}}", text, re.DOTALL).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    fields = []
    for kind, pointer, field, size in re.findall(r"(?:const )?(\w+)\s*(\*?)\s*(\w+)(?:\[(\d+)\])?;", body):
        kind = "c_void_p" if pointer else TYPES[kind]
        fields.append((field, f"{kind} * {size}" if size else kind))
    return fields


def of_script(name):
    """The same of a ctypes.Structure."""
    tree = ast.parse((ROOT / "bench" / "gpu" / "peers.py").read_text(encoding="utf-8"))
    structure = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    fields = next(node.value for node in structure.body if isinstance(node, ast.Assign))
    return [(pair.elts[0].value, ast.unparse(pair.elts[1]).replace("ctypes.", "")) for pair in fields.elts]


class Structures(unittest.TestCase):
    def test_options(self):
        self.assertGreater(len(of_header("alibi_attention_options")), 20)
        self.assertEqual(of_script("COptions"), of_header("alibi_attention_options"))

    def test_tensor(self):
        self.assertEqual(of_script("CTensor"), of_header("alibi_tensor"))


if __name__ == "__main__":
    sys.exit(unittest.main())
