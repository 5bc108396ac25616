"""Runs the notebooks that are named, as Jupyter does, each in a kernel of its own; the first error ends it.

    python run_notebook.py FILE.ipynb ...
"""

import sys

import nbclient
import nbformat

for name in sys.argv[1:]:
    notebook = nbformat.read(name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    figures = sum("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    tables = sum("text/html" in output.get("data", {}) for cell in cells for output in cell.outputs)
    print(f"- {name}: {len(cells)} cells, {figures} figures, {tables} tables")
    if figures == 0 or tables == 0:
        sys.exit(f"{name}: no figure or no table was shown")
