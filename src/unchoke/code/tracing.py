"""Who calls whom in one file, what a variable was given, and what an object was made from.

The second layer of a program, over `nodes`. Follows names, methods of `self`, variables, parameters and wrappers within the file;
guesses nothing across files, and what it cannot tell is None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from unchoke.code.assigning import Assignment, written
from unchoke.code.node_index import FunctionNode, parameters
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
     "DDP", "CacheDataset", "tqdm", "enumerate", "iter", "random_split", "split"}
)  # fmt: skip


class CallGraph(Nodes):
    """Functions, classes, calls, variables and instances of one program."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source)
        self._called: dict[ast.AST, list[FunctionNode]] = {}
        self._reach: dict[ast.AST, set[FunctionNode]] = {}
        self._methods_of: dict[ast.ClassDef, dict[str, FunctionNode]] = {}
        self._function_of: dict[ast.Call, FunctionNode | None] = {}

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
        if isinstance(func, ast.Name):
            return self._by_name(func)
        if isinstance(func, ast.Attribute):
            return self._by_method(func)
        owner = self.assigned_class(func) if isinstance(func, ast.Call) else None
        return self._run_by_call(owner) if owner else None

    def _by_name(self, func: ast.Name) -> FunctionNode | None:
        function = self.functions.get(func.id)
        if function is not None:
            return function
        if func.id in self.classes:
            return self.methods(self.classes[func.id]).get("__init__")
        if func.id in ("self", "model", "net") or self.given(func.id):
            enclosing = self.enclosing_class(func) if func.id == "self" else None
            owner = enclosing or self.assigned_class(func)
            if owner is not None:
                return self._run_by_call(owner)
        return self._kept_function(func)

    def _kept_function(self, func: ast.Name | ast.Attribute) -> FunctionNode | None:
        found = self._kept_callable(func, 0)
        return None if isinstance(found, ast.Lambda) else found

    def _by_method(self, func: ast.Attribute) -> FunctionNode | None:
        if isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
            owner = self.enclosing_class(func)
            method = self.methods(owner).get(func.attr) if owner else None
            if method is not None:
                return method
            made = self.assigned_class(func)
            return self._run_by_call(made) if made else self._kept_function(func)
        if isinstance(func.value, ast.Call) and self.name(func.value) == "super":
            return None
        owner = self.assigned_class(func.value) or self.classes.get(written(func.value))
        if owner is not None:
            return self.methods(owner).get(func.attr)
        made = self.assigned_class(func)
        return self._run_by_call(made) if made else None

    def _run_by_call(self, owner: ast.ClassDef) -> FunctionNode | None:
        methods = self.methods(owner)
        return methods.get("forward") or methods.get("__call__") or methods.get("call")

    def callable_of(self, node: ast.AST | None, depth: int = 0) -> FunctionNode | ast.Lambda | None:
        """The function of this file that an expression refers to: a name, `self.x`, a lambda, `partial(f, …)`."""
        if isinstance(node, ast.Lambda):
            return node
        if isinstance(node, ast.Name):
            known = self.functions.get(node.id)
            if known is not None:
                return known
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self.enclosing_class(node)
            method = self.methods(owner).get(node.attr) if owner else None
            return method or self._kept_callable(node, depth)
        if isinstance(node, ast.Call):
            if self.method(node) in _HANDING_ON and node.args:
                return self.callable_of(node.args[0], depth + 1)
            owner = self.assigned_class(node)
            return self._run_by_call(owner) if owner else None
        return self._kept_callable(node, depth) if isinstance(node, ast.Name) else None

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

    def called_functions(self, node: ast.AST) -> list[FunctionNode]:
        """The functions of this file that the code under `node` calls, one level down."""
        found = self._called.get(node)
        if found is None:
            named = (self.function_of(call) for call in self.within(node, ast.Call))
            found = self._called[node] = list(dict.fromkeys(function for function in named if function is not None))
        return found

    def reach(self, function: ast.AST) -> set[FunctionNode]:
        """All functions of this file that run when `function` runs, itself left out unless it calls itself."""
        found = self._reach.get(function)
        if found is None:
            found, left = set(), list(self.called_functions(function))
            while left:
                inner = left.pop()
                if inner not in found:
                    found.add(inner)
                    left.extend(self.called_functions(inner))
            self._reach[function] = found
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

    def dict_item(self, holder: ast.expr, key: str) -> ast.expr | None:
        """The value under `key` in a dict literal or `dict(…)` call, also through a variable."""
        made = self.latest(holder) if isinstance(holder, ast.Name | ast.Attribute) else holder
        if isinstance(made, ast.Dict):
            for name, item in zip(made.keys, made.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == key:
                    return item
                if name is None and isinstance(item, ast.Dict | ast.Name) and item is not holder:
                    found = self.dict_item(item, key) if item is not made else None
                    if found is not None:
                        return found
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "dict":
            return next((keyword.value for keyword in made.keywords if keyword.arg == key), None)
        return None

    def given_value(self, given: Assignment) -> ast.expr | None:
        """The expression assigned; through a function of this file that returns a tuple, its part."""
        if given.position is None:
            return given.value
        function = self.function_of(given.value) if isinstance(given.value, ast.Call) else None
        if function is None:
            return given.value if self.method(given.value) in ("random_split", "prepare") else None
        for node in self.within(function, ast.Return):
            if isinstance(node.value, ast.Tuple) and given.position < len(node.value.elts):
                return node.value.elts[given.position]
        return None

    def assigned_class(self, node: ast.AST | None, depth: int = 0) -> ast.ClassDef | None:
        """The class of this file that an expression or variable is an instance of."""
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, ast.Call):
            return self._class_made(node, depth)
        if isinstance(node, ast.IfExp):
            return self.assigned_class(node.body, depth + 1) or self.assigned_class(node.orelse, depth + 1)
        if isinstance(node, ast.Subscript) and not written(node):
            return self.assigned_class(node.value, depth + 1)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            given = self.latest(node)
            if given is not None:
                return self.assigned_class(given, depth + 1)
            handed = self._given_to_parameter(node) if isinstance(node, ast.Name) and depth < 4 else ()
            return self._first_class(handed, depth)
        return None

    def _class_made(self, call: ast.Call, depth: int) -> ast.ClassDef | None:
        func = call.func
        owner = self.classes.get(written(func))
        if owner is not None:
            return owner
        method = self.method(call)
        if isinstance(func, ast.Attribute) and method in _SAME_OBJECT:
            return self.assigned_class(func.value, depth + 1)
        if method in _WRAPPERS and call.args:
            return self.assigned_class(call.args[0], depth + 1)
        if isinstance(func, ast.Attribute) and written(func.value) in self.classes:
            return self.classes[written(func.value)]  # Model.from_pretrained(…), Data.load(…)
        function = self.functions.get(func.id) if isinstance(func, ast.Name) else None
        returned = (node.value for node in self.within(function, ast.Return)) if function is not None else ()
        return self._first_class(returned, depth)

    def _first_class(self, nodes: Iterable[ast.AST | None], depth: int) -> ast.ClassDef | None:
        return next((found for node in nodes if (found := self.assigned_class(node, depth + 1)) is not None), None)

    def _given_to_parameter(self, node: ast.Name) -> Iterator[ast.expr]:
        """What calls in the file give for the parameter that this name is; of `__init__`, what makes the object gives it."""
        function = self.enclosing_function(node)
        if function is None or node.id not in parameters(function):
            return
        owner = self.parent(function)
        name = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
        for call in self._calls_by_name.get(name, ())[:4]:
            given = self.argument_for(call, function, node.id)
            if given is not None and given is not node:
                yield given

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.nodes(ast.Call):
            func = call.func
            name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
            found.setdefault(name, []).append(call)
        return found

    def made_by(self, node: ast.AST | None, depth: int = 0) -> str:
        """The dotted name of the call that made this object, through variables: `multiprocessing.Pool` for `pool`."""
        if node is None or depth > _DEEPEST:
            return ""
        if isinstance(node, ast.Call):
            method = self.method(node)
            if isinstance(node.func, ast.Attribute) and method in _SAME_OBJECT:
                return self.made_by(node.func.value, depth + 1)
            if method in _WRAPPERS and node.args and method not in ("iter", "tqdm", "enumerate"):
                return self.made_by(node.args[0], depth + 1)
            return self.name(node)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            given = self.latest(node)
            return self.made_by(given, depth + 1) if given is not node else ""
        return ""

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
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        before = call.args[: position + 1] if position is not None else []
        if position is not None and len(before) > position and not any(isinstance(given, ast.Starred) for given in before):
            return before[position]
        unpacked = (keyword.value for keyword in call.keywords if keyword.arg is None)
        return next((found for holder in unpacked if (found := self.dict_item(holder, name)) is not None), None)

    def keyword(self, call: ast.Call, name: str) -> ast.keyword | None:
        return next((keyword for keyword in call.keywords if keyword.arg == name), None)

    def assigned(self, name: str, at: ast.AST | None = None) -> list[ast.expr]:
        """The expressions assigned to this variable (as written: `x`, `self.x`), of all scopes or as seen from `at`."""
        found = self._assigned.all(name) if at is None else self._assigned.seen_from(name, at)
        return [value for given in found if (value := self.given_value(given)) is not None]

    def latest(self, node: ast.AST | None) -> ast.expr | None:
        """What the variable `node` was last given before this place."""
        name = written(node)
        given = self._assigned.latest(name, node) if name and node is not None else None
        return self.given_value(given) if given else None

    def given(self, name: str) -> list[Assignment]:
        """Assignments with their scope and order."""
        return self._assigned.all(name)


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
