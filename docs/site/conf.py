"""Sphinx's configuration of the site. scripts/release/docs-site lays out the pages and runs it."""

import inspect
import os
import re
import sys

from sphinx.util.inspect import stringify_signature

sys.path.insert(0, os.environ["ALIBI_DOCS_PACKAGE"])
from alibi_attention import _core

_core.set_torch = lambda torch: None  # PyTorch is a mock here, without its C functions

project = "alibi"
copyright = "The alibi developers"
version = release = os.environ["ALIBI_DOCS_VERSION"]
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc"]
exclude_patterns = []
myst_heading_anchors = 4  # as GitHub names them
highlight_language = "sh"  # of blocks that are indented
breathe_projects = {"alibi": os.environ["ALIBI_DOCS_XML"]}
breathe_default_project = "alibi"
breathe_show_include = False  # the title of the page names the header
suppress_warnings = ["duplicate_declaration.cpp"]  # each header opens the namespace alibi
autodoc_mock_imports = ["torch", "transformers"]  # the one class that needs them is described without them
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the package has types in its .pyi files; in a signature they hide the names
html_theme = "furo"
html_title = f"alibi {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None  # two builds give the same bytes


def entries_of(lines):
    """[(name, text)] if the lines are a table of two columns, `name  text`, with lines that continue the text."""
    entries = []
    for line, following in zip(lines, [*lines[1:], ""]):
        if entry := re.match(r"(\S+(?:(?:, | )\S+)*) {2,}(\S.*)", line):
            entries.append((entry[1], entry[2]))
        elif line[:1].strip() and following.startswith(" " * 8):  # the names fill a line
            entries.append((line, ""))
        elif entries and line.startswith(" " * 4):
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}".strip())
        else:
            return []
    return entries


def escape(text):
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text: paragraphs, tables of two columns, and indented examples."""
    paragraphs = re.split(r"\n(?:[ ]*\n)+", inspect.cleandoc("\n".join(lines)))
    lines[:] = []
    for paragraph in paragraphs:
        rows = paragraph.split("\n")
        if entries := entries_of(rows):
            for term, text in entries:
                lines += [f"``{term}``", f"    {escape(text)}", ""]
        elif all(row.startswith("    ") for row in rows):
            lines += [".. code-block:: python", "", *rows, ""]
        else:
            lines += [escape(row.strip()) for row in rows] + [""]


def signature_of_module(app, what, name, obj, options, signature, returned):
    """The signature of a class whose base is not imported here."""
    if signature == "(*args, **kwargs)":
        parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
        signature = stringify_signature(inspect.Signature(parameters), show_annotation=False)
    return signature, returned


def setup(app):
    app.connect("autodoc-process-signature", signature_of_module)
    app.connect("autodoc-process-docstring", plain_docstring)
