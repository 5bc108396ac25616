"""The arrows between the folders of src/ and cli/ are those that docs/layout.md draws, and it names every folder.

    python3 tests/layout/layout_test.py
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYOUT = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")


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


class Layout(unittest.TestCase):
    def test_arrows_point_down(self):
        height = {folder: -line for line, folders in enumerate(drawn()) for folder in folders}
        wrong = [
            f"{path} includes {included}: {own} must not use {target}"
            for own, target, path, included in arrows()
            if own not in height or target not in height or height[target] >= height[own]
        ]
        self.assertEqual(wrong, [], "see docs/layout.md, Who may use whom")

    def test_every_folder_is_drawn_once_and_described(self):
        folders = sorted({folder_of(path) for path in sources()})
        named = sorted(folder for line in drawn() for folder in line)
        self.assertEqual(named, folders)
        overview = LAYOUT.split("## Who may use whom", 1)[0]
        for folder in folders:
            self.assertRegex(overview, rf"\n +{folder.split('/')[-1]}/ ", f"{folder} has no line in the overview")

    def test_there_are_arrows(self):
        self.assertIn(("attention/vector", "attention"), {(own, target) for own, target, _, _ in arrows()})
        self.assertIn(("train", "model"), {(own, target) for own, target, _, _ in arrows()})


if __name__ == "__main__":
    sys.exit(unittest.main())
