"""One index of a program: the cells of a notebook joined in order (a script is one cell) and the modules that lie beside it.

Rules ask it for calls by their dotted name, for what a name is bound to, for the function that a call runs, and for
everything that runs inside a block. It is built in one walk; every later answer costs what it returns. It never runs code and
never raises on code that parses.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar, cast

from unchoke_doctor.code.source import Cell, CodePlace, SourceFile

P = ParamSpec("P")
R = TypeVar("R")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler, ast.Match, ast.match_case)
_NO_NODES = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "name", "names", "kind", "level", "module", "conversion"})
_MOST_BINDINGS = 12  # of one name that are looked at; a notebook that binds `model` 800 times gives its last ones
# Other names of the same library.
_SPELLINGS = (
    ("tensorflow.compat.v1.", "tensorflow."), ("tensorflow.compat.v2.", "tensorflow."), ("tensorflow.python.keras.", "keras."),
    ("tensorflow.keras.", "keras."), ("tf_keras.", "keras."), ("keras.src.", "keras."), ("keras.api.", "keras."),
    ("torchvision.transforms.v2.", "torchvision.transforms."), ("pytorch_lightning.", "lightning."),
    ("lightning.pytorch.", "lightning."), ("torch.cuda.amp.", "torch.amp."), ("tqdm.notebook.", "tqdm."),
    ("tqdm.auto.", "tqdm."), ("skimage.io._io.", "skimage.io."),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Module:
    """One file of the program. `name` is empty for the file that is linted, else the name it is imported by."""

    name: str
    path: str
    cells: list[tuple[Cell, ast.Module]]
    imports: dict[str, str] = field(default_factory=dict)
    """Local name to dotted name, imports inside functions too."""
    stars: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Binding:
    """One way in which a name gets its value."""

    how: Literal["value", "item", "element", "parameter", "definition"]
    """The value itself, one part of it (`a, b = value`), its elements (`for x in value`), a parameter, a def or class."""
    node: ast.AST
    value: ast.expr | None = None
    index: int = 0


class Program:
    """`own` is the file that is linted; findings point into it alone. `modules` holds it and the neighbours it imports."""

    def __init__(self, source: SourceFile, neighbours: Iterable[tuple[str, SourceFile]] = ()) -> None:
        self.source = source
        self.own = _module("", source)
        self.modules = [self.own, *(_module(name, other) for name, other in neighbours)]
        self.parents: dict[ast.AST, ast.AST] = {}
        self.order: dict[ast.AST, int] = {}
        self.calls: list[ast.Call] = []
        self.loops: list[Loop] = []
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.bindings: dict[tuple[object, str], list[Binding]] = {}
        self.stored: dict[str, list[tuple[ast.Attribute, ast.expr]]] = {}
        self.stored_items: dict[str, list[tuple[ast.Subscript, ast.expr]]] = {}
        self._ends: dict[ast.AST, int] = {}
        self._roots: dict[ast.AST, tuple[Module, Cell]] = {}
        for module in self.modules:
            for cell, tree in module.cells:
                self._roots[tree] = (module, cell)
                self._walk(module, tree)
        self._call_orders = [self.order[call] for call in self.calls]
        self._names: dict[ast.AST, str] = {}
        self._texts: dict[ast.AST, str] = {}
        self.neighbours = {module.name: module for module in self.modules[1:]}
        self.calls_by_name: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            self.calls_by_name.setdefault(self.last(call), []).append(call)
        self._targets: dict[ast.Call, FunctionNode | ast.ClassDef | None] = {}
        self._callers: dict[ast.AST, list[ast.Call]] | None = None
        self._reached: dict[ast.AST, list[ast.Call]] = {}
        self.memory: dict[object, object] = {}
        """Answers that rules share, by their question."""

    # The walk -----------------------------------------------------------------------------------------------------------

    def _walk(self, module: Module, tree: ast.Module) -> None:
        """Parents, order and bindings of one tree, without recursion: code may be nested as deeply as it likes."""
        parents, order, ends = self.parents, self.order, self._ends
        stack: list[tuple[ast.AST, bool]] = [(tree, False)]
        while stack:
            node, left = stack.pop()
            if left:
                ends[node] = len(order)
                continue
            order[node] = len(order)
            self._record(module, node)
            stack.append((node, True))
            for name in reversed(node._fields):
                value = getattr(node, name, None) if name not in _NO_NODES else None
                for child in reversed(value) if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        parents[child] = node
                        stack.append((child, False))

    def _record(self, module: Module, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self.calls.append(node)
            case ast.Import() | ast.ImportFrom():
                self._record_import(module, node)
            case ast.Assign():
                for target in node.targets:
                    self._bind(target, node.value, node)
            case ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
                self._bind(node.target, node.value, node)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                if not isinstance(node, ast.comprehension):
                    self.loops.append(node)
                self._bind(node.target, node.iter, node, "element")
            case ast.While():
                self.loops.append(node)
            case ast.withitem() if node.optional_vars is not None:
                self._bind(node.optional_vars, node.context_expr, node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._add(self.scope(node), node.name, Binding("definition", node))
                self._record_parameters(node)
            case ast.Lambda():
                self._record_parameters(node)
            case ast.ClassDef():
                self.classes.setdefault(node.name, []).append(node)
                self._add(self.scope(node), node.name, Binding("definition", node))

    def _record_import(self, module: Module, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                module.imports[alias.asname or name] = name
            return
        base = import_base(node, module.name, module.path)
        for alias in node.names:
            if alias.name == "*":
                module.stars.append(base)
            else:
                module.imports[alias.asname or alias.name] = f"{base}.{alias.name}".strip(".")

    def _record_parameters(self, node: FunctionNode) -> None:
        every = node.args
        plain = [*every.posonlyargs, *every.args]
        defaults: list[ast.expr | None] = [None] * (len(plain) - len(every.defaults)) + list(every.defaults)
        pairs = [*zip(plain, defaults, strict=True), *zip(every.kwonlyargs, every.kw_defaults, strict=True)]
        for number, (arg, default) in enumerate(pairs):
            self._add(node, arg.arg, Binding("parameter", node, default, number))

    def _bind(self, target: ast.AST, value: ast.expr, node: ast.AST, how: Literal["value", "item", "element"] = "value") -> None:
        if isinstance(target, ast.Name):
            self._add(self.scope(node), target.id, Binding(how, node, value))
        elif isinstance(target, ast.Attribute):
            self.stored.setdefault(target.attr, []).append((target, value))
        elif isinstance(target, ast.Subscript):
            if isinstance(target.value, ast.Name):
                self.stored_items.setdefault(target.value.id, []).append((target, value))
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                if how == "value" and isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                    self._bind(part, value.elts[index], node)
                elif isinstance(part, ast.Name):
                    kind: Literal["item", "element"] = "item" if how == "value" else "element"
                    self._add(self.scope(node), part.id, Binding(kind, node, value, index))
                elif isinstance(part, ast.Attribute):
                    self.stored.setdefault(part.attr, []).append((part, value))
                elif how == "element":
                    self._bind(part, value, node, "element")

    def _add(self, scope: object, name: str, binding: Binding) -> None:
        self.bindings.setdefault((scope, name), []).append(binding)

    # Places and scopes ----------------------------------------------------------------------------------------------------

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around this one, from the nearest outwards."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def module(self, node: ast.AST) -> Module:
        return self._roots[self._top(node)][0]

    def _top(self, node: ast.AST) -> ast.AST:
        while (parent := self.parents.get(node)) is not None:
            node = parent
        return node

    def is_own(self, node: ast.AST) -> bool:
        return self.module(node) is self.own

    def function(self, node: ast.AST) -> FunctionNode | None:
        """The function whose body this node is in."""
        return next((part for part in self.above(node) if isinstance(part, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((part for part in self.above(node) if isinstance(part, ast.ClassDef)), None)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        return next((part for part in (node, *self.above(node)) if isinstance(part, ast.stmt)), None)

    def loop(self, node: ast.AST) -> Loop | Comprehension | None:
        """The nearest loop around a node in the same function; a comprehension counts for what it evaluates per element."""
        inner = node
        for part in self.above(node):
            if isinstance(part, FUNCTIONS):
                return None
            if isinstance(part, LOOPS) and inner is not getattr(part, "iter", None):
                return part
            if isinstance(part, COMPREHENSIONS) and not (isinstance(inner, ast.comprehension) and inner is part.generators[0]):
                return part
            inner = part
        return None

    def scope(self, node: ast.AST) -> object:
        """The function or class whose names a statement binds, or its module."""
        around = (part for part in self.above(node) if isinstance(part, (*FUNCTIONS, ast.ClassDef)))
        return next(around, None) or self.module(node)

    def cell(self, node: ast.AST) -> Cell:
        """The cell a node stands in; of a script, all of it."""
        return self._roots[self._top(node)][1]

    def place(self, node: ast.AST) -> CodePlace:
        cell = self.cell(node)
        anchor = node if hasattr(node, "lineno") else self.statement(node)
        line: int = getattr(anchor, "lineno", 1)
        end_line: int = getattr(anchor, "end_lineno", None) or line
        begin = self._column(cell, line, getattr(anchor, "col_offset", 0))
        return CodePlace(
            cell.number, line, begin, end_line, self._column(cell, end_line, getattr(anchor, "end_col_offset", 0) or 0)
        )

    def _column(self, cell: Cell, line: int, offset: int) -> int:
        """Characters, where the syntax tree counts bytes and knows nothing of the indentation of a whole cell."""
        text = cell.python_lines[line - 1] if line <= len(cell.python_lines) else ""
        return (offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))) + cell.indent

    def text(self, node: ast.AST, longest: int = 60) -> str:
        """The code of a node, in short, for messages."""
        if node not in self._texts:
            try:
                self._texts[node] = ast.unparse(node)
            except (RecursionError, ValueError):
                self._texts[node] = "…"
        text = self._texts[node]
        return text if len(text) <= longest else text[: longest - 1] + "…"

    # Names ----------------------------------------------------------------------------------------------------------------

    def name(self, node: ast.AST) -> str:
        """The dotted name of an expression or of what a call calls, aliases followed: `torch.utils.data.DataLoader`.

        What is called on a result is named by that: `pathlib.Path().glob`. Unknown beginnings are `?`.
        """
        if node in self._names:
            return self._names[node]
        parts: list[str] = []
        at: ast.AST = node.func if isinstance(node, ast.Call) else node
        while isinstance(at, ast.Attribute | ast.Call | ast.Subscript) and len(parts) < 100:
            if isinstance(at, ast.Attribute):
                parts.append(at.attr)
                at = at.value
            elif isinstance(at, ast.Call):
                parts.append("()")
                at = at.func
            else:
                parts.append("[]")
                at = at.value
        root = self._root(at) if isinstance(at, ast.Name) else "?"
        name = ".".join([root, *reversed(parts)]).replace(".()", "()").replace(".[]", "[]")
        for spelling, usual in _SPELLINGS:
            if name.startswith(spelling):
                name = usual + name.removeprefix(spelling)
        self._names[node] = name
        return name

    def last(self, node: ast.AST) -> str:
        """The last part of the dotted name: `DataLoader`."""
        return self.name(node).rpartition(".")[2]

    def _root(self, node: ast.Name, deepest: int = 3) -> str:
        """What a bare name stands for: an import, or another name that was given this one."""
        module = self.module(node)
        if node.id in module.imports:
            return module.imports[node.id]
        found = self.bindings.get((module, node.id), ())
        if deepest and len(found) == 1 and found[0].how == "value" and isinstance(found[0].value, ast.Attribute | ast.Name):
            value: ast.AST = found[0].value
            parts = []
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id != node.id and (root := self._root(value, deepest - 1)) != value.id:
                return ".".join([root, *reversed(parts)])
        return node.id

    def calls_to(self, *names: str) -> list[ast.Call]:
        """Calls whose last part is one of these names, or whose dotted name ends with one that has dots, in order."""
        found = []
        for name in names:
            some = self.calls_by_name.get(name.rpartition(".")[2], ())
            found += [call for call in some if "." not in name or f".{self.name(call)}".endswith(f".{name}")]
        return sorted(found, key=self.order.__getitem__)

    def own_calls(self, *names: str) -> list[ast.Call]:
        return [call for call in self.calls_to(*names) if self.is_own(call)]

    def imports_any(self, *libraries: str) -> bool:
        """Does any file of the program import one of these libraries?"""
        names = (name for module in self.modules for name in (*module.imports.values(), *module.stars))
        return any(name.partition(".")[0] in libraries for name in names)

    # Bindings -------------------------------------------------------------------------------------------------------------

    def bound(self, node: ast.Name) -> list[Binding]:
        """The bindings that may reach this use of a name: those of the nearest scope that has any."""
        inner: object = None
        for scope in self._scopes(node):
            found = self.bindings.get((scope, node.id))
            if found:
                return self._reaching(found, node) if inner is None else found[-_MOST_BINDINGS:]
            inner = inner or (scope if isinstance(scope, FUNCTIONS) else None)
        return []

    def _scopes(self, node: ast.AST) -> Iterator[object]:
        """The scopes in which a name is looked up: functions outwards, the class only from its own body, the module."""
        inside, top = False, node
        for top in (node, *self.above(node)):
            if isinstance(top, FUNCTIONS):
                inside = True
                yield top
            elif isinstance(top, ast.ClassDef) and not inside:
                yield top
        if top in self._roots:
            yield self._roots[top][0]

    def _reaching(self, found: list[Binding], node: ast.AST) -> list[Binding]:
        """Backwards from the use: conditional bindings are all possible, the first unconditional one ends the search."""
        at = self.order[node]
        stop = bisect_left(found, at, key=lambda binding: self._effect(binding))
        some: list[Binding] = []
        for binding in reversed(found[max(0, stop - _MOST_BINDINGS) : stop]):
            some.append(binding)
            if not self.is_conditional(binding.node):
                break
        return some or found[-_MOST_BINDINGS:]

    def _effect(self, binding: Binding) -> int:
        """A name is bound after its value was computed: `x = f(x)` uses the x before. Parameters and loops bind at once."""
        return self._ends[binding.node] if binding.how in ("value", "item") else self.order[binding.node]

    def is_conditional(self, node: ast.AST) -> bool:
        """Does a statement stand in a branch or loop of its function or cell?"""
        for part in self.above(node):
            if isinstance(part, (*FUNCTIONS, ast.ClassDef)):
                return False
            if isinstance(part, _BRANCHES):
                return True
        return False

    def values_of(self, module: Module, name: str) -> list[ast.expr]:
        """What a name of a module is bound to at its top."""
        found = [binding.value for binding in self.bindings.get((module, name), ()) if binding.how == "value"]
        return [value for value in found if value is not None][-_MOST_BINDINGS:]

    # Functions ------------------------------------------------------------------------------------------------------------

    def target(self, call: ast.Call) -> FunctionNode | ast.ClassDef | None:
        """The function or class of this program that a call runs; None for libraries and for what is not known."""
        if call not in self._targets:
            self._targets[call] = None  # a name that leads to itself ends here
            self._targets[call] = self.definition(call.func)
        return self._targets[call]

    def definition(self, node: ast.AST) -> FunctionNode | ast.ClassDef | None:
        """The function or class that an expression names."""
        if isinstance(node, ast.Lambda):
            return node
        if isinstance(node, ast.Name):
            return self._named(node)
        if not isinstance(node, ast.Attribute):
            return None
        receiver = node.value
        if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
            owner = self.class_of(node)
            return self.method(owner, node.attr) if owner is not None else None
        owner_class = self.definition(receiver)
        if isinstance(owner_class, ast.ClassDef):
            return self.method(owner_class, node.attr)
        dotted = self.name(node)
        if found := self._in_neighbour(dotted):
            return found
        if isinstance(receiver, ast.Call) and isinstance(made := self.target(receiver), ast.ClassDef):
            return self.method(made, node.attr)
        if isinstance(receiver, ast.Name | ast.Attribute):
            made_class = self.class_made(receiver)
            if made_class is not None:
                return self.method(made_class, node.attr)
        return None

    def class_made(self, node: ast.expr) -> ast.ClassDef | None:
        """The class of this program whose instance a name or `self.x` holds."""
        values: list[ast.expr] = []
        if isinstance(node, ast.Name):
            values = [binding.value for binding in self.bound(node) if binding.how == "value" and binding.value is not None]
        elif isinstance(node, ast.Attribute):
            values = [value for _, value in self.stored.get(node.attr, ())[-_MOST_BINDINGS:]]
        for value in values:
            while (
                isinstance(value, ast.Call)
                and isinstance(value.func, ast.Attribute)
                and value.func.attr in ("to", "cuda", "eval")
            ):
                value = value.func.value
            if isinstance(value, ast.Call) and isinstance(found := self.target(value), ast.ClassDef):
                return found
        return None

    def _named(self, node: ast.Name) -> FunctionNode | ast.ClassDef | None:
        for binding in reversed(self.bound(node)):
            if binding.how == "definition" and isinstance(binding.node, (*FUNCTIONS, ast.ClassDef)):
                return binding.node
            if binding.how == "value" and isinstance(binding.value, ast.Lambda):
                return binding.value
        module = self.module(node)
        if node.id in module.imports:
            return self._in_neighbour(module.imports[node.id])
        for star in module.stars:
            if found := self._in_neighbour(f"{star}.{node.id}"):
                return found
        return None

    def _in_neighbour(self, dotted: str) -> FunctionNode | ast.ClassDef | None:
        """What `package.module.name` defines, where that module was read; packages that pass a name on are followed."""
        for _ in range(4):
            base, _, name = dotted.rpartition(".")
            module = self.neighbours.get(base)
            if module is None:
                return None
            for binding in self.bindings.get((module, name), ()):
                if binding.how == "definition" and isinstance(binding.node, (*FUNCTIONS, ast.ClassDef)):
                    return binding.node
            if name not in module.imports:
                return None
            dotted = module.imports[name]
        return None

    def method(self, owner: ast.ClassDef, name: str, deepest: int = 4) -> FunctionNode | None:
        """A method of a class of this program, its bases included."""
        for part in owner.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name == name:
                return part
        for base in owner.bases if deepest else ():
            found = self.definition(base)
            if isinstance(found, ast.ClassDef) and found is not owner and (inherited := self.method(found, name, deepest - 1)):
                return inherited
        return None

    def base_names(self, owner: ast.ClassDef, deepest: int = 4) -> list[str]:
        """The last parts of the names of all base classes, as far as they are known."""
        names = []
        for base in owner.bases:
            names.append(self.last(base))
            found = self.definition(base)
            if deepest and isinstance(found, ast.ClassDef) and found is not owner:
                names += self.base_names(found, deepest - 1)
        return names

    def callers(self, function: ast.AST) -> list[ast.Call]:
        """The calls of this program that run a function; for `__init__`, those that make the class."""
        if self._callers is None:
            self._callers = {}
            for call in self.calls:
                found = self.target(call)
                if found is not None:
                    self._callers.setdefault(found, []).append(call)
        found_calls = self._callers.get(function, [])
        if isinstance(function, ast.FunctionDef) and function.name == "__init__" and (owner := self.class_of(function)):
            found_calls = found_calls + self._callers.get(owner, [])
        return found_calls

    # Blocks ---------------------------------------------------------------------------------------------------------------

    def calls_in(self, *blocks: ast.AST) -> Iterator[ast.Call]:
        """The calls that stand inside these nodes, in order."""
        for block in blocks:
            begin = bisect_left(self._call_orders, self.order[block])
            end = bisect_left(self._call_orders, self._ends[block])
            yield from self.calls[begin:end]

    def contains(self, block: ast.AST, node: ast.AST) -> bool:
        return self.order[block] <= self.order[node] < self._ends[block]

    def reached(self, block: ast.AST) -> list[ast.Call]:
        """The calls that run when a block runs: those inside it and those of the functions of this program that it calls.

        Of a class, making one runs `__init__`; calling an instance runs `forward` or `__call__`.
        """
        if block in self._reached:
            return self._reached[block]
        found: list[ast.Call] = []
        seen: set[ast.AST] = {block}
        todo: list[ast.AST] = [block]
        while todo:
            part = todo.pop()
            for call in self.calls_in(part):
                found.append(call)
                for inner in self.runs(call):
                    if inner not in seen:
                        seen.add(inner)
                        todo.append(inner)
        if isinstance(block, (*FUNCTIONS, *LOOPS)):
            self._reached[block] = found
        return found

    def runs(self, call: ast.Call) -> Iterator[FunctionNode]:
        """The functions of this program that a call runs: its target, the methods an instance hides, callables handed over."""
        target = self.target(call)
        if isinstance(target, ast.ClassDef):
            if init := self.method(target, "__init__"):
                yield init
        elif target is not None:
            yield target
        elif isinstance(call.func, ast.Name | ast.Attribute) and (owner := self.class_made(call.func)) is not None:
            for name in ("forward", "__call__", "call"):
                if found := self.method(owner, name):
                    yield found


def remembered(ask: Callable[Concatenate[Program, P], R]) -> Callable[Concatenate[Program, P], R]:
    """One answer per program and arguments, for questions that several rules have."""

    @wraps(ask)
    def answer(program: Program, /, *about: P.args, **words: P.kwargs) -> R:
        key = (ask, about, tuple(words.items()))
        if key not in program.memory:
            program.memory[key] = ask(program, *about, **words)
        return cast(R, program.memory[key])

    return answer


def import_base(node: ast.ImportFrom, name: str, path: str) -> str:
    """What `from … import` names, absolute: a relative import is seen from the package of the module `name` at `path`."""
    package = name.split(".") if name else []
    up = node.level - path.endswith("__init__.py")
    inside = package[: len(package) - up] if node.level else []
    return ".".join([*inside, *([node.module] if node.module else [])])


def _module(name: str, source: SourceFile) -> Module:
    return Module(name, source.path, [(cell, cell.tree) for cell in source.cells if cell.executed and cell.tree is not None])
