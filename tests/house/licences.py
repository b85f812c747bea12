"""The table of docs/licences.md, from what the installed packages say of themselves; run as a script, this writes it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
HEAD = "| package | needed for | licence, as the package states it |\n|---|---|---|\n"
FOR_DEVELOPERS = {"dev", "bench"}
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def requirements() -> dict[str, list[str]]:
    """Every package that a user's installation may bring in directly, and which extras ask for it; "" is unchoke itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = {}
    for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for line in lines if extra not in FOR_DEVELOPERS else ():
            name = _NAME.match(line)
            assert name is not None, line
            if name[0] != "unchoke":
                found.setdefault(name[0], []).append(extra)
    return found


def licence(name: str) -> str:
    """What the package's own metadata says, if that names a licence; else the first line of the licence file that it brings."""
    package = distribution(name)
    told = package.metadata
    if told.get("License-Expression"):
        return str(told["License-Expression"])
    classifiers = [
        one.rpartition(" :: ")[2] for one in told.get_all("Classifier", []) if one.startswith("License :: OSI Approved ::")
    ]
    lines = (told.get("License") or "").strip().splitlines()
    if lines and lines[0] != "UNKNOWN" and not lines[0].startswith("Copyright"):  # some put the whole text there
        return lines[0].strip()
    files = [file for file in package.files or () if re.match(r"LICEN[CS]E", file.name)]
    first = next((line.strip() for file in files for line in file.read_text().splitlines() if line.strip()), "")
    return ", ".join(classifiers) or (f"{first} (its file {files[0].name})" if first else "not stated")


def rows() -> Iterator[str]:
    for name, extras in sorted(requirements().items(), key=lambda pair: pair[0].lower()):
        needed = "everything" if "" in extras else ", ".join(f"`unchoke[{extra}]`" for extra in extras)
        yield f"| {name} | {needed} | {licence(name)} |\n"


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition(HEAD)[0]
    PAGE.write_text(before + HEAD + "".join(rows()), encoding="utf-8")
