"""Who calls whom in one file, what a variable was given, and what an object was made from.

The second layer of a program, over `nodes`. Follows names, methods of `self`, variables, parameters and wrappers within the file;
guesses nothing across files, and what it cannot tell is None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from unchoke.code.bindings import NO_VALUE, Binding, written
from unchoke.code.node_index import FunctionNode, arguments, default_of, flat, parameters, remembered
from unchoke.code.nodes import Nodes
from unchoke.code.source import SourceFile

_DEEPEST = 12
_HANDING_ON = ("partial", "wraps", "vmap", "jit", "function", "vectorize")
# Methods that give back the object they are called on, and calls that wrap their first argument.
_SAME_OBJECT = frozenset(
    {"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "requires_grad_", "train_", "with_format"}
)
_WRAPPERS = frozenset(
    {"DataParallel", "DistributedDataParallel", "compile", "Subset", "ConcatDataset", "ShuffleDataset", "prepare", "script",
     "DDP", "CacheDataset", "random_split", "split"}
)  # fmt: skip
_BARS = ("tqdm", "enumerate", "iter")
RUNNING = ("__init__", "forward", "__call__", "call")  # what a class runs: gives no plain value back
_COPIES = ("copy", "deepcopy")
_PASSING_ON = frozenset({"zip", "iter", "cycle", "enumerate", "tqdm", "list", "prepare", "DataLoader"})
_MOST_PARTS = 400
_FILLING = ("append", "appendleft", "add", "insert", "extend", "setdefault", "put")


@dataclass(frozen=True)
class Choices:
    """The expressions that something may be, branches joined. `absent`: it may be left out; `unknown`: there may be others."""

    nodes: tuple[ast.expr, ...] = ()
    absent: bool = False
    unknown: bool = False

    @property
    def last(self) -> ast.expr | None:
        return self.nodes[-1] if self.nodes else None

    def __or__(self, other: Choices) -> Choices:
        return Choices(
            tuple(dict.fromkeys((*self.nodes, *other.nodes))), self.absent or other.absent, self.unknown or other.unknown
        )


_UNKNOWN = Choices(unknown=True)
_ABSENT = Choices(absent=True)


class CallGraph(Nodes):
    """Functions, classes, calls, variables and instances of one program."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self._methods_of: dict[ast.ClassDef, dict[str, FunctionNode]] = {}
        self._function_of: dict[ast.Call, FunctionNode | None] = {}
        self._reaching: dict[ast.AST, list[Binding]] = {}

    @cached_property
    def functions(self) -> dict[str, FunctionNode]:
        """Functions that are not methods, by name; the last of each name."""
        return {
            node.name: node
            for node in self.nodes(ast.FunctionDef, ast.AsyncFunctionDef)
            if not isinstance(self.parent(node), ast.ClassDef)
        }

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes by name; the last of each name."""
        return {node.name: node for node in self.nodes(ast.ClassDef)}

    def methods(self, owner: ast.ClassDef) -> dict[str, FunctionNode]:
        """Methods of a class and of its bases in this file."""
        found = self._methods_of.get(owner)
        if found is None:
            self._methods_of[owner] = found = {}
            for base in owner.bases:
                above = self.classes.get(written(base))
                if above is not None and above is not owner:
                    found.update(self.methods(above))
            found.update({node.name: node for node in owner.body if isinstance(node, FunctionNode)})
        return found

    def bases(self, owner: ast.ClassDef, depth: int = 0) -> list[str]:
        """Dotted names of all bases, through classes of this file."""
        found = []
        for base in owner.bases:
            node = base.value if isinstance(base, ast.Subscript) else base
            above = self.classes.get(written(node))
            if above is not None and above is not owner and depth < _DEEPEST:
                found += self.bases(above, depth + 1)
            found.append(self.name(node))
        return found

    def function_of(self, call: ast.Call) -> FunctionNode | None:
        """The function of this file that this call runs, if it can be told."""
        if call not in self._function_of:
            self._function_of[call] = None
            self._function_of[call] = self._resolved(call)
        return self._function_of[call]

    def _resolved(self, call: ast.Call) -> FunctionNode | None:
        func = call.func
        name = self._borrowed_name(func)
        name = name if name in self.functions or name in self.classes else written(func)
        if name in self.functions:
            return self.functions[name]
        if name in self.classes or name == "self":
            owner = self.classes.get(name) or self.enclosing_class(func)
            return (self.methods(owner).get("__init__") if name != "self" else self._run_by_call(owner)) if owner else None
        if isinstance(func, ast.Attribute) and func.attr not in self._own_names:
            return None  # a method of elsewhere, like most
        found = self.callable_of(func)
        return None if isinstance(found, ast.Lambda) else found

    @cached_property
    def _own_names(self) -> set[str]:
        """What functions and attributes of this file are called."""
        stored = (node.attr for node in self.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
        named = (node.id for node in self.nodes(ast.Name) if isinstance(node.ctx, ast.Store))
        return {*(node.name for node in self.nodes(ast.FunctionDef, ast.AsyncFunctionDef)), *stored, *named}

    def _borrowed_name(self, func: ast.expr) -> str:
        """`train` for `utils.train`, and for `t` after `from utils import train as t`, where `utils` was read beside it."""
        if not self.source.known:
            return ""
        module, _, name = self.name(func).rpartition(".")
        return name if module in self.source.known else ""

    def _run_by_call(self, owner: ast.ClassDef | None) -> FunctionNode | None:
        methods = self.methods(owner) if owner is not None else {}
        return methods.get("forward") or methods.get("__call__") or methods.get("call")

    def callable_of(self, node: ast.AST | None, depth: int = 0) -> FunctionNode | ast.Lambda | None:
        """The function of this file that runs when this is called: a name, a method, an object, a lambda, `partial(f, …)`."""
        if isinstance(node, ast.Lambda):
            return node
        if isinstance(node, ast.Call):
            handed_on = self.method(node) in _HANDING_ON and bool(node.args)
            return self.callable_of(node.args[0], depth + 1) if handed_on else self._run_by_call(self.assigned_class(node))
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            above = isinstance(node.value, ast.Call) and self.name(node.value) == "super"
            owner = None if above else self.assigned_class(node.value) or self.classes.get(written(node.value))
            owner = self.enclosing_class(node) if own else owner
            method = self.methods(owner).get(node.attr) if owner is not None else None
            if method is not None or (owner is not None and not own):
                return method
        elif isinstance(node, ast.Name):
            if node.id in self.functions:
                return self.functions[node.id]
        else:
            return None
        return self._run_by_call(self.assigned_class(node)) or self._kept_callable(node, depth)

    def _kept_callable(self, node: ast.Name | ast.Attribute, depth: int) -> FunctionNode | ast.Lambda | None:
        """A function kept in a variable or given as a parameter."""
        if depth > 4:
            return None
        given = self.latest(node)
        if given is not None and given is not node:
            return self.callable_of(given, depth + 1)
        handed = self._given_to_parameter(node) if isinstance(node, ast.Name) else iter(())
        return next((found for item in handed if (found := self.callable_of(item, depth + 1)) is not None), None)

    @cached_property
    def _calls_of(self) -> dict[FunctionNode, list[ast.Call]]:
        found: dict[FunctionNode, list[ast.Call]] = {}
        for call in self.nodes(ast.Call):
            if (function := self.function_of(call)) is not None:
                found.setdefault(function, []).append(call)
        return found

    def callers(self, function: FunctionNode) -> list[ast.Call]:
        """The calls in this file that run `function`."""
        return self._calls_of.get(function, [])

    @remembered
    def called_functions(self, node: ast.AST) -> list[FunctionNode]:
        """The functions of this file that the code under `node` calls, one level down."""
        named = (self.function_of(call) for call in self.within(node, ast.Call))
        return list(dict.fromkeys(function for function in named if function is not None))

    @remembered
    def reach(self, function: ast.AST) -> set[FunctionNode]:
        """All functions of this file that run when `function` runs, itself left out unless it calls itself."""
        found: set[FunctionNode] = set()
        left = list(self.called_functions(function))
        while left:
            inner = left.pop()
            if inner not in found:
                found.add(inner)
                left.extend(self.called_functions(inner))
        return found

    def argument_for(self, call: ast.Call, function: FunctionNode, name: str) -> ast.expr | None:
        """What this call gives for the parameter `name` of `function`."""
        names = parameters(function)
        first = 1 if names[:1] in (["self"], ["cls"]) and isinstance(self.parent(function), ast.ClassDef) else 0
        position = names.index(name) - first if name in names else None
        return self.argument(call, name, position if position is not None and position >= 0 else None)

    def given_by_callers(self, name: str, at: ast.AST, *, most: int | None = None) -> list[ast.expr]:
        """What the calls in this file give for the parameter `name` of the function round `at`; nothing where it is none."""
        function = self.enclosing_function(at)
        if function is None or name not in parameters(function):
            return []
        given = (self.argument_for(call, function, name) for call in self.callers(function)[:most])
        return [item for item in given if item is not None]

    # What something may be

    @remembered
    def choices(self, node: ast.AST | None) -> Choices:
        """The expressions that `node` may be here: through variables, parameters, `a if … else b`, functions that return it."""
        found: dict[ast.expr, None] = {}
        seen: set[ast.AST] = set()
        left: list[ast.AST | None] = [node]
        unknown = False
        while left:
            part = left.pop()
            if not isinstance(part, ast.expr) or len(seen) > _MOST_PARTS:
                unknown = True
            elif part not in seen:
                seen.add(part)
                inner = self.stands_for(part)
                if inner is None:
                    found[part] = None
                else:
                    left.extend(reversed(inner))
        return Choices(tuple(found), unknown=unknown)

    def stands_for(self, node: ast.expr) -> list[ast.AST | None] | None:
        """What it stands for, a None among it for what cannot be told; None alone where it is what it is."""
        if isinstance(node, ast.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return list(node.values)
        if isinstance(node, ast.Call):
            function = self.function_of(node)
            if function is None or function.name in RUNNING:
                return None
            return [back.value for back in self.returns(function) if back.value is not None] or [None]
        bound = self.reaching(node)
        if not bound or any(item.how == "made" for item in bound):
            return None
        found: list[ast.AST | None] = []
        for item in bound:
            handed = self.handed(node.id, node) if item.how == "handed" and isinstance(node, ast.Name) else []
            found += handed or [self.given_value(item) if item.how == "given" else None]
        return found

    def handed(self, name: str, at: ast.AST) -> list[ast.expr]:
        """What a parameter is given by the calls in this file, and its default where one leaves it out or none is here."""
        function = self.enclosing_function(at)
        while function is not None and name not in parameters(function):
            function = self.enclosing_function(function)
        if function is None:
            return []
        default = default_of(function, name)
        given = [self.argument_for(call, function, name) or default for call in self.callers(function)[:20]]
        return [item for item in given or [default] if item is not None]

    def returns(self, function: ast.AST) -> list[ast.Return]:
        """The `return` statements of a function itself, not of those defined in it."""
        return [back for back in self.within(function, ast.Return) if self.index.scope(back) is function]

    def entry(self, holder: ast.expr, key: str, at: ast.AST | None = None, depth: int = 0) -> Choices:
        """What a dict has under `key`, as seen from `at`: of literals, `dict(…)`, `{**a}`, `a | b`, later stores and `update`."""
        at = at if at is not None else holder
        name = written(holder)
        changed = self._changes(name, key, at, depth) if name else []
        later = [found for _, found in changed]
        for place in reversed(range(len(changed))):
            if self._is_certain(changed[place][0], at):
                return reduce(or_, later[place:])
        made = self.choices(holder)
        whole = [self._entry_of(node, key, depth + 1) for node in made.nodes]
        return reduce(or_, [*whole, *later], _UNKNOWN if made.unknown else Choices())

    def _entry_of(self, made: ast.expr, key: str, depth: int) -> Choices:
        pairs = self._pairs(made) if depth <= _DEEPEST else None
        return self._first_given(pairs, key, depth) if pairs is not None else _UNKNOWN

    def _pairs(self, made: ast.expr) -> list[tuple[ast.expr | None, ast.expr]] | None:
        """The keys and values that a dict is made of, a whole dict in it without a key; None where that cannot be told."""
        if isinstance(made, ast.Dict):
            return [*zip(made.keys, made.values, strict=True)]
        if isinstance(made, ast.BinOp) and isinstance(made.op, ast.BitOr):
            return [(None, made.left), (None, made.right)]
        if not isinstance(made, ast.Call):
            return None
        copied = self.receiver(made) if self.method(made) in _COPIES and not made.args else None
        if copied is None and self.method(made) not in (*_COPIES, "update") and self.name(made) != "dict":
            return None
        whole = [copied] if copied is not None else made.args[:1]
        named = [(ast.Constant(item.arg) if item.arg else None, item.value) for item in made.keywords]
        return [*((None, item) for item in whole), *named]

    def _first_given(self, pairs: list[tuple[ast.expr | None, ast.expr]], key: str, depth: int) -> Choices:
        """The last pair that has the key; one without a key is spread out."""
        found = Choices()
        for name, item in reversed(pairs):
            if name is None:
                inner = self.entry(item, key, depth=depth)
                found |= Choices(inner.nodes, unknown=inner.unknown)
                if not inner.absent:
                    return found
            elif not isinstance(name, ast.Constant):
                found |= _UNKNOWN
            elif name.value == key:
                return found | Choices((item,))
        return found | _ABSENT

    def _changes(self, name: str, key: str, at: ast.AST, depth: int) -> list[tuple[ast.AST, Choices]]:
        """Stores under the key and calls of `update` on this dict before `at`, in order."""
        number, scope = self.index.number.get(at, 0), self.index.scope(at)
        stored = self.bindings.all(f"{name}[{key!r}]")
        found = [(item.node, Choices((item.value,))) for item in stored if item.scope in (scope, None)]
        for call in self.calls_to("update"):
            if written(self.receiver(call)) == name and self.index.scope(call) in (scope, None):
                given = self._entry_of(call, key, depth + 1)
                if given.nodes or given.unknown:
                    found.append((call, Choices(given.nodes, unknown=given.unknown)))
        outer = self.index.scope(at) is not None
        return [
            (node, item)
            for node, item in sorted(found, key=lambda pair: self.index.number[pair[0]])
            if self.index.stop(node) < number or (outer and self.index.scope(node) is None)
        ]

    def _is_certain(self, node: ast.AST, at: ast.AST) -> bool:
        """Has this statement run whenever `at` runs: does it stand in a block that holds `at`, or in a function's own body?"""
        statement = self.statement(node)
        parent = self.parent(statement) if statement is not None else None
        if parent is None or isinstance(parent, ast.Module):
            return True
        if isinstance(parent, FunctionNode) and self.index.scope(at) is not parent:
            return parent.name == "__init__"
        return at in self.index.number and self.index.holds(parent, at)

    def given_value(self, given: Binding) -> ast.expr | None:
        """The expression assigned; through a function of this file that returns a tuple, its part."""
        if given.position is None:
            return given.value
        function = self.function_of(given.value) if isinstance(given.value, ast.Call) else None
        if function is None:
            return given.value if self.method(given.value) in ("random_split", "prepare") else None
        for node in self.returns(function):
            if isinstance(node.value, ast.Tuple) and given.position < len(node.value.elts):
                return node.value.elts[given.position]
        return None

    @remembered
    def assigned_class(self, node: ast.AST | None) -> ast.ClassDef | None:
        """The class of this file that an expression or variable is an instance of."""
        return self._class_of(node, 0)

    @remembered  # functions that return one another's answers are asked once at each depth
    def _class_of(self, node: ast.AST | None, depth: int) -> ast.ClassDef | None:
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, ast.Call):
            return self._class_made(node, depth)
        if isinstance(node, ast.IfExp):
            return self._class_of(node.body, depth + 1) or self._class_of(node.orelse, depth + 1)
        if isinstance(node, ast.Subscript) and not written(node):
            return self._class_of(node.value, depth + 1)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            given = self.latest(node)
            if given is not None:
                return self._class_of(given, depth + 1)
            handed = self._given_to_parameter(node) if isinstance(node, ast.Name) and depth < 4 else ()
            return self._first_class(handed, depth)
        return None

    def _class_made(self, call: ast.Call, depth: int) -> ast.ClassDef | None:
        func = call.func
        if (owner := self.classes.get(written(func)) or self.classes.get(self._borrowed_name(func))) is not None:
            return owner
        inner = self.handed_on(call) or (call.args[0] if call.args and self.method(call) in _BARS else None)
        if inner is not None:
            return self._class_of(inner, depth + 1)
        if isinstance(func, ast.Attribute) and written(func.value) in self.classes:
            return self.classes[written(func.value)]  # Model.from_pretrained(…), Data.load(…)
        function = self.functions.get(func.id) if isinstance(func, ast.Name) else None
        returned = (node.value for node in self.within(function, ast.Return)) if function is not None else ()
        return self._first_class(returned, depth)

    def _first_class(self, nodes: Iterable[ast.AST | None], depth: int) -> ast.ClassDef | None:
        return next((found for node in nodes if (found := self._class_of(node, depth + 1)) is not None), None)

    def _given_to_parameter(self, node: ast.Name) -> Iterator[ast.expr]:
        """What calls in the file give for the parameter that this name is; of `__init__`, what makes the object gives it."""
        function = self.enclosing_function(node)
        if function is None or node.id not in parameters(function):
            return
        owner = self.parent(function)
        name = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
        for call in self.calls_to(name)[:4]:
            given = self.argument_for(call, function, node.id)
            if given is not None and given is not node:
                yield given

    def made_by(self, node: ast.AST | None) -> str:
        """The dotted name of the call that made this object, through variables: `multiprocessing.Pool` for `pool`."""
        return self.name(self.construction(node))

    def construction(self, node: ast.AST | None) -> ast.Call | None:
        """The call that made this object, through variables, `.to(device)` and wrappers."""
        for _ in range(_DEEPEST):
            inner = self.handed_on(node) if isinstance(node, ast.Call) else self.latest(node)
            if inner is None or inner is node:
                return node if isinstance(node, ast.Call) else None
            node = inner
        return None

    def handed_on(self, call: ast.Call) -> ast.expr | None:
        """The object that a call gives back as it is, or wrapped."""
        method = self.method(call)
        if isinstance(call.func, ast.Attribute) and method in _SAME_OBJECT:
            return call.func.value
        return call.args[0] if method in _WRAPPERS and call.args else None

    def made_of(self, node: ast.AST | None, *, contents: bool = False) -> Iterator[ast.Call]:
        """The calls that made this value, the nearest first: through variables, parameters, method chains, functions of the file.

        With `contents` also those of all that was put into it: the steps of a pipeline, what was appended, what a call was given.
        """
        seen: set[ast.AST] = set()
        left: list[ast.AST | None] = [node]
        while left and len(seen) < _MOST_PARTS:
            part = left.pop(0)
            if part is not None and part not in seen:
                seen.add(part)
                if isinstance(part, ast.Call):
                    yield part
                left += self._made_before(part, contents=contents)

    def _made_before(self, node: ast.AST, *, contents: bool) -> Iterable[ast.AST | None]:
        if isinstance(node, ast.Call):
            function = self.function_of(node)
            own = function is not None and function.name not in RUNNING
            back = [item.value for item in self.returns(function)] if own and function is not None else []
            through = contents or function is not None or self.method(node) in _PASSING_ON
            given = [*node.args, *(item.value for item in node.keywords if contents)] if through else []
            return [*back, self.receiver(node), *given]
        if isinstance(node, ast.Name | ast.Attribute):
            return self._given_anyhow(node, contents=contents)
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return (self.entry(node.value, key).nodes if isinstance(key, str) else ()) or (node.value,)
        parts = isinstance(node, ast.List | ast.Tuple | ast.IfExp | ast.Starred)
        held = contents and isinstance(node, ast.Dict | ast.Set | ast.BinOp | ast.BoolOp)
        return ast.iter_child_nodes(node) if parts or held else ()

    def _given_anyhow(self, node: ast.Name | ast.Attribute, *, contents: bool) -> list[ast.AST | None]:
        name = self.written(node)
        handed = self.given_by_callers(name, node, most=20) if isinstance(node, ast.Name) else []
        if not name or not contents:
            reaching = [item for item in self.reaching(node) if item.how == "given"]
            whole = {item: item.value if isinstance(item.value, ast.Call) else None for item in reaching}  # a, b = call(…)
            in_force = [self.given_value(item) or whole[item] for item in reaching]
            return [*in_force, *handed]
        outside = self.set_from_outside(node.attr) if isinstance(node, ast.Attribute) and name.startswith("self.") else []
        added = [value for at, value in self.added_to(name) if self.index.scope(at) is self.index.scope(node)]
        return [*handed, *self.assigned(name, node), *outside, *added]

    def targets(self, node: ast.AST) -> list[str]:
        """Names on the left of the assignment whose right side holds `node`; the key it has in a dict literal comes first."""
        found: list[str] = []
        inner: ast.AST = node
        for above in self.ancestors(node):
            if isinstance(above, ast.Dict):
                keys = [key for key, value in zip(above.keys, above.values, strict=True) if value is inner]
                found += [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            if isinstance(above, ast.stmt):
                return found + _assigned_names(above, inner)
            if isinstance(above, ast.Lambda | ast.comprehension):
                return found
            if not isinstance(above, ast.Tuple | ast.List):
                inner = above
        return found

    def argument(self, call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
        """The argument given by keyword, by position (from 0), or in a dict given as `**settings`."""
        return self.option(call, name, position).last

    def option(self, call: ast.Call, name: str, position: int | None = None) -> Choices:
        """What a call may be given for a parameter, as written; `**settings` are looked into, branches joined."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return Choices((keyword.value,))
        before = call.args[: position + 1] if position is not None else []
        if position is not None and len(before) > position and not any(isinstance(given, ast.Starred) for given in before):
            return Choices((before[position],))
        if (call, name) in self._opening:  # settings that are handed on to a call of the same function
            return _UNKNOWN
        self._opening.add((call, name))
        found = [self.entry(keyword.value, name, call) for keyword in call.keywords if keyword.arg is None]
        self._opening.discard((call, name))
        return next((item for item in found if not item.absent), None) or reduce(or_, found, _ABSENT)

    @cached_property
    def _opening(self) -> set[tuple[ast.Call, str]]:
        return set()

    def keyword(self, call: ast.Call, name: str) -> ast.keyword | None:
        return next((keyword for keyword in call.keywords if keyword.arg == name), None)

    def assigned(self, name: str, at: ast.AST | None = None) -> list[ast.expr]:
        """The expressions assigned to this variable (as written: `x`, `self.x`), of all scopes or as seen from `at`."""
        found = self.bindings.all(name) if at is None else self.bindings.seen_from(name, at)
        return [value for given in found if (value := self.given_value(given)) is not None]

    def bound(self, node: ast.Name) -> list[ast.expr]:
        """All that a variable is given in its own scope, whichever runs: assignments, loops and sums."""
        found = self.bindings.within(node.id, self.index.scope(node))
        return [item.value for item in found if item.value is not NO_VALUE]

    def given_before(self, node: ast.AST) -> Binding | None:
        """The assignment of a variable that comes last before this place, in the same function."""
        number, scope = self.index.number[node], self.index.scope(node)
        found = [item for item in self.reaching(node) if item.how == "given" and item.scope is scope]
        before = [item for item in found if self.index.stop(item.node) < number]
        return before[-1] if before else None

    def added_to(self, name: str) -> list[tuple[ast.AST, ast.expr]]:
        """What `x += …`, `x.append(…)` and its like, and `x[i] = …` put into a variable, with their places."""
        return self._added.get(name, []) if name else []

    @cached_property
    def _added(self) -> dict[str, list[tuple[ast.AST, ast.expr]]]:
        found: dict[str, list[tuple[ast.AST, ast.expr]]] = {}
        for call in self.calls_to(*_FILLING):
            found.setdefault(self.written(self.receiver(call)), []).extend((call, value) for value in arguments(call))
        for more in self.nodes(ast.AugAssign):
            found.setdefault(self.written(more.target), []).append((more, more.value))
        for node in self.nodes(ast.Assign):
            for target in (part for item in node.targets for part in flat(item) if isinstance(part, ast.Subscript)):
                inner: ast.expr = target
                while isinstance(inner, ast.Subscript):
                    inner = inner.value
                found.setdefault(self.written(inner), []).append((node, node.value))
        return found

    def set_from_outside(self, attribute: str) -> list[ast.expr]:
        """What `data.transform = …` gives to an attribute of this name, on anything but `self`."""
        places = (node for node in self.attributes(attribute) if self.written(node.value) != "self")
        return [above.value for node in places if isinstance(above := self.parent(node), ast.Assign) and node in above.targets]

    def reaching(self, node: ast.AST) -> list[Binding]:
        """The bindings of a variable that can be in force where it is read, branches joined."""
        found = self._reaching.get(node)
        if found is None:
            name = self.written(node)
            found = self._reaching[node] = self.bindings.reaching(name, node) if name else []
        return found

    def latest(self, node: ast.AST | None) -> ast.expr | None:
        """One thing that the variable `node` may be here: of what branches gave it, the last before this place."""
        given = [item for item in self.reaching(node) if item.how == "given"] if node is not None else []
        number = self.index.number[node] if given and node is not None else 0
        before = [item for item in given if item.order < number] or given
        return self.given_value(before[-1]) if before else None

    def given(self, name: str) -> list[Binding]:
        """Assignments with their scope and order."""
        return self.bindings.all(name)


def _assigned_names(statement: ast.stmt, inner: ast.AST) -> list[str]:
    if isinstance(statement, ast.AnnAssign):
        return [written(statement.target)]
    if not isinstance(statement, ast.Assign):
        return []
    found: list[str] = []
    for target in statement.targets:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(statement.value, ast.Tuple | ast.List):
            pairs = zip(target.elts, statement.value.elts, strict=False)
            found += [written(left) for left, right in pairs if right is inner]
        elif isinstance(target, ast.Tuple | ast.List):
            found += [written(item) for item in target.elts]
        else:
            found.append(written(target))
    return [name for name in found if name]
