"""Small notebooks for tests: a file of format 4 from the sources of its cells, and a kernel of this very interpreter."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def book(cells: Sequence[str | tuple[str, str]], *, kernel: str = "python3") -> bytes:
    """A notebook's bytes. A source that begins with `#:` is a cell of text; a pair is a source and its tag."""
    made = []
    for cell in cells:
        source, tag = cell if isinstance(cell, tuple) else (cell, "")
        meta = {"tags": [tag]} if tag else {}
        if source.startswith("#:"):
            made.append({"cell_type": "markdown", "metadata": meta, "source": source[2:]})
        else:
            code = {"cell_type": "code", "metadata": meta, "source": source, "outputs": [], "execution_count": None}
            made.append(code)
    meta = {"kernelspec": {"name": kernel, "display_name": "tests", "language": "python"}}
    return json.dumps({"cells": made, "metadata": meta, "nbformat": 4, "nbformat_minor": 5}).encode()


def write_book(path: Path, cells: Sequence[str | tuple[str, str]], *, kernel: str = "python3") -> Path:
    path.write_bytes(book(cells, kernel=kernel))
    return path


def own_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python3` mean the interpreter the tests run in, and keep its files out of the home folder."""
    spec = folder / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "tests", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
