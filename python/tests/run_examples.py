"""Runs the blocks of Python in the files that are named, each file's in order in one namespace.

    python run_examples.py [--torch] FILE.md ...

Blocks that name torch or transformers are run with --torch alone.
"""

import pathlib
import re
import sys

with_torch = "--torch" in sys.argv[1:]
ran = 0
for name in sys.argv[1:]:
    if name.startswith("--"):
        continue
    text = pathlib.Path(name).read_text(encoding="utf-8")
    variables = {}
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if re.search(r"\b(torch|transformers)\b", match[1]) and not with_torch:
            continue
        line = text[: match.start(1)].count("\n")
        exec(compile("\n" * line + match[1], name, "exec"), variables)  # what the docs say
        ran += 1
print(f"- {ran} examples of the docs ran")
sys.exit(ran == 0)
