"""Holds the sources to docs/explanation/layout.md: who includes whom, and which namespace names of a folder belong to.

    python3 tests/layout/layout_test.py
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYOUT = (ROOT / "docs" / "explanation" / "layout.md").read_text(encoding="utf-8")


def section(title):
    return LAYOUT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def drawn():
    """The lines of the picture below "Who may use whom", from the top, each a list of folders."""
    lines = [line.split() for line in section("Who may use whom").splitlines() if line.startswith("    ")]
    return [line for line in lines if line]


def folder_of(path):
    parts = path.relative_to(ROOT).parts
    return "cli" if parts[0] == "cli" else "/".join(parts[1:-1])


def sources():
    return [path for top in ("src", "cli") for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".cc", ".h")]


def homes_of_public_headers():
    """alibi/tensor.h is implemented in the folder that has a tensor.cc."""
    homes = {}
    for path in sources():
        if path.suffix == ".cc" and (ROOT / "include" / "alibi" / f"{path.stem}.h").exists():
            homes.setdefault(f"alibi/{path.stem}.h", folder_of(path))
    return homes


def arrows():
    """(from folder, to folder, file, what it includes) for every include that leaves its folder."""
    homes = homes_of_public_headers()
    for path in sources():
        own = folder_of(path)
        for included in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            target = homes.get(included) if included.startswith("alibi/") else str(pathlib.PurePosixPath(included).parent)
            if target is None or target in (".", own):
                continue
            if included.startswith("alibi/") or (ROOT / "src" / included).exists():
                yield own, target, path.relative_to(ROOT), included


# A namespace has the name of its folder; where that is a verb, or the name of a public function, it is a noun.
NAMESPACES = {"attention": "kernels", "train": "training", "evaluate": "evaluation", "generate": "generation",
              "compare": "comparison"}


def namespace_of(path):
    parts = path.relative_to(ROOT).parts
    folder = "cli" if parts[0] == "cli" else parts[1]
    return f"alibi::{NAMESPACES.get(folder, folder)}"


def plain(text):
    """C++ without comments, preprocessor lines and the contents of strings."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/',
                  lambda match: '""' if match[0][0] == '"' else "0" if match[0][0] == "'" else "", text, flags=re.DOTALL)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.MULTILINE)


def declarations(text):
    """Everything declared in a namespace, without entering classes and functions: the namespace (in an unnamed one it
    ends in "::"), the text up to the first brace or semicolon, and which of the two ended it."""
    text = plain(text)
    opened, start, depth = [], 0, 0
    for match in re.finditer(r"[{};]", text):
        if depth > 0:  # inside a class or a function
            depth += {"{": 1, "}": -1, ";": 0}[match[0]]
            if depth == 0:
                start = match.end()
            continue
        words = " ".join(text[start:match.start()].split())
        if match[0] == "{":
            namespace = re.fullmatch(r"(?:inline )?namespace ?([\w:]*)", words)
            if namespace:
                opened.append(namespace[1])
                start = match.end()
                continue
            yield "::".join(opened), words, "{"
            depth = 1
        elif match[0] == "}":
            if opened:
                opened.pop()
            start = match.end()
        else:
            if words:
                yield "::".join(opened), words, ";"
            start = match.end()


def declared_name(words):
    """The name that a declaration declares, with the class before it where it is a member's: "Tensor::data"; None for
    what declares none."""
    if words.startswith("template <>"):  # a specialization of a name that another file declares
        return None
    words = re.sub(r"^(?:template <.*?>(?= (?!>)) )+", "", words)
    words = re.sub(r"\[\[.*?\]\] ?|ALIBI_\w+ |HWY_\w+ ", "", words)
    kind = re.match(r"(?:class|struct|enum class|enum|union) ([\w:]+)", words)
    if kind:
        return kind[1]
    alias = re.match(r"using (\w+) =", words)
    if alias:
        return alias[1]
    if re.match(r"(?:using|static_assert|typedef|extern|friend|namespace)\b|[^\w:~]", words):
        return None
    head = re.split(r" = |(?<!operator)\(", words, maxsplit=1)[0]
    name = re.search(r"([\w:~]+)(?:<[^()]*>)?(?:operator\W+|operator \w+)?$", head.strip())
    return name[1] if name else None


def is_definition_of_class(words):
    return re.match(r"(?:template <.*> )?(?:class|struct) (?:\[\[.*?\]\] )?[\w:]+(?: final)?(?: : .*)?$", words)


class Layout(unittest.TestCase):
    def test_private_names_live_in_the_namespace_of_their_folder(self):
        public = {(declared_name(words) or "").split("::")[0] for path in (ROOT / "include" / "alibi").glob("*.h")
                  for namespace, words, _ in declarations(path.read_text(encoding="utf-8")) if namespace == "alibi"}
        wrong = []
        for path in sources():
            for namespace, words, _ in declarations(path.read_text(encoding="utf-8")):
                name = declared_name(words)
                if name is None or namespace.endswith("::"):
                    continue
                inside = f"{namespace}::{name}".startswith(namespace_of(path) + "::")
                if namespace == "alibi" and name.split("::")[0] in public:
                    continue
                if not namespace.startswith("alibi"):
                    continue
                if not inside:
                    wrong.append(f"{path.relative_to(ROOT)}: {name} is in {namespace}, expected {namespace_of(path)}")
        self.assertEqual(wrong, [], "see docs/explanation/layout.md, Namespaces")

    def test_no_class_is_defined_twice(self):
        files = {}
        tests = [path for path in sorted((ROOT / "tests").rglob("*")) if path.suffix in (".cc", ".h")]
        for path in [*sources(), *sorted((ROOT / "include" / "alibi").glob("*.h")), *tests]:
            for namespace, words, end in declarations(path.read_text(encoding="utf-8")):
                if end == "{" and not namespace.endswith("::") and is_definition_of_class(words) and "<" not in words.split(" : ")[0]:
                    files.setdefault(f"{namespace}::{declared_name(words)}", set()).add(str(path.relative_to(ROOT)))
        twice = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
        self.assertEqual(twice, {})

    def test_arrows_point_down(self):
        height = {folder: -line for line, folders in enumerate(drawn()) for folder in folders}
        wrong = [
            f"{path} includes {included}: {own} must not use {target}"
            for own, target, path, included in arrows()
            if own not in height or target not in height or height[target] >= height[own]
        ]
        self.assertEqual(wrong, [], "see docs/explanation/layout.md, Who may use whom")

    def test_every_folder_is_drawn_once_and_described(self):
        folders = sorted({folder_of(path) for path in sources()})
        named = sorted(folder for line in drawn() for folder in line)
        self.assertEqual(named, folders)
        overview = LAYOUT.split("## Who may use whom", 1)[0]
        for folder in folders:
            self.assertRegex(overview, rf"\n +{folder.split('/')[-1]}/ ", f"{folder} has no line in the overview")

    def test_the_debian_package_lists_the_functions_of_the_c_interface(self):
        header = (ROOT / "include/alibi/c.h").read_text(encoding="utf-8")
        functions = set(re.findall(r"^ALIBI_API [^(;]*?(alibi_\w+)\(", header, re.MULTILINE))
        libraries = (ROOT / "packaging/debian/libalibi0.symbols").read_text(encoding="utf-8").split("Build-Depends")[1:]
        self.assertGreater(len(functions), 20)
        self.assertEqual(len(libraries), 2)
        for listed in libraries:
            self.assertEqual(functions, set(re.findall(r"^ (alibi_\w+)@", listed, re.MULTILINE)))

    def test_there_are_arrows(self):
        self.assertIn(("attention/vector", "attention"), {(own, target) for own, target, _, _ in arrows()})
        self.assertIn(("train", "model"), {(own, target) for own, target, _, _ in arrows()})


if __name__ == "__main__":
    sys.exit(unittest.main())
