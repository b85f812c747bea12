"""Code that a notebook or script imports or runs and that lies beside it, borrowed so that its names mean something.

In comes a source, out goes the same with `borrowed` cells: of each module, the functions, classes and constants that the source
uses and all that these use in turn; of a script that `%run` runs, everything. Found are files in the same folder and package, and
those that the notebook's own cells write; never a library. Borrowed code is read, not judged: it has no findings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from unchoke.code.bindings import written
from unchoke.code.magics import script_runs
from unchoke.code.node_index import names_in, targets_of
from unchoke.code.nodes import is_main_test
from unchoke.code.source import Cell, SourceFile, parse_source
from unchoke.code.unread import ANY_NAME, is_library, module_name

MOST_FILES = 8  # of one source
_LONGEST_BYTES = 300_000
_DEEPEST = 1  # modules that modules import, once
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class _TopStatement:
    """One at the top of a module, with the names it makes, those it uses, and the imports in it."""

    node: ast.stmt
    makes: list[str]
    uses: frozenset[str]
    imports: list[ast.AST]


@dataclass(frozen=True, eq=False)
class _NeighbourModule:
    """A module as read: its text and its statements."""

    origin: str
    text: str
    body: list[ast.stmt]

    @cached_property
    def statements(self) -> list[_TopStatement]:
        return [_top_statement(node) for node in self.body]

    @cached_property
    def makers(self) -> dict[str, list[_TopStatement]]:
        """The statements that make a name."""
        found: dict[str, list[_TopStatement]] = {}
        for statement in self.statements:
            for name in statement.makes:
                found.setdefault(name, []).append(statement)
        return found


def with_neighbours(source: SourceFile) -> SourceFile:
    """The source and the scripts that its cells write, each with what they borrow."""
    scripts = tuple(_Reader(script, source).read() for script in source.scripts)
    return replace(_Reader(source, source).read(), scripts=scripts)


class _Reader:
    def __init__(self, source: SourceFile, whole: SourceFile) -> None:
        self._source = source
        self._written = {script.name: script for script in whole.scripts if script is not source}
        self._folder = Path(whole.path).parent
        self._known: set[str] = set()
        self._borrowed: list[Cell] = []
        self._files: set[str] = set()
        self._beside: dict[str, SourceFile] = {}
        body = [part for cell in source.cells for part in _body(cell) if not isinstance(part, ast.Import | ast.ImportFrom)]
        self._own = {name for part in body for name in _bound(part)}

    def read(self) -> SourceFile:
        body = [part for cell in self._source.cells for part in _body(cell)]
        for cell in self._source.cells:
            self._run_scripts(cell)
        for name, wanted in _requests((node for cell in self._source.cells for node in cell.imports), body):
            self._borrow(name, wanted, body, self._folder, 0)
        beside = tuple(replace(script, name=name) for name, script in self._beside.items())
        return replace(self._source, borrowed=tuple(self._borrowed), known=frozenset(self._known), beside=beside)

    def _run_scripts(self, cell: Cell) -> None:
        for run in script_runs(cell.text, cell.language) if cell.kind == "code" and cell.number is not None else ():
            own = self._written_module(run.name)
            module = own or _read(self._folder / run.name)
            if module is not None:
                self._known.add(run.name)
                if run.shares:
                    self._add(module, module.body)
                elif own is None:
                    self._beside[run.name] = parse_source(module.origin, module.text.encode())

    def _borrow(self, name: str, wanted: set[str], user: list[ast.stmt], folder: Path, depth: int) -> None:
        """What the user's statements want of a module, and what that wants of others; `*` is all that they use."""
        module = self._find(name, folder)
        if module is None or len(self._files) >= MOST_FILES:
            return
        if depth == 0:
            self._known.add(name)
        wanted = names_in(*user) - self._own if ANY_NAME in wanted else wanted
        taken = [one for one in _slice(module, wanted) if not (isinstance(one.node, _DEFINING) and one.node.name in self._own)]
        body = [one.node for one in taken]
        self._add(module, body)
        if depth < _DEEPEST:
            for other, more in _requests((node for one in taken for node in one.imports), body):
                self._borrow(other, more, body, Path(module.origin).parent, depth + 1)

    def _add(self, module: _NeighbourModule, body: list[ast.stmt]) -> None:
        """Values before the source's own code, which may use them at once; definitions after it, which it may define again."""
        self._files.add(module.origin)
        for defines in (True, False):
            statements = [part for part in body if isinstance(part, _DEFINING) is defines]
            if statements:
                tree = ast.Module(statements, [])
                number = -1 - len(self._borrowed)
                self._borrowed.append(Cell(number, "code", module.text, module.text, tree, executed=True, origin=module.origin))

    def _find(self, name: str, folder: Path) -> _NeighbourModule | None:
        """The module's file: relative, in the folder, or in the package that the folder is part of."""
        level = len(name) - len(name.lstrip("."))
        parts = [part for part in name.lstrip(".").split(".") if part]
        bases = [(folder, *folder.parents)[min(level - 1, len(folder.parents))]] if level else [folder, _package_root(folder)]
        if not level and len(parts) == 1 and (written := self._written_module(f"{parts[0]}.py")) is not None:
            return written
        for base in dict.fromkeys(bases):
            for file in (base.joinpath(*parts[:-1], f"{parts[-1]}.py") if parts else base, base.joinpath(*parts, "__init__.py")):
                if (module := _read(file)) is not None:
                    return module
        return None

    def _written_module(self, name: str) -> _NeighbourModule | None:
        script = self._written.get(name.removeprefix("./"))
        trees = [cell.tree for cell in script.cells] if script is not None else []
        if script is None or any(tree is None for tree in trees):
            return None
        body = [part for tree in trees if tree is not None for part in tree.body]
        return _NeighbourModule(str(self._folder / name), script.cells[-1].python, body)


def _read(path: Path) -> _NeighbourModule | None:
    """The module at `path`; None where there is none, or none that can be read."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return _parsed(str(path), stat.st_mtime_ns, stat.st_size) if path.is_file() and stat.st_size <= _LONGEST_BYTES else None


@lru_cache(maxsize=512)
def _parsed(path: str, _time_ns: int, _size: int) -> _NeighbourModule | None:
    """Each file is parsed once, however many others import it."""
    if not path.endswith(".py"):
        return None
    try:
        source = parse_source(path, Path(path).read_bytes())
    except OSError:  # gone since, or not ours to read: unknown, as it was
        return None
    (cell,) = source.cells
    return _NeighbourModule(path, cell.python, cell.tree.body) if cell.tree is not None else None


def _top_statement(node: ast.stmt) -> _TopStatement:
    parts = list(ast.walk(node))
    uses = frozenset(part.id for part in parts if isinstance(part, ast.Name))
    return _TopStatement(node, _bound(node), uses, [part for part in parts if isinstance(part, ast.Import | ast.ImportFrom)])


def _package_root(folder: Path) -> Path:
    """The folder that holds the outermost package round `folder`."""
    for _ in range(6):
        if not (folder / "__init__.py").is_file():
            break
        folder = folder.parent
    return folder


def _body(cell: Cell) -> list[ast.stmt]:
    return cell.tree.body if cell.tree is not None and cell.executed else []


def _requests(nodes: Iterable[ast.AST], body: list[ast.stmt]) -> Iterator[tuple[str, set[str]]]:
    """The modules that these nodes import, with the names that the statements want of each; libraries left out."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not is_library(module_name(node)):
            yield module_name(node), {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if not is_library(alias.name):
                    parts = (part for statement in body for part in ast.walk(statement) if isinstance(part, ast.Attribute))
                    name = alias.asname or alias.name
                    yield alias.name, {part.attr for part in parts if written(part.value) == name}


def _slice(module: _NeighbourModule, wanted: Iterable[str]) -> list[_TopStatement]:
    """The statements that make these names, and those that make what these use, in the order of the file."""
    taken: set[int] = set()
    seen: set[str] = set()
    left = list(wanted)
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            fresh = [one for one in module.makers.get(name, ()) if id(one) not in taken]
            taken |= {id(one) for one in fresh}
            left.extend(name for one in fresh for name in one.uses)
    return [one for one in module.statements if id(one) in taken]


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module makes; of `if` and `try`, those of everything in them."""
    found: list[str] = []
    left: list[ast.AST] = [statement]
    while left:
        part = left.pop()
        if isinstance(part, _DEFINING):
            found.append(part.name)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            found += [alias.asname or alias.name.partition(".")[0] for alias in part.names]
        elif isinstance(part, ast.Assign | ast.AnnAssign):
            found += names_in(*targets_of(part))
        elif isinstance(part, ast.Try | ast.ExceptHandler) or (isinstance(part, ast.If) and not is_main_test(part.test)):
            left += [inner for inner in ast.iter_child_nodes(part) if isinstance(inner, ast.stmt | ast.ExceptHandler)]
    return found
