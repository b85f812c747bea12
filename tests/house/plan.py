"""What the house is like, in numbers: size per room, and what following `fit` asks of a reader.

    python tests/house/plan.py [REPOSITORY …]          one table for each checkout
    python tests/house/plan.py --walk [REPOSITORY …]   besides, `fit` on 200 made photos is run and traced (a minute each)

Reads the source without importing it. Tests beside it hold some of the numbers at zero; `docs/decisions` quotes the others.
"""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("unchoke", "unchoke_doctor")
COLUMNS = ("lines", "statements", "files", "median", "p95", "imports", "one use")


class House:
    """One checkout: the modules of the trainer by name, and questions about them."""

    def __init__(self, root: Path = ROOT, package: str = "unchoke") -> None:
        self.root, self.source = root, root / "src" / package
        self.files = {self._name(file): file for file in sorted(self.source.rglob("*.py"))}
        self.trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in self.files.items()}

    @cached_property
    def nodes(self) -> dict[str, list[ast.AST]]:
        """Every node of each module: walking the trees takes longer than any question about them."""
        return {name: list(ast.walk(tree)) for name, tree in self.trees.items()}

    def _name(self, file: Path) -> str:
        parts = file.relative_to(self.source.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def defined(self) -> dict[str, set[str]]:
        """The names each module gives itself at its top level, imports left out."""
        return {name: set(_defined(tree.body)) for name, tree in self.trees.items()}

    def doors(self) -> list[str]:
        """Imports through a module that does not define the name: `importer <- module.name`."""
        found = []
        for importer, nodes in self.nodes.items():
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and node.module in self.files:
                    names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in self.files]
                    found += [f"{importer} <- {node.module}.{name}" for name in names if name not in self.defined[node.module]]
        return found

    def rooms(self) -> dict[str, list[str]]:
        """The modules of each folder directly below the package."""
        rooms: dict[str, list[str]] = {}
        for name, file in self.files.items():
            parts = file.relative_to(self.source).parts
            rooms.setdefault(parts[0] if len(parts) > 1 else "(top)", []).append(name)
        return rooms

    def measure(self, modules: list[str]) -> tuple[str, ...]:
        nodes = [node for name in modules for node in self.nodes[name]]
        num_lines = sum(self.files[name].read_text(encoding="utf-8").count("\n") for name in modules)
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        lengths = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions) or [0]
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        import_lines = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)
        return (
            f"{num_lines:,}",
            f"{sum(isinstance(node, ast.stmt) for node in nodes):,}",
            f"{len(modules)}",
            f"{statistics.median(lengths):.0f}",
            f"{lengths[int(0.95 * len(lengths))]}",
            f"{import_lines / max(num_lines, 1):.1%}",
            f"{sum(self._used_once(name) for name in modules):,}",
        )

    def _used_once(self, module: str) -> int:
        """How many private functions of a module it names once beside their definition."""
        uses = Counter(node.id for node in self.nodes[module] if isinstance(node, ast.Name))
        private = [
            node.name for node in self.trees[module].body if isinstance(node, ast.FunctionDef) and node.name.startswith("_")
        ]
        return sum(uses[name] == 1 for name in private if not name.startswith("__"))


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            blocks = [node.body, getattr(node, "orelse", []), *(handler.body for handler in getattr(node, "handlers", []))]
            yield from (name for block in blocks for name in _defined(block))
        elif isinstance(node, ast.ImportFrom):  # `import name as name` hands a name on, on purpose
            yield from (alias.name for alias in node.names if alias.asname == alias.name)


TRACED = """
import pathlib, sys, threading
import numpy as np
from PIL import Image

source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
entered = {}

def hear(frame, event, _):
    if event == "call" and frame.f_code not in entered and not frame.f_code.co_name.startswith("<"):
        entered[frame.f_code] = frame.f_code.co_filename

rng = np.random.default_rng(0)
for index in range(200):
    photo = folder / "photos" / "ab"[index % 2] / f"{index}.jpg"
    photo.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(0, 255, (64, 64, 3)) // 2 + 60 * (index % 2)
    Image.fromarray(pixels.astype("uint8")).save(photo)
import unchoke

threading.setprofile(hear)
sys.setprofile(hear)
unchoke.fit(folder / "photos", out=folder / "workspace")
sys.setprofile(None)
files = [pathlib.Path(name).resolve().relative_to(source) for name in entered.values() if name.startswith(str(source))]
rooms = [file.parts[1] if len(file.parts) > 2 else "(top)" for file in files]
changes = sum(before != after for before, after in zip(rooms, rooms[1:]))
print(f"walk of fit: {len(set(files))} files, {len(files)} functions, {changes} changes of room in the order of first entry")
"""


def trace_fit(root: Path) -> str:
    """Run `fit` of a checkout in a process of its own and count the functions of ours that it enters."""
    source = root.resolve() / "src"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TRACED, str(source), folder]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False, timeout=600
        )
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else f"walk of fit: failed\n{done.stderr[-2000:]}"


def main() -> None:
    roots = [Path(argument) for argument in sys.argv[1:] if argument != "--walk"] or [ROOT]
    for root in roots:
        print(f"{root}\n{'room':28}" + "".join(f"{column:>12}" for column in COLUMNS))
        for package in PACKAGES:
            house = House(root, package)
            rows = {f"{package}/{room}": modules for room, modules in sorted(house.rooms().items())} | {
                package: list(house.files)
            }
            for name, modules in rows.items():
                if modules:
                    print(f"{name:28}" + "".join(f"{value:>12}" for value in house.measure(modules)))
        if "--walk" in sys.argv:
            print(trace_fit(root))


if __name__ == "__main__":
    main()
