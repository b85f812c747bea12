"""What each cell of a notebook does, in a few words, from its source alone: installs, reads tables, builds a model, trains.

In comes a program as `unchoke lint` reads it, out goes a `CellReading` of each cell of code: its deeds, the most telling first.
Code inside a function counts for the cell that calls it; the cell that holds it only defines it. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unchoke.code.magics import FILE_CELLS, SHELL_CELLS, script_runs, split_lines, written_file
from unchoke.code.node_index import FunctionNode
from unchoke.code.program import Program
from unchoke.code.source import Cell, language_name
from unchoke.notebooks.deeds import CALLS, ORDER, SHELL

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_LISTINGS = {
    "listdir", "glob", "iglob", "rglob", "iterdir", "walk", "scandir", "get_image_files", "list_images", "iterrows", "itertuples",
}  # fmt: skip
_TABLES = ("pandas.read_", "polars.read_")
_RUNS_TELL = {"trains", "trains on features", "extracts features", "evaluates", "predicts"}
_EPOCHS = {"epochs", "nb_epoch", "n_epochs", "num_epochs", "max_epochs"}
_SOME = {"head", "sample", "choice", "choices", "islice", "take", "tail"}
_ASIDE = {"imports", "sets constants", "sets seeds", "computes", "shows values"}
_SHOWS = {
    "print", "display", "len", "type", "str", "repr", "sorted", "set", "list", "dict", "range", ".head", ".describe", ".format",
}  # fmt: skip
_IMPLIED = {"trains": "defines the training", "evaluates": "defines evaluation", "defines a model": "builds a model"}
_RANK = {deed: rank for rank, deed in enumerate(ORDER)}
_SHELL_LINE = re.compile(r"^\s*(?:[\w.,\s\[\]]+=\s*)?(?:!|%(?=(?:pip|conda|mamba|uv)\b)|%(?:system|sx)\s+)\s*(.*)")
_ON_FEATURES = re.compile(r"\bTensorDataset\b")
_FEATURES = re.compile(r"feat|embed|encod")
_ABSENT = re.compile(r"exists|is_file|is_dir|isfile|isdir|find_spec")
_DATASETS = re.compile(r"(Dataset|IterableDataset|Sequence|PyDataset|DataModule|VisionDataset|DataGenerator)$")
_MODELS = re.compile(r"(Module|Model|Layer)$")


@dataclass(frozen=True)
class CellReading:
    """What one cell of code does. `told` leaves out what goes without saying; `guarded`: only if something is not there yet."""

    number: int
    text: str
    deeds: tuple[str, ...]
    told: tuple[str, ...] = ()
    guarded: bool = False
    problem: str = ""
    language: str = ""

    @property
    def words(self) -> str:
        if self.language:
            return f"{self.language} code, not read"
        return "not read" if self.problem else ", ".join(self.told[:3]) or "nothing"

    def only(self, *deeds: str) -> bool:
        """Whether it does some of these and nothing else, but for showing a value."""
        done = set(self.deeds) - {"shows values"}
        return bool(done) and done <= set(deeds)


def read_cells(program: Program) -> list[CellReading]:
    """Every cell of code, in the order of the file."""
    scripts = {script.name: _script_deeds(Program(script)) for script in (*program.source.beside, *program.source.scripts)}
    reader = _CellReader(program, scripts)
    return [reader.read(cell) for cell in program.source.cells if cell.kind == "code" and cell.number is not None]


def _script_deeds(program: Program) -> list[str]:
    """What running a script does, that cells of the notebook write."""
    reader = _CellReader(program, {})
    deeds = {deed for cell in program.source.cells for deed in reader.deeds(cell)} - _ASIDE
    return sorted(deeds, key=_RANK.__getitem__)


class _CellReader:
    def __init__(self, program: Program, scripts: Mapping[str, list[str]]) -> None:
        self._program = program
        self._scripts = scripts
        self._fits = {id(fit.call): fit.kind for fit in program.facts.fits}
        self._known: dict[int, frozenset[str]] = {}

    def deeds(self, cell: Cell) -> set[str]:
        return {*self._shell(cell), *(self._tree(cell.tree) if cell.tree is not None and cell.executed else ())}

    def read(self, cell: Cell) -> CellReading:
        found = self.deeds(cell) | self._deeds_of_runs(cell)
        if "trains" in found and _ON_FEATURES.search(cell.text):
            found = {*(found - {"trains"}), "trains on features"}
        if not found and cell.text.strip() and not cell.problem:
            found = {_plain_deed(cell)}
        deeds = tuple(sorted(found, key=_RANK.__getitem__))
        problem = cell.problem.message if cell.problem else ""
        language = "" if cell.language == "python" or found - {"is another language"} else language_name(cell.language)
        told = tuple(self._named(cell, deed) for deed in _told(cell, deeds))
        return CellReading(cell.number or 0, cell.text, deeds, told, self._is_guarded(cell), problem, language)

    def _named(self, cell: Cell, deed: str) -> str:
        """`writes train.py (trains)` and `runs train.py`: files by their names, and what is in them where a cell shows it."""
        written = written_file(cell.text) if deed == "writes a file" else None
        run = next(script_runs(cell.text, cell.language), None) if deed == "runs a script" else None
        name = written.name if written else run.name if run else ""
        does = ", ".join(self._scripts.get(name, [])[:2]) if written else ""
        return f"{deed.split()[0]} {name}{f' ({does})' if does else ''}" if name else deed

    def _deeds_of_runs(self, cell: Cell) -> set[str]:
        """What a script does counts for the cell that runs it, where it is one that the notebook writes."""
        runs = script_runs(cell.text, cell.language) if self._scripts else ()
        return {deed for run in runs for deed in self._scripts.get(run.name, ()) if deed in _RUNS_TELL}

    def _shell(self, cell: Cell) -> Iterator[str]:
        """What its shell lines do; in a cell that is the shell's as a whole, every line is one."""
        if cell.language in FILE_CELLS:
            yield "writes a file"
            return
        whole = cell.language in SHELL_CELLS
        for line in cell.text.splitlines()[1 if whole else 0 :]:
            match = _SHELL_LINE.match(line)
            command = line.strip() if whole else match[1].strip() if match else ""
            if command and not command.startswith("#"):
                yield next((deed for deed, pattern in SHELL if pattern.match(command)), "runs shell commands")

    def _tree(self, tree: ast.Module) -> Iterator[str]:
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield "imports"
            elif isinstance(statement, ast.ClassDef):
                yield self._class(statement)
            elif isinstance(statement, FunctionNode):
                yield self._function(statement)
            elif _is_constant(statement):
                yield "sets constants"
            elif not isinstance(statement, ast.Pass):
                yield from set(self._deeds(statement)) or {"shows values" if self._shows(statement) else "computes"}

    def _shows(self, statement: ast.stmt) -> bool:
        """Whether it only looks at values: an expression that calls nothing of weight."""
        names = {self._program.name(call).removeprefix("?") for call in _run(statement)}
        return isinstance(statement, ast.Expr | ast.Assert) and names <= _SHOWS

    def _class(self, node: ast.ClassDef) -> str:
        bases = [self._program.name(base) for base in node.bases]
        if any(_DATASETS.search(base) for base in bases):
            return "defines a dataset"
        return "defines a model" if any(_MODELS.search(base) for base in bases) else "defines classes"

    def _function(self, node: FunctionNode) -> str:
        inside = self._of_function(node)
        if inside & {"trains", "computes gradients"}:
            return "defines the training"
        if inside & {"evaluates", "predicts"} or self._evaluates(node):
            return "defines evaluation"
        return "defines a model" if "builds a model" in inside else "defines functions"

    def _evaluates(self, function: FunctionNode) -> bool:
        """Whether it is code for evaluation, by its name or kind, and runs a network."""
        facts = self._program.facts
        named = facts.evaluation_of(function) is not None
        return named and any(facts.is_forward(call) for call in self._program.within(function, ast.Call))

    def _of_function(self, node: ast.AST) -> frozenset[str]:
        """What a function of the file does, with those that it calls; one that calls itself is read once."""
        key = id(node)
        if key not in self._known:
            self._known[key] = frozenset()
            self._known[key] = frozenset(deed for part in ast.iter_child_nodes(node) for deed in self._deeds(part))
        return self._known[key]

    def _deeds(self, node: ast.AST) -> Iterator[str]:
        """What running this code does."""
        found = {deed for call in _run(node) for deed in self._call(call, node)}
        for function in self._program.called_functions(node):
            inside = self._of_function(function)
            found |= inside
            if not inside & {"trains"} and self._evaluates(function):
                found.add("evaluates")
            if not inside & {"trains"} and _FEATURES.search(function.name.lower()) and _loops(function):
                found.add("extracts features")
        if "computes gradients" in found and _loops(node):
            found.add("trains")
        if "reads images" in found and any(self._decodes(call) and self._is_for_all(call, node) for call in _run(node)):
            found.add("decodes everything")
        yield from found - ({"computes gradients"} if "trains" in found else set())

    def _call(self, call: ast.Call, whole: ast.AST) -> Iterator[str]:
        kind = self._fits.get(id(call))
        if kind is not None:
            by_epochs = any(keyword.arg in _EPOCHS for keyword in call.keywords)
            yield "trains" if kind != "sklearn" or by_epochs else "fits"
            return
        name = self._program.name(call.func)
        deed = self._known_deed(call)
        if deed == "copies files" and self._program.loops_around(call):
            yield "copies the data"
        elif deed is not None:
            yield deed
        elif ".plot." in self._program.written(call.func):
            yield "plots"
        if name.rpartition(".")[2] in {"exists", "isfile", "is_file"} and _loops(whole) and not self._is_limited(call, whole):
            yield "checks every file"

    def _known_deed(self, call: ast.Call) -> str | None:
        plain = self._program.name(call.func).removeprefix("?")
        return next((deed for deed, pattern in CALLS if pattern.match(plain)), None)

    def _decodes(self, call: ast.Call) -> bool:
        """Itself, or in a function of the file that it runs to its end: a generator decodes when it is asked to."""
        function, around = self._program.function_of(call), self._program.enclosing_function(call)
        if any(part is not None and any(self._program.within(part, ast.Yield, ast.YieldFrom)) for part in (function, around)):
            return False
        return self._known_deed(call) == "reads images" if function is None else "reads images" in self._of_function(function)

    def _is_for_all(self, call: ast.Call, whole: ast.AST) -> bool:
        """Does it run for every file of a listing or every row of a table?"""
        loops = list(self._loops_within(call, whole))
        return not self._is_limited(call, whole) and any(self._lists_all(source) for source in loops)

    def _loops_within(self, node: ast.AST, whole: ast.AST) -> Iterator[ast.expr]:
        """What the loops between `node` and `whole` go over."""
        for above in self._program.ancestors(node):
            if isinstance(above, ast.For | ast.AsyncFor):
                yield above.iter
            elif isinstance(above, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                yield from (part.iter for part in above.generators)
            if above is whole:
                return

    def _is_limited(self, node: ast.AST, whole: ast.AST) -> bool:
        """A loop that stops early, goes over a slice, or draws what it sees: a look at some, not at all."""
        for above in self._program.ancestors(node):
            if isinstance(above, ast.For | ast.While):
                drawn = any(self._draws(part) for part in self._program.within(above, ast.Call))
                if drawn or any(self._program.within(above, ast.Break)):
                    return True
            if above is whole:
                break
        return any(_is_some(source) for source in self._loops_within(node, whole))

    def _draws(self, call: ast.Call) -> bool:
        function = self._program.function_of(call)
        return self._known_deed(call) == "plots" or (function is not None and "plots" in self._of_function(function))

    def _lists_all(self, source: ast.AST, depth: int = 4) -> bool:
        program = self._program
        if not depth or _is_some(source):
            return False
        for part in ast.walk(source):
            if isinstance(part, ast.Call) and (program.method(part) in _LISTINGS or program.name(part).startswith(_TABLES)):
                return True
            given = program.latest(part) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) else None
            if given is not None and given is not source and self._lists_all(given, depth - 1):
                return True
        return False

    def _is_guarded(self, cell: Cell) -> bool:
        """Whether all it runs stands below a question whether something is there."""
        if cell.tree is None:
            return False
        aside = (ast.Import, ast.ImportFrom, ast.Pass)
        todo = [part for part in cell.tree.body if not isinstance(part, aside) and not _is_constant(part)]
        tests = [part.test for part in todo if isinstance(part, ast.If)]
        return bool(todo) and len(tests) == len(todo) and all(_ABSENT.search(self._program.text(test)) for test in tests)


def _is_some(source: ast.AST) -> bool:
    """`files[:9]`, `df.sample(5)`, `range(9)`: some of them only."""
    for part in ast.walk(source):
        if isinstance(part, ast.Slice) and part.upper is not None:
            return True
        called = part.func if isinstance(part, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in _SOME:
            return True
    return False


def _plain_deed(cell: Cell) -> str:
    """What is left to say of a cell in which nothing runs that is known."""
    if cell.language not in ("python", "") and not cell.executed:
        return "is another language"
    lines = [line.strip() for line in split_lines(cell.text) if line.strip()]
    return "has comments only" if all(line.startswith("#") for line in lines) else "uses magics"


def _told(cell: Cell, deeds: tuple[str, ...]) -> tuple[str, ...]:
    """The deeds to name: imports first where they are most of the cell, constants only where there is nothing else."""
    body = cell.tree.body if cell.tree is not None else []
    imports = [part for part in body if isinstance(part, ast.Import | ast.ImportFrom)]
    if imports and 2 * len(imports) >= len(body):
        return ("imports", *(deed for deed in deeds if deed not in _ASIDE))
    implied = {plain for deed, plain in _IMPLIED.items() if deed in deeds}
    return tuple(deed for deed in deeds if deed not in _ASIDE | implied) or deeds[:1]


def _run(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that running this code makes: not those inside functions it only defines."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Call):
            yield part
        if not isinstance(part, _DEFINITIONS) or part is node:
            stack.extend(ast.iter_child_nodes(part))


def _loops(node: ast.AST) -> bool:
    return any(isinstance(part, _LOOPS) for part in ast.walk(node))


def _is_constant(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    return not any(isinstance(part, (ast.Call, ast.Await, *_LOOPS)) for part in ast.walk(node.value))
