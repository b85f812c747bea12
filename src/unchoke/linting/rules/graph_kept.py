"""A loss or output kept together with its graph.

A loss tensor knows how it was computed. Adding it to a running sum, or putting it in a list, keeps that knowledge for every
step so far: memory grows from step to step until the run ends or the device is full, and what is worked out from the sum walks
over all of it. A small autoencoder that averaged its losses that way took 6.0 s, and 3.7 s with the losses detached.

**Write instead.** Keep the number, not the graph:

    running += loss.detach()          # stays on the device, no wait
    losses.append(loss.detach())
    total += loss.item()              # waits for the device: only now and then

**When this is fine.** When the sum is what `backward()` is called on (several losses of one step, accumulated gradients),
inside `torch.no_grad()` or `torch.inference_mode()`, in Lightning's validation steps, and in a network's own methods that decode
step by step: whoever calls them settles that. It is a choke where the file proves the graph (`backward` is called on what is
kept, a `training_step` returns it, a loss of torch made it), else a nit: unseen code may have made a number of it. PyTorch
only: a TensorFlow tensor keeps no graph after its tape. `--fix` writes
`.detach()` where all that is done with the sum or list ends in plain numbers: a tensor that is printed, returned or handed on
shows whether it has a graph.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.facts.epochs import epoch_runs
from unchoke.code.facts.gradients import carries_graph, is_backwarded, is_detaching, is_loss, is_off, uses_torch
from unchoke.code.facts.loops import is_short, says_epoch
from unchoke.code.facts.origins import root, sources
from unchoke.code.node_index import FunctionNode, LoopNode, names_in, parameters
from unchoke.code.program import Program
from unchoke.code.source import CodePlace
from unchoke.linting.proofs import shows_no_graph
from unchoke.linting.rule import Edit, Hit, Rule

RULE = Rule(
    group="compute",
    stage="step",
    title="loss or output kept with its graph",
    gain="6.0 to 3.7 s for a small autoencoder with its losses detached (machine A), and memory that stops growing",
    claim="Planted chokes",
    command="unchoke profile",
    fixable=True,
    frameworks=("torch",),
)
_HOLDERS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_JOINS = frozenset({"torch.cat", "torch.concat", "torch.concatenate", "torch.vstack", "torch.hstack"})
_VIEWS = re.compile(r"views?|tta|aug|model|net|scale|flip|angle|rotation|crop|head|branch|fold|part|level", re.IGNORECASE)
_OF_TENSORS = frozenset(
    {"argmax", "softmax", "sigmoid", "log_softmax", "squeeze", "view", "reshape", "permute", "flatten", "detach",
     "cpu"}
)  # fmt: skip


@dataclass(frozen=True)
class Accumulation:
    """`target` grows by `value`; `adds` tells a sum from a list."""

    node: ast.AST
    target: ast.expr
    value: ast.expr
    adds: bool


def check(program: Program) -> Iterator[Hit]:
    if not uses_torch(program):
        return
    for item in _accumulations(program):
        boundary = _boundary(program, item)
        if boundary is None or not _outlives(program, item, boundary):
            continue
        if carries_graph(program, item.value) and not _reaches_backward(program, item) and not _is_cut(program, item):
            yield _hit(program, item)


def _hit(program: Program, item: Accumulation) -> Hit:
    target, value = program.text(item.target), program.text(item.value)
    did = f"`{target}` adds up `{value}`" if item.adds else f"`{target}` keeps `{value}`"
    edits = _edits(program, item)
    proven = shows_no_graph(program, root(item.target), item.node)
    return Hit(
        item.node,
        f"{did} with its graph, one more in every {_round(program, item.node)}: memory grows until the loop ends",
        evidence={"kept in": target, "value": value},
        fix=_advice(program, item.value),
        edits=edits if proven else (),
        suggestion=() if proven else edits,
        kind=None if _is_sure(program, item.value) else "nit",
    )


def _is_cut(program: Program, item: Accumulation) -> bool:
    """`loss.detach_()` before it."""
    cut = (program.written(program.receiver(call)) for call in program.calls_to("detach_") if program.is_before(call, item.node))
    return isinstance(item.value, ast.Name) and item.value.id in cut


def _is_sure(program: Program, value: ast.expr) -> bool:
    """A tensor with a graph beyond doubt: `backward` is called on it, Lightning is handed it, or torch's own loss made it."""
    if is_backwarded(program, program.written(value), value):
        return True
    made = program.latest(value) or value
    return any(_is_library_loss(program, call) and is_loss(program, call) for call in program.within(made, ast.Call))


def _round(program: Program, node: ast.AST) -> str:
    """What comes once for each thing kept: a step, or an epoch where it stands in the loop over epochs itself."""
    loop = next(iter(program.loops_around(node)), None)
    over_epochs = loop is not None and (says_epoch(program, loop) or any(run.node is loop for run in epoch_runs(program)))
    return "epoch" if over_epochs else "step"


def _advice(program: Program, value: ast.expr) -> str:
    """`.detach()` on the tensors: a tuple, a list and a dict have none."""
    made = program.latest(value) or value
    function = program.function_of(made) if isinstance(made, ast.Call) else None
    given = [item.value for item in program.returns(function)] if function is not None else []
    if given and isinstance(given[0], ast.Dict):
        pairs = zip(given[0].keys, given[0].values, strict=True)
        names = [program.value(key) for key, item in pairs if key is not None and carries_graph(program, item)] or ["loss"]
        held = program.text(value)
        detached = ", ".join(f'"{name}": {held}["{name}"].detach()' for name in names)
        return f"keep `{{**{held}, {detached}}}`"
    holds = isinstance(made, _HOLDERS)
    tensors = [part for part in _elements(value) if carries_graph(program, part)] if holds else [value]
    if not tensors:
        return f"write `.detach()` behind each tensor in `{program.text(value)}`"
    plain = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
    texts = [program.text(part) if isinstance(part, plain) else f"({program.text(part)})" for part in tensors]
    return "write " + " and ".join(f"`{text}.detach()`" for text in texts) + (" in it" if holds else "")


def _elements(node: ast.expr) -> Iterator[ast.expr]:
    """What a tuple, list or dict that is written out holds, also in those inside it."""
    inner = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    for part in inner:
        yield from _elements(part) if isinstance(part, _HOLDERS) else [part]


def _accumulations(program: Program) -> Iterator[Accumulation]:
    """`x += v`, `x = x + v`, `x.append(v)`, `x = torch.cat([x, v])` and a meter's `update(v)`, in order."""
    for node in program.nodes(ast.AugAssign, ast.Assign, ast.Call):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            listed = node.value.elts if isinstance(node.value, ast.List) and len(node.value.elts) == 1 else []
            yield Accumulation(node, node.target, listed[0] if listed else node.value, not listed)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _assigned(program, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            counts = node.func.attr == "update" and _is_meter(program, node)
            if counts or node.func.attr in ("append", "extend"):
                yield Accumulation(node, node.func.value, node.args[0], counts)


def _assigned(program: Program, node: ast.Assign) -> Iterator[Accumulation]:
    target, value = node.targets[0], node.value
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        parts = [value.left, value.right]
    elif isinstance(value, ast.Call) and program.name(value) in _JOINS and value.args:
        parts = value.args[0].elts if isinstance(value.args[0], ast.List | ast.Tuple) else []
    others = [part for part in parts if not program.written(target) or program.written(part) != program.written(target)]
    if len(parts) == 2 and len(others) == 1:
        yield Accumulation(node, target, others[0], isinstance(value, ast.BinOp))


def _is_meter(program: Program, call: ast.Call) -> bool:
    """A class of this file whose `update` adds its first argument to something of its own, as it comes."""
    function = program.function_of(call)
    if function is None or any(is_detaching(program, inner) for inner in program.within(function, ast.Call)):
        return False
    grown = [item.value for item in program.within(function, ast.AugAssign) if root(item.target).startswith("self.")]
    return any(names_in(value) & set(parameters(function)[1:2]) for value in grown)


def _boundary(program: Program, item: Accumulation) -> LoopNode | FunctionNode | None:
    """What runs once for each batch: the loop in this function, or the function that the loop calls. None where none does."""
    node, function = item.node, program.enclosing_function(item.node)
    if item.adds and is_off(program, node):
        return None
    if function is not None and function.name in ("forward", "__call__", "call", "update", "hook"):
        return None
    loop = program.facts.in_training(node)
    if loop is not None:
        inside = program.index.holds(loop.node, node)
        return (loop.node if inside else function) if loop.kind in ("torch", "lightning") else None
    evaluation, owner = program.facts.in_evaluation(node), program.enclosing_class(node)
    of_network = owner is not None and "forward" in program.methods(owner)  # its callers settle whether there are gradients
    if evaluation is None or evaluation.no_grad or of_network:
        return None
    return next((around for around in program.loops_around(node) if _is_over_batches(program, around)), None)


def _is_over_batches(program: Program, loop: LoopNode) -> bool:
    """Not a few rounds over views, scales or networks for one input, nor one that writes the answer word by word."""
    return isinstance(loop, ast.For) and not is_short(program, loop) and not _VIEWS.search(program.text(loop.target))


def _outlives(program: Program, item: Accumulation, boundary: LoopNode | FunctionNode) -> bool:
    """Does what grows live longer than one round: is it made outside, and not emptied inside? `x = x + v` makes nothing anew."""
    name = root(item.target)
    given = [binding.value for binding in program.given(name)]
    made = [value for value in given if name not in map(program.written, program.within(value, ast.Name, ast.Attribute))]
    emptied = [call for call in program.calls_to("clear", "pop", "popleft") if root(program.receiver(call)) == name]
    if not name or any(program.index.holds(boundary, node) for node in (*made, *emptied)):
        return False
    loops = [loop for loop in program.loops_around(item.node) if isinstance(loop, ast.For)]
    return name not in [program.written(loop.target) for loop in loops]


def _reaches_backward(program: Program, item: Accumulation) -> bool:
    """Is `backward` called on what grows, or on what is worked out from it, in the same function?"""
    name, function = root(item.target), program.enclosing_function(item.node)
    calls = program.calls_to("backward", "manual_backward", "grad", "gradient")
    here = [call for call in calls if program.enclosing_function(call) is function]
    places = [place for call in here for place in (program.receiver(call), *call.args[:1]) if place is not None]
    worked_out = any(program.written(part) == name for place in places for part in sources(program, place))
    return worked_out or is_backwarded(program, name, item.node)


def _edits(program: Program, item: Accumulation) -> tuple[Edit, ...]:
    """`.detach()` behind each tensor, where it is known to be one."""
    value = item.value
    if not isinstance(item.target, ast.Name | ast.Subscript):
        return ()
    if isinstance(value, ast.Call):
        return (_detached(program, value),) if is_loss(program, value) and _is_library_loss(program, value) else ()
    leaves = [part for part in program.within(value, ast.Name, ast.Call) if carries_graph(program, part)]
    sure = all(isinstance(part, ast.Name) and _is_tensor(program, part) for part in leaves)
    return tuple(_detached(program, part) for part in leaves) if sure else ()


def _detached(program: Program, node: ast.expr) -> Edit:
    place = program.place(node)
    return Edit(CodePlace(place.cell, place.end_line, place.end_column, place.end_line, place.end_column), ".detach()")


def _is_library_loss(program: Program, call: ast.Call) -> bool:
    return program.name(call).startswith("torch.nn.functional.") or program.made_by(call.func).startswith("torch.nn.")


def _is_tensor(program: Program, node: ast.Name) -> bool:
    """A tensor for certain, not a tuple or a dict of them: by what is done with it in the same function."""
    if is_backwarded(program, node.id, node):
        return True
    for call in program.nodes(ast.Call):
        on_it = program.method(call) in _OF_TENSORS and program.written(program.receiver(call)) == node.id
        of_it = _is_library_loss(program, call) and call.args and program.written(call.args[0]) == node.id
        if (on_it or of_it) and program.enclosing_function(call) is program.enclosing_function(node):
            return True
    return False
