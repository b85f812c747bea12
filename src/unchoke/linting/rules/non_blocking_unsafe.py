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

Device: CUDA for copies to the CPU; MPS for any.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import CPU, MPS, plain_device
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, shortened

RULE = Rule(
    code="non-blocking-unsafe",
    group="device",
    stage="copy",
    title="a copy that may not be done when it is read",
    kind="risk",
    gain="right numbers",
    devices=("cuda", "mps"),
    frameworks=("torch",),
)
_WAITS = frozenset({"synchronize", "wait", "wait_stream", "wait_event", "query"})


def check(program: Program) -> Iterator[Hit]:
    copies = [call for call in program.nodes(ast.Call) if _is_async(program, call)]
    if not copies:
        return
    on_mps = plain_device(program) == MPS
    for call in copies:
        if _goes_home(program, call) and not _is_waited_for(program, call) and _is_read(program, call):
            yield _unfinished(program, call)
        elif on_mps:
            yield _on_mps(program, call)


def _unfinished(program: Program, call: ast.Call) -> Hit:
    text = shortened(program, call)
    return Hit(
        call,
        f"`{text}` only starts the copy, and its result is read with nothing that waits for it: values may be wrong",
        evidence={"call": text},
        fix="write `.cpu()`, which waits, or call `torch.cuda.synchronize()` once before the first read",
    )


def _on_mps(program: Program, call: ast.Call) -> Hit:
    text = shortened(program, call)
    return Hit(
        call,
        f"`{text}`: the device of this file is MPS, where `non_blocking=True` gains nothing and has given stale values",
        evidence={"call": text, "device": MPS},
        fix="leave `non_blocking=True` out on MPS",
    )


def _is_async(program: Program, call: ast.Call) -> bool:
    given = program.keyword(call, "non_blocking")
    return given is not None and isinstance(call.func, ast.Attribute) and program.value(given.value) is True


def _goes_home(program: Program, call: ast.Call) -> bool:
    """To the CPU by name, or into a pinned buffer."""
    if program.method(call) == "copy_":
        return _is_pinned_buffer(program, program.receiver(call))
    target = program.argument(call, "device", 0)
    name = program.written(target)
    meant = program.assigned(name, at=target) if name and target is not None else [target]
    return program.method(call) == "to" and bool(meant) and all(_is_cpu(program, item) for item in meant)


def _is_cpu(program: Program, node: ast.expr | None) -> bool:
    if isinstance(node, ast.Call) and program.name(node) == "torch.device" and node.args:
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == CPU


def _is_pinned_buffer(program: Program, node: ast.AST | None) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    made = program.latest(node) if isinstance(node, ast.Name | ast.Attribute) else None
    if not isinstance(made, ast.Call):
        return False
    pinned = program.value(program.argument(made, "pin_memory")) is True or program.method(made) == "pin_memory"
    return pinned and program.argument(made, "device") is None


def _is_waited_for(program: Program, call: ast.Call) -> bool:
    """Does its function (or, at the top, the file's own level) wait for anything after the copy, or round it in a loop?"""
    scope = program.enclosing_function(call)
    loops = program.loops_around(call)
    for other in program.nodes(ast.Call):
        if not isinstance(other.func, ast.Attribute) or other.func.attr not in _WAITS:
            continue
        if program.enclosing_function(other) is scope:
            looped = any(program.index.holds(loop, other) for loop in loops)
            if looped or program.is_before(call, other):
                return True
        elif scope is not None and (_leaves(program, call) or _is_same_class(program, call, other)):
            return True  # whoever gets it may wait
    return False


def _is_same_class(program: Program, call: ast.Call, other: ast.Call) -> bool:
    owner = program.enclosing_class(call)
    return owner is not None and program.enclosing_class(other) is owner


def _leaves(program: Program, call: ast.Call) -> bool:
    """Is the copy handed out of its function?"""
    scope = program.enclosing_function(call)
    if scope is None:
        return False
    if isinstance(program.statement(call), ast.Return):
        return True
    names = _holders(program, call)
    returns = program.within(scope, ast.Return)
    return any(isinstance(part, ast.Name) and part.id in names for item in returns for part in program.within(item, ast.Name))


def _holders(program: Program, call: ast.Call) -> set[str]:
    """The variables that keep the copy: the one it is assigned to, the list it is appended to."""
    names = set(program.targets(call))
    for above in program.ancestors(call):
        if isinstance(above, ast.stmt):
            break
        if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr in ("append", "extend"):
            names.add(program.written(above.func.value))
    return names - {""}


def _is_read(program: Program, call: ast.Call) -> bool:
    """Is the result used: at once by a method or an operator, or later by its variable's name?"""
    if program.method(call) == "copy_":
        base = program.receiver(call)
        while isinstance(base, ast.Subscript):
            base = base.value
        return _is_loaded_after(program, call, {program.written(base)})
    if isinstance(program.statement(call), ast.Return):
        scope = program.enclosing_function(call)
        return scope is not None and (bool(program.callers(scope)) or _is_used_at_once(program, call))
    return _is_used_at_once(program, call) or _is_loaded_after(program, call, _holders(program, call))


def _is_used_at_once(program: Program, call: ast.Call) -> bool:
    return isinstance(program.parent(call), ast.Attribute | ast.BinOp | ast.Compare | ast.Subscript | ast.FormattedValue)


def _is_loaded_after(program: Program, call: ast.Call, names: set[str]) -> bool:
    scope = program.enclosing_function(call)
    own = program.statement(call) or call
    for node in program.nodes(ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Load) and program.written(node) in names and program.is_before(call, node):
            inside = scope is None or program.index.holds(scope, node)
            if inside and not program.index.holds(own, node) and not _is_measured(program, node):
                return True
    return False


def _is_measured(program: Program, node: ast.AST) -> bool:
    """`x.shape`, `x.numel()`: known before the values are there."""
    parent = program.parent(node)
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "shape",
        "numel",
        "element_size",
        "dtype",
        "size",
        "device",
        "ndim",
    )
