"""The design notes: each has a number of its own, and whoever names one names one that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTES = ROOT / "docs/adr"
TEXTS = ("docs/**/*.md", "*.md", "enroot_py/**/*.py", "pyxis_py/**/*.py", "spank_shim/*")
NAMED = re.compile(r"\badr/(\d{4})(-[\w-]+\.md)?")


def test_numbers_are_unique_and_stand_in_the_heading() -> None:
    found: dict[int, str] = {}
    for path in sorted(NOTES.glob("*.md")):
        number = int(path.name[:4])
        assert number not in found, f"{path.name} and {found[number]}"
        found[number] = path.name
        heading = path.read_text(encoding="utf-8").partition("\n")[0]
        assert re.match(rf"# 0*{number}\b", heading), path.name


def test_notes_that_are_named_exist() -> None:
    notes = {path.name for path in NOTES.glob("*.md")}
    numbers = {name[:4] for name in notes}
    for pattern in TEXTS:
        for path in ROOT.glob(pattern):
            if not path.is_file():
                continue
            for number, rest in NAMED.findall(path.read_text(encoding="utf-8")):
                there = number + rest in notes if rest else number in numbers
                assert there, f"{path.relative_to(ROOT)} names adr/{number}{rest}"
