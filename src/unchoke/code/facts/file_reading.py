"""Is a variable only ever read as numbers: printed, compared, averaged, logged, plotted?

In come a program and a variable, out goes yes, or no where anything else may happen to it. Used before a rewrite takes the
graph off what is kept: only a yes makes that safe. Every use is followed through assignments, returns and lists; what is not
known means no.
"""

from __future__ import annotations

import ast

from unchoke.code.facts.sourcing import root
from unchoke.code.program import Program
from unchoke.code.signatures import parameters

_READ = frozenset({"item", "detach", "tolist", "numel", "size", "argmax", "backward_", "clear"})
_END = frozenset({"print", "float", "int", "len", "str", "repr", "isinstance", "format", "display", "bool", "type"})
_THROUGH = frozenset({"sum", "round", "abs", "max", "min", "sorted", "list", "tuple", "zip", "dict", "statistics.mean"})
_ENDING = (
    "numpy.",
    "matplotlib.",
    "pandas.",
    "json.",
    "csv.",
    "math.",
    "logging.",
    "wandb.",
    "mlflow.",
    "torchmetrics.",
    "seaborn.",
    "sklearn.",
)
_LOGS = frozenset(
    {
        "add_scalar", "add_scalars", "log", "log_metric", "log_metrics", "log_dict", "info", "debug", "warning", "write",
        "writerow", "set_postfix", "set_postfix_str", "set_description", "plot", "writelines", "track",
    }
)  # fmt: skip
_DEEPEST = 6
Seen = set[tuple[str, ast.AST | None]]


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
            return _ends_in(program, above, inner, seen)
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


def _ends_in(program: Program, statement: ast.stmt, inner: ast.AST, seen: Seen) -> bool:
    if isinstance(statement, ast.Expr | ast.If | ast.While | ast.Assert | ast.Delete):
        return True
    if isinstance(statement, ast.Assign):
        targets = [part for target in statement.targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        return all(
            isinstance(target, ast.Name | ast.Subscript) and is_only_read(program, root(target), statement, seen)
            for target in targets
        )
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.target, ast.Name | ast.Subscript) and is_only_read(
            program, root(statement.target), statement, seen
        )
    if isinstance(statement, ast.Return):
        function = program.enclosing_function(statement)
        calls = program.callers(function) if function is not None else []
        return bool(calls) and len(seen) <= _DEEPEST and all(_ends(program, call, seen) for call in calls)
    return False
