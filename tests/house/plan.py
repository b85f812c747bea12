"""What the house is like, in numbers: read from the source and from ARCHITECTURE.md, without importing either.

`python tests/house/plan.py [REPOSITORY …]` prints one column for each checkout, for instance one from before a change and this
one. `docs/decisions` quotes it, and the tests beside it hold some of the numbers at zero.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)(?::[A-Za-z_][\w.]*)?(?:\(\))?`")
WALKS = {
    "fit": "`unchoke fit",
    "segment train": "`unchoke segment train",
    "profile --": "`unchoke profile --",
    "lint": "`unchoke lint",
}


class House:
    """One checkout: its modules by name, and questions about them."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.source = root, root / "src" / "unchoke"
        self.files = {self._name(file): file for file in sorted(self.source.rglob("*.py"))}
        self.trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in self.files.items()}

    @cached_property
    def nodes(self) -> dict[str, list[ast.AST]]:
        """Every node of each module: walking the trees takes longer than any question about them."""
        return {name: list(ast.walk(tree)) for name, tree in self.trees.items()}

    def _name(self, file: Path) -> str:
        parts = file.relative_to(self.source.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def num_lines(self) -> int:
        return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in self.files.values())

    @property
    def folder_sizes(self) -> Counter[str]:
        """Modules in each folder, `__init__.py` left out."""
        inner = (file for file in self.files.values() if file.name != "__init__.py")
        return Counter(file.parent.relative_to(self.source).as_posix() for file in inner)

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

    def classes_twice(self) -> list[str]:
        """Names of classes, at any depth, that stand for more than one."""
        nodes = [node for nodes in self.nodes.values() for node in nodes if isinstance(node, ast.ClassDef)]
        return sorted(name for name, count in Counter(node.name for node in nodes).items() if count > 1)

    def files_twice(self) -> list[str]:
        """Names of modules that stand in more than one folder."""
        names = Counter(file.name for file in self.files.values() if not file.name.startswith("__"))
        return sorted(name for name, count in names.items() if count > 1)

    @cached_property
    def private_functions(self) -> list[tuple[str, int]]:
        """Private functions of modules, each with how often its module names it beside the definition."""
        found = []
        for module, tree in self.trees.items():
            uses = Counter(node.id for node in self.nodes[module] if isinstance(node, ast.Name))
            private = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("_")]
            found += [(name, uses[name]) for name in private if not name.startswith("__")]
        return found

    def walk(self, heading: str) -> tuple[int, int, int]:
        """What following a command through ARCHITECTURE.md asks of a reader: references, changes of room, returns to one left."""
        text = (self.root / "ARCHITECTURE.md").read_text(encoding="utf-8")
        section = next((part for part in text.split("\n## ") if part.startswith(heading)), "")
        rooms = [place.split("/")[0] if "/" in place else "." for place in PLACE.findall(section)]
        changes = [after for before, after in pairwise(rooms) if before != after]
        return len(rooms), len(changes), len(changes) - len(set(changes) - set(rooms[:1]))

    def untold(self) -> list[str]:
        """Public functions, classes and methods of the front door without a docstring."""
        nodes = [node for node in self.trees["unchoke"].body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        return [node.name for node in nodes if not node.name.startswith("_") and not ast.get_docstring(node)]


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


def measure(house: House) -> dict[str, str]:
    """The numbers that a decision quotes, as text."""
    largest, size = house.folder_sizes.most_common(1)[0]
    others = Counter({name: count for name, count in house.folder_sizes.items() if not name.endswith("/rules")})
    second, second_size = others.most_common(1)[0]
    numbers = {
        "files": f"{len(house.files)}",
        "lines": f"{house.num_lines:,}",
        "largest folder": f"{largest} ({size})",
        "largest but for rules": f"{second} ({second_size})",
        "private functions": f"{len(house.private_functions):,}",
        "of them with one use": f"{sum(uses == 1 for _, uses in house.private_functions):,}",
        "imports through doors": f"{len(house.doors())}",
        "class names twice": f"{len(house.classes_twice())}",
        "file names twice": f"{len(house.files_twice())}",
        "front door untold": f"{len(house.untold())}",
    }
    walks = {f"walk of {name}": " / ".join(map(str, house.walk(heading))) for name, heading in WALKS.items()}
    return numbers | walks


def main() -> None:
    houses = [measure(House(Path(root))) for root in sys.argv[1:] or [str(ROOT)]]
    for name in houses[0]:
        print(f"{name:24}", *(f"{numbers[name]:>28}" for numbers in houses))


if __name__ == "__main__":
    main()
