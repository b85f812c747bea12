"""Where a value goes: the expressions that hold it, or something made of it; and whether it is only ever read as a number.

In comes a call, out go expressions in the same function, in the functions it is handed to and in those it is returned to.
Numbers about the value (its shape, its mean) are not followed. `is_only_read` asks the same of a variable: do all its uses end
in numbers?
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.origins import root
from unchoke.code.node_index import parameters
from unchoke.code.program import Program

_FACTS_OF = frozenset(
    {"shape", "size", "width", "height", "ndim", "dtype", "mode", "count", "meta", "profile", "crs", "bounds", "transform",
     "nbytes", "info", "format", "attrs", "keys", "close", "mean", "std", "min", "max", "sum", "any", "all", "item", "tolist",
     "argmax", "getbbox"}
)  # fmt: skip
_NO_COPY = frozenset(
    {"len", "print", "isinstance", "range", "int", "float", "str", "bool", "type", "hasattr", "id", "repr", "max", "min"}
)
_MOST = 400
_READ = frozenset({"item", "detach", "tolist", "numel", "size", "argmax", "backward_", "clear"})
_END = frozenset({"print", "float", "int", "len", "str", "repr", "isinstance", "format", "display", "bool", "type"})
_THROUGH = frozenset({"sum", "round", "abs", "max", "min", "sorted", "list", "tuple", "zip", "dict", "statistics.mean"})
_ENDING = (
    "numpy.", "matplotlib.", "pandas.", "json.", "csv.", "math.", "logging.", "wandb.", "mlflow.", "torchmetrics.", "seaborn.",
    "sklearn.",
)  # fmt: skip
_LOGS = frozenset(
    {"add_scalar", "add_scalars", "log", "log_metric", "log_metrics", "log_dict", "info", "debug", "warning", "write",
     "writerow", "set_postfix", "set_postfix_str", "set_description", "plot", "writelines", "track"}
)  # fmt: skip
_DEEPEST = 6
Seen = set[tuple[str, ast.AST | None]]


def follow(program: Program, call: ast.Call, *, same: bool = False) -> list[ast.expr]:
    """Every expression that holds the value, the call itself first. With `same`, the object itself and not what is made of it."""
    walk = _ForwardWalk(program, same=same)
    walk.go_on(call)
    return list(walk.values)


class _ForwardWalk:
    def __init__(self, program: Program, *, same: bool) -> None:
        self.values: dict[ast.expr, None] = {}
        self._program = program
        self._same = same

    def go_on(self, start: ast.expr) -> None:
        left = [start]
        while left and len(self.values) < _MOST:
            node = left.pop()
            if node not in self.values:
                self.values[node] = None
                left.extend(self._next(node))

    def _next(self, node: ast.expr) -> Iterator[ast.expr]:
        parent = self._program.parent(node)
        if isinstance(parent, ast.keyword):
            node_of, parent = parent, self._program.parent(parent)
            if isinstance(parent, ast.Call):
                yield from self._handed(parent, node, node_of.arg)
        elif isinstance(parent, ast.Call) and node is not parent.func:
            yield from self._handed(parent, node, None)
        elif isinstance(parent, ast.Attribute):
            yield from self._attribute(parent)
        elif isinstance(parent, ast.Return):
            yield from self._returned(parent)
        elif isinstance(parent, ast.stmt | ast.withitem | ast.NamedExpr):
            yield from self._bound(parent, node)
        elif isinstance(parent, ast.Tuple | ast.List | ast.Starred | ast.IfExp):
            yield from self._grouped(parent, node)
        elif isinstance(parent, ast.expr) and not self._same and _is_made_of(parent, node):
            yield parent

    def _handed(self, call: ast.Call, node: ast.expr, keyword: str | None) -> Iterator[ast.expr]:
        """Given to a function: its parameter there; given to a library: what comes back."""
        function = self._program.function_of(call)
        if function is not None:
            for name in parameters(function):
                if name == keyword or (keyword is None and self._program.argument_for(call, function, name) is node):
                    yield from self._loads(function, name, -1)
        if not self._same and self._program.name(call) not in _NO_COPY and self._program.method(call) not in _FACTS_OF:
            yield call

    def _attribute(self, attribute: ast.Attribute) -> Iterator[ast.expr]:
        above = self._program.parent(attribute)
        if isinstance(above, ast.Call) and above.func is attribute:
            if attribute.attr == "__enter__" or (not self._same and attribute.attr not in _FACTS_OF):
                yield above
        elif not self._same and attribute.attr not in _FACTS_OF:
            yield attribute

    def _returned(self, statement: ast.Return) -> Iterator[ast.expr]:
        function = self._program.enclosing_function(statement)
        yield from self._program.callers(function) if function is not None else ()

    def _grouped(self, group: ast.expr, node: ast.expr) -> Iterator[ast.expr]:
        parent = self._program.parent(group)
        if isinstance(parent, ast.Assign) and isinstance(group, ast.Tuple | ast.List):
            position = group.elts.index(node)
            for target in parent.targets:
                if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(group.elts):
                    yield from self._named(target.elts[position], parent)
                    return
        yield group

    def _bound(self, parent: ast.AST, node: ast.expr) -> Iterator[ast.expr]:
        if isinstance(parent, ast.Assign):
            for target in parent.targets:
                yield from self._named(target, parent)
        elif isinstance(parent, ast.AnnAssign | ast.NamedExpr) and node is not parent.target:
            yield from self._named(parent.target, parent)
            if isinstance(parent, ast.NamedExpr):
                yield parent
        elif isinstance(parent, ast.withitem) and parent.optional_vars is not None:
            yield from self._named(parent.optional_vars, parent)

    def _named(self, target: ast.expr, statement: ast.AST) -> Iterator[ast.expr]:
        """The later uses of a variable that now holds the value."""
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                yield from self._named(part, statement)
        elif isinstance(target, ast.Name):
            scope = self._program.index.scope(statement)
            yield from self._loads(scope, target.id, self._program.index.number[statement])
        elif isinstance(target, ast.Attribute):
            scope, name = self._program.index.scope(statement), self._program.written(target)
            for node in self._program.within(scope, ast.Attribute) if scope is not None and name else ():
                if isinstance(node.ctx, ast.Load) and self._program.written(node) == name:
                    yield node

    def _loads(self, scope: ast.AST | None, name: str, after: int) -> Iterator[ast.expr]:
        index = self._program.index
        for node in (part for part in self._program.names(name) if isinstance(part.ctx, ast.Load)):
            inside = index.scope(node) is None if scope is None else index.holds(scope, node)
            if inside and index.number[node] > after:
                yield node


def _is_made_of(parent: ast.expr, node: ast.expr) -> bool:
    """Is the outer expression made of the inner one's contents?"""
    if isinstance(parent, ast.Subscript):
        return parent.value is node
    return not isinstance(parent, ast.Compare | ast.BoolOp | ast.JoinedStr)


def is_only_read(program: Program, name: str, at: ast.AST, seen: Seen | None = None) -> bool:
    """Do all uses of the variable `name`, as seen from `at`, end in numbers?"""
    scope = program.enclosing_scope(at)
    seen = seen if seen is not None else set()
    if (name, scope) in seen:
        return True
    seen.add((name, scope))
    if not name or "." in name or len(seen) > _DEEPEST or _comes_from_outside(program, name, at):
        return False
    uses = [
        node
        for node in program.nodes(ast.Name)
        if node.id == name and isinstance(node.ctx, ast.Load) and _is_seen(program, node, scope)
    ]
    return all(_ends(program, node, seen) for node in uses)


def _comes_from_outside(program: Program, name: str, at: ast.AST) -> bool:
    """A parameter, or a variable that another scope or file made: others may hold it too."""
    scope = program.enclosing_scope(at)
    if scope is not None and name in parameters(scope):
        return True
    return not any(given.scope is scope for given in program.given(name))


def _is_seen(program: Program, node: ast.Name, scope: ast.AST | None) -> bool:
    """Is it this variable, and not one of the same name that another function has for itself?"""
    own = program.enclosing_scope(node)
    while own is not None and own is not scope:
        if node.id in parameters(own) or any(given.scope is own for given in program.given(node.id)):
            return False
        own = program.enclosing_scope(own)
    return own is scope


def _ends(program: Program, node: ast.AST, seen: Seen) -> bool:
    """Does this use end in a number, a text, a log, or in another variable that does?"""
    inner = node
    for above in program.ancestors(node):
        if isinstance(above, ast.stmt):
            return _ends_in(program, above, seen)
        if isinstance(above, ast.Compare | ast.JoinedStr | ast.FormattedValue):
            return True
        if isinstance(above, ast.Call):
            found = _called(program, above, inner, seen)
            if found is not None:
                return found
        elif isinstance(above, ast.Lambda | ast.comprehension | ast.ListComp | ast.GeneratorExp | ast.Await | ast.NamedExpr):
            return False
        inner = above
    return False


def _called(program: Program, call: ast.Call, inner: ast.AST, seen: Seen) -> bool | None:
    """True or False where the call settles it, None to go on with the call's result."""
    method, name = program.method(call), program.name(call)
    if inner is call.func:
        if method in ("append", "extend"):
            return isinstance(program.parent(call), ast.Expr)
        return True if method in _READ else (False if method in ("backward", "pop", "insert") else None)
    if name in _END or name.startswith(_ENDING) or method in _LOGS:
        return True
    if method == "append" and isinstance(call.func, ast.Attribute):
        return is_only_read(program, root(call.func.value), call, seen)
    if name in _THROUGH or (name.startswith("torch.") and not name.startswith(("torch.autograd", "torch.save"))):
        return None
    return name == "torch.save"


def _ends_in(program: Program, statement: ast.stmt, seen: Seen) -> bool:
    if isinstance(statement, ast.Expr | ast.If | ast.While | ast.Assert | ast.Delete):
        return True
    if isinstance(statement, ast.Assign):
        targets = [part for target in statement.targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        plain = all(isinstance(target, ast.Name | ast.Subscript) for target in targets)
        return plain and all(is_only_read(program, root(target), statement, seen) for target in targets)
    if isinstance(statement, ast.AugAssign):
        plain = isinstance(statement.target, ast.Name | ast.Subscript)
        return plain and is_only_read(program, root(statement.target), statement, seen)
    if isinstance(statement, ast.Return):
        function = program.enclosing_function(statement)
        calls = program.callers(function) if function is not None else []
        return bool(calls) and len(seen) <= _DEEPEST and all(_ends(program, call, seen) for call in calls)
    return False
