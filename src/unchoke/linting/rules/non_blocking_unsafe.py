"""A copy that may not be done when it is read.

**To the CPU.** `x.to("cpu", non_blocking=True)` only starts the copy and returns. Nothing makes the reader wait: `.numpy()`, a
sum or a print right after it may see what was in that memory before. No error is raised; the numbers are wrong now and then.
Copies *to* the device are safe: the device works in order.

**On MPS.** Copies from ordinary memory gain nothing there, and `non_blocking=True` is known to have given stale values.

**Write instead.** `.cpu()` or `.to("cpu")`, which wait; or start many copies and wait once before the first read:

    parts = [model(x).to("cpu", non_blocking=True) for x in batches]
    torch.cuda.synchronize()
    result = torch.cat(parts).numpy()

**When this is fine.** With `torch.cuda.synchronize()`, an event or a stream that is waited for between the copy and the read:
then it is not reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import CPU, MPS, plain_device
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, shortened

RULE = Rule(
    group="device",
    stage="copy",
    title="a copy that may not be done when it is read",
    kind="nit",
    gain="right numbers",
    devices=("cuda", "mps"),
    frameworks=("torch",),
)
_MEASURES = frozenset({"shape", "numel", "element_size", "dtype", "size", "device", "ndim"})
_WAITS = frozenset({"synchronize", "wait", "wait_stream", "wait_event", "query"})


def check(program: Program) -> Iterator[Hit]:
    given = ((call, program.keyword(call, "non_blocking")) for call in program.nodes(ast.Call))
    copies = [call for call, option in given if option is not None and program.value(option.value) is True]
    on_mps = plain_device(program) == MPS
    for call in copies:
        text = shortened(program, call)
        if _goes_home(program, call) and not _is_waited_for(program, call) and _is_read(program, call):
            yield Hit(
                call,
                f"`{text}` only starts the copy, and its result is read with nothing that waits for it: values may be wrong",
                evidence={"call": text},
                fix="write `.cpu()`, which waits, or call `torch.cuda.synchronize()` once before the first read",
            )
        elif on_mps:
            yield Hit(
                call,
                f"`{text}`: the device of this file is MPS, where `non_blocking=True` gains nothing and has given stale values",
                evidence={"call": text, "device": MPS},
                fix="leave `non_blocking=True` out on MPS",
            )


def _goes_home(program: Program, call: ast.Call) -> bool:
    """To the CPU by name, or into a pinned buffer."""
    if program.method(call) == "copy_":
        made = program.latest(_buffer(call))
        pinned = isinstance(made, ast.Call) and program.value(program.argument(made, "pin_memory")) is True
        return pinned or program.method(made) == "pin_memory"
    meant = program.choices(program.argument(call, "device", 0)).nodes
    inner = [item.args[0] if isinstance(item, ast.Call) and item.args else item for item in meant]  # torch.device("cpu")
    return bool(inner) and all(program.value(item) == CPU for item in inner)


def _buffer(call: ast.Call) -> ast.AST:
    """`buffer` of `buffer[i].copy_(…)`."""
    node: ast.AST = call.func.value if isinstance(call.func, ast.Attribute) else call
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _is_waited_for(program: Program, call: ast.Call) -> bool:
    """Is there a wait after the copy, or round it in a loop? For what a function copies, one elsewhere in the file may be it."""
    scope, loops = program.enclosing_function(call), program.loops_around(call)
    for other in program.calls_to(*_WAITS):
        elsewhere = scope is not None and program.enclosing_function(other) is not scope
        if elsewhere or program.is_before(call, other) or any(program.index.holds(loop, other) for loop in loops):
            return True
    return False


def _is_read(program: Program, call: ast.Call) -> bool:
    """Is the result used: at once by a method or an operator, later by its variable's name, or by whoever calls the function?"""
    if program.method(call) == "copy_":
        return _is_loaded_after(program, call, {program.written(_buffer(call))})
    if isinstance(program.parent(call), ast.Attribute | ast.BinOp | ast.Compare | ast.Subscript | ast.FormattedValue):
        return True
    function = program.enclosing_function(call)
    if isinstance(program.statement(call), ast.Return) and function is not None:
        return bool(program.callers(function))
    around = (above for above in program.ancestors(call) if isinstance(above, ast.Call))
    lists = {program.written(program.receiver(above)) for above in around if program.method(above) in ("append", "extend")}
    return _is_loaded_after(program, call, {*program.targets(call), *lists} - {""})


def _is_loaded_after(program: Program, call: ast.Call, names: set[str]) -> bool:
    """Is one of these read further down, but for its shape and the like, which are known before the values are there?"""
    scope, own = program.enclosing_function(call), program.statement(call) or call
    for node in program.nodes(ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Load) and program.written(node) in names and program.is_before(call, node):
            inside = scope is None or program.index.holds(scope, node)
            above = program.parent(node)
            measured = isinstance(above, ast.Attribute) and above.attr in _MEASURES
            if inside and not measured and not program.index.holds(own, node):
                return True
    return False
