"""Is a line run on every round, or only now and then? Conditions such as `if step % 50 == 0`, `if debug`, `if self.f is None`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.bindings import written
from unchoke.code.constant_values import Values
from unchoke.code.node_index import FunctionNode, is_none

_BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SWITCHES = ("debug", "verbose", "log_every", "should_log", "do_log", "print_every", "is_main", "profil", "dry_run", "sanity")
_EXISTS = frozenset({"exists", "isfile", "is_file", "lexists"})
DISK = "(disk)"
_CLOCKS = frozenset({"time", "monotonic", "perf_counter", "now", "elapsed"})
_COUNTERS = (
    "step", "iter", "batch_idx", "idx", "batch_i", "it", "i", "n", "k", "b", "ib", "bi", "batch", "nb", "j", "global_step",
    "epoch", "ep",
)  # fmt: skip


def is_conditional(program: Values, node: ast.AST) -> bool:
    """Is it under a condition on the round's number or the clock, a switch for debugging, or in a branch that leaves the loop?"""
    return (
        any(_is_now_and_then(test) for test in _tests_round(program, node)) or _after_skip(program, node) or leaves(program, node)
    )


def is_lazy(program: Values, node: ast.AST) -> bool:
    """Is it run once and kept: under `if self.x is None`, `if key not in cache`, `if not hasattr(…)`, `except KeyError`?"""
    for above in program.ancestors(node):
        if isinstance(above, FunctionNode | ast.Lambda):
            return False
        if isinstance(above, ast.If) and any(missing(program, above.test)) and program.index.holds_any(above.body, node):
            return True
        if isinstance(above, ast.ExceptHandler) and program.method(above.type) in ("KeyError", "AttributeError"):
            return True
    return False


def is_there(test: ast.expr) -> bool:
    """`key in cache`, `x is not None`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    return isinstance(test.ops[0], ast.In) or (isinstance(test.ops[0], ast.IsNot) and is_none(test.comparators[0]))


def missing(program: Values, test: ast.expr) -> Iterator[str]:
    """What a test for the first time asks about: `self.f` for `self.f is None`, `cache` for `k not in cache`, DISK for a file."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from missing(program, part)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.ops[0], ast.NotIn):
            yield program.written(test.comparators[0]).removesuffix(".keys")
        elif isinstance(test.ops[0], ast.Is) and is_none(test.comparators[0]):
            yield _got(program, test.left)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if looks_on_disk(program, inner):
            yield DISK
        elif isinstance(inner, ast.Call) and program.name(inner) in ("hasattr", "getattr"):
            yield _got(program, inner)
        elif isinstance(inner, ast.Compare) and is_there(inner):
            yield program.written(inner.comparators[0]) or _got(program, inner.left)
        elif program.written(inner).startswith("self."):
            yield program.written(inner)


def _got(program: Values, node: ast.expr) -> str:
    """`self.f` for `getattr(self, "f", None)`."""
    if isinstance(node, ast.Call) and program.name(node) in ("getattr", "hasattr") and len(node.args) > 1:
        return f"{program.written(node.args[0])}.{program.value(node.args[1])}"
    return program.written(node) or "(local)"


def looks_on_disk(program: Values, test: ast.expr) -> bool:
    """`os.path.exists(small)`, also as the first of several conditions."""
    calls = [test] if isinstance(test, ast.Call) else test.values[:1] if isinstance(test, ast.BoolOp) else []
    return any(isinstance(call, ast.Call) and program.method(call) in _EXISTS for call in calls)


def _tests_round(program: Values, node: ast.AST) -> Iterator[ast.expr]:
    """The conditions between `node` and its loop or function."""
    inner = node
    for above in program.ancestors(node):
        if isinstance(above, ast.If | ast.IfExp) and inner is not above.test:
            yield above.test
        elif isinstance(above, ast.BoolOp) and inner is not above.values[0]:
            yield from above.values[:1]
        elif isinstance(above, _BLOCKS):
            return
        inner = above


def _after_skip(program: Values, node: ast.AST) -> bool:
    """`if step % 50: continue` earlier in the same block."""
    statement = program.statement(node)
    while statement is not None:
        parent = program.parent(statement)
        block = program.block_round(statement)
        if any(_skips(item) for item in (block[: block.index(statement)] if block else ())):
            return True
        if parent is None or isinstance(parent, _BLOCKS):
            return False
        statement = program.statement(parent)
    return False


def leaves(program: Values, node: ast.AST) -> bool:
    """`if trouble: … raise`, `if done: … break`, `except`: at most once, or when something went wrong."""
    for above in program.ancestors(node):
        if isinstance(above, _BLOCKS):
            return False
        if isinstance(above, ast.ExceptHandler):
            return True
        if isinstance(above, ast.If):
            branch = above.body if program.index.holds_any(above.body, node) else above.orelse
            if branch and program.index.holds_any(branch, node) and isinstance(branch[-1], ast.Raise | ast.Break):
                return True
    return False


def _skips(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or statement.orelse or not isinstance(statement.body[-1], ast.Continue | ast.Return):
        return False
    return _is_now_and_then(statement.test)


def _is_now_and_then(test: ast.expr) -> bool:
    parts = list(ast.walk(test))
    rests = [part.left for part in parts if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)]
    if any(not isinstance(left, ast.Constant) or not isinstance(left.value, str) for left in rests):
        return True
    names = {part.id.lower() for part in parts if isinstance(part, ast.Name)}
    names |= {part.attr.lower() for part in parts if isinstance(part, ast.Attribute)}
    if any(switch in name for name in names for switch in _SWITCHES) or names & _CLOCKS:
        return True
    return any(_is_one_round(part) for part in parts if isinstance(part, ast.Compare))


def _is_one_round(test: ast.Compare) -> bool:
    """`step == 0`, `i == len(loader) - 1`, `step < 3`."""
    name = written(test.left).rpartition(".")[2]
    return name.lower() in _COUNTERS and isinstance(test.ops[0], ast.Eq | ast.Lt | ast.LtE | ast.In)
