"""A loss or output kept together with its graph.

A loss tensor knows how it was computed. Adding it to a running sum, or putting it in a list, keeps that knowledge for every
step so far: memory grows from step to step until the run ends or the device is full, and what is worked out from the sum walks
over all of it. A small autoencoder that averaged its losses that way took 6.0 s, and 3.7 s with the losses detached.

**Write instead.** Keep the number, not the graph:

    running += loss.detach()          # stays on the device, no wait
    losses.append(loss.detach())
    total += loss.item()              # waits for the device: only now and then

**When this is fine.** When the sum is what `backward()` is called on (several losses of one step, accumulated gradients),
inside `torch.no_grad()` or `torch.inference_mode()`, and in Lightning's validation steps. PyTorch only: a TensorFlow tensor
keeps no graph after its tape. `--fix` writes `.detach()` where all that is done with the sum or list ends in plain numbers: a
tensor that is printed, returned or handed on shows whether it has a graph.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.facts.epochs import epoch_runs
from unchoke.code.facts.flow import NONE, CallMarks, Flow, Judge, Marks
from unchoke.code.facts.gradients import carries_graph, is_backwarded, is_detaching, is_loss, is_off, uses_torch
from unchoke.code.facts.loops import count_of, says_epoch, unwrapped
from unchoke.code.facts.origins import root
from unchoke.code.node_index import FunctionNode, LoopNode, parameters
from unchoke.code.program import Program
from unchoke.code.source import CodePlace
from unchoke.linting.proofs import shows_no_graph
from unchoke.linting.rule import Edit, Hit, Rule

RULE = Rule(
    code="graph-kept",
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
    {"backward", "argmax", "softmax", "sigmoid", "log_softmax", "squeeze", "view", "reshape", "permute", "flatten", "detach",
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
    kept = list(_accumulations(program))
    flow = Flow(program, _Graphs(program, *(item.value for item in kept)))
    for item in kept:
        boundary = _boundary(program, item)
        if boundary is None or not _outlives(program, item, boundary):
            continue
        if carries_graph(program, item.value) and not _reaches_backward(program, flow, item):
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
    )


def _round(program: Program, node: ast.AST) -> str:
    """What comes once for each thing kept: a step, or an epoch where it stands in the loop over epochs itself."""
    loop = next(iter(program.loops_around(node)), None)
    over_epochs = loop is not None and (says_epoch(program, loop) or any(run.node is loop for run in epoch_runs(program)))
    return "epoch" if over_epochs else "step"


def _advice(program: Program, value: ast.expr) -> str:
    """`.detach()` on the tensors: a tuple, a list and a dict have none."""
    held = program.latest(value) if isinstance(value, ast.Name) else value
    if not isinstance(held, _HOLDERS):
        return f"write `{_detached_text(program, value)}`"
    tensors = [part for part in _elements(value) if carries_graph(program, part)]
    if not tensors:
        return f"write `.detach()` behind each tensor in `{program.text(value)}`"
    written = [f"`{_detached_text(program, part)}`" for part in tensors]
    return f"write {' and '.join(written)} in it"


def _detached_text(program: Program, node: ast.expr) -> str:
    text = program.text(node)
    plain = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return f"{text}.detach()" if plain else f"({text}).detach()"


def _elements(node: ast.expr) -> Iterator[ast.expr]:
    """What a tuple, list or dict that is written out holds, also in those inside it."""
    inner: list[ast.expr] = []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        inner = node.elts
    elif isinstance(node, ast.Dict):
        inner = node.values
    for part in inner:
        if isinstance(part, _HOLDERS):
            yield from _elements(part)
        else:
            yield part


def _accumulations(program: Program) -> Iterator[Accumulation]:
    """`x += v`, `x = x + v`, `x.append(v)`, `x = torch.cat([x, v])` and a meter's `update(v)`, in order."""
    for node in program.nodes(ast.AugAssign, ast.Assign, ast.Call):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            listed = isinstance(node.value, ast.List) and len(node.value.elts) == 1
            value = node.value.elts[0] if listed and isinstance(node.value, ast.List) else node.value
            yield Accumulation(node, node.target, value, not listed)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _assigned(program, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args and _keeps(program, node):
            yield Accumulation(node, node.func.value, node.args[0], node.func.attr == "update")


def _assigned(program: Program, node: ast.Assign) -> Iterator[Accumulation]:
    name, value = program.written(node.targets[0]), node.value
    if not name:
        return
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        others = [side for side in (value.left, value.right) if program.written(side) != name]
        if len(others) == 1:
            yield Accumulation(node, node.targets[0], others[0], True)
    elif isinstance(value, ast.Call) and program.name(value) in _JOINS and value.args:
        parts = value.args[0].elts if isinstance(value.args[0], ast.List | ast.Tuple) else []
        others = [part for part in parts if program.written(part) != name]
        if len(others) == 1 and len(parts) == 2:
            yield Accumulation(node, node.targets[0], others[0], False)


def _keeps(program: Program, call: ast.Call) -> bool:
    method = program.method(call)
    return method in ("append", "extend") or (method == "update" and _is_meter(program, call))


def _is_meter(program: Program, call: ast.Call) -> bool:
    """A class of this file whose `update` adds its first argument to something of its own, as it comes."""
    function = program.function_of(call)
    names = parameters(function) if function is not None else []
    if function is None or len(names) < 2 or any(is_detaching(program, inner) for inner in program.within(function, ast.Call)):
        return False
    grown = [item.value for item in program.within(function, ast.AugAssign) if root(item.target).startswith("self.")]
    return any(part.id == names[1] for value in grown for part in program.within(value, ast.Name))


def _boundary(program: Program, item: Accumulation) -> LoopNode | FunctionNode | None:
    """What runs once for each batch: the loop in this function, or the function that the loop calls. None where none does."""
    facts, node = program.facts, item.node
    if item.adds and is_off(program, node):
        return None
    function = program.enclosing_function(node)
    if function is not None and function.name in ("forward", "__call__", "call", "update", "hook"):
        return None
    loop = facts.in_training(node)
    if loop is not None:
        inside = program.index.holds(loop.node, node)
        return (loop.node if inside else function) if loop.kind in ("torch", "lightning") else None
    evaluation = facts.in_evaluation(node)
    if evaluation is None or evaluation.kind == "lightning" or facts.no_grad(node):
        return None
    return next((around for around in program.loops_around(node) if not _is_over_views(program, around)), None)


def _is_over_views(program: Program, loop: LoopNode) -> bool:
    """A few rounds over views, scales or networks for one input."""
    if not isinstance(loop, ast.For):
        return False
    count = count_of(program, loop)
    if isinstance(unwrapped(program, loop.iter), ast.Tuple | ast.List) or (isinstance(count, int) and count <= 8):
        return True
    return bool(_VIEWS.search(program.text(loop.target)))


def _outlives(program: Program, item: Accumulation, boundary: LoopNode | FunctionNode) -> bool:
    """Does what grows live longer than one round: is it made outside, and not emptied inside?"""
    name = root(item.target)
    function = program.enclosing_function(item.node)
    if not name:
        return False
    made = [given for given in program.given(name) if not _is_own(program, name, given.value)]
    if any(program.index.holds(boundary, given.value) for given in made):
        return False
    if isinstance(boundary, FunctionNode) and not name.startswith("self."):
        local = any(given.scope is function for given in made)
        return not local and boundary is function
    for call in program.within(boundary, ast.Call):
        if program.method(call) in ("clear", "pop", "popleft") and root(program.receiver(call)) == name:
            return False
    loops = [loop for loop in program.loops_around(item.node) if isinstance(loop, ast.For)]
    return name not in [program.written(loop.target) for loop in loops]


def _is_own(program: Program, name: str, value: ast.expr) -> bool:
    """`x = x + v`: the variable goes on, it is not made anew."""
    if not isinstance(value, ast.BinOp) and program.name(value) not in _JOINS:
        return False
    return any(program.written(part) == name for part in program.within(value, ast.Name, ast.Attribute))


def _reaches_backward(program: Program, flow: Flow, item: Accumulation) -> bool:
    """Is `backward` called on what grows, or on what is worked out from it, here or where it is returned to?"""
    mark = ("source", item.value)
    for call in program.calls_to("backward", "manual_backward", "grad", "gradient"):
        if any(mark in flow.at(node) for node in (program.receiver(call), *call.args[:1])):
            return True
    return any(mark in flow.returned(node) for node in program.nodes(ast.FunctionDef) if node.name == "training_step")


class _Graphs(Judge):
    """Everything worked out from a tensor has its graph, but for numbers read off it."""

    def call(self, _flow: Flow, call: ast.Call, handed: CallMarks, /) -> Marks | None:
        if is_detaching(self.program, call) or self.program.name(call) in ("float", "int", "len", "str", "round"):
            return NONE
        return None if self.program.function_of(call) is not None else handed.all


def _edits(program: Program, item: Accumulation) -> tuple[Edit, ...]:
    """`.detach()` behind each tensor, where it is known to be one."""
    if not isinstance(item.target, ast.Name | ast.Subscript):
        return ()
    if isinstance(item.value, ast.Call):
        return (_detached(program, item.value),) if is_loss(program, item.value) and _is_library_loss(program, item.value) else ()
    leaves = [part for part in program.within(item.value, ast.Name, ast.Call) if carries_graph(program, part)]
    if not leaves or not all(isinstance(part, ast.Name) and _is_tensor(program, part) for part in leaves):
        return ()
    return tuple(_detached(program, part) for part in leaves)


def _detached(program: Program, node: ast.expr) -> Edit:
    place = program.place(node)
    return Edit(CodePlace(place.cell, place.end_line, place.end_column, place.end_line, place.end_column), ".detach()")


def _is_library_loss(program: Program, call: ast.Call) -> bool:
    return program.name(call).startswith("torch.nn.functional.") or program.made_by(call.func).startswith("torch.nn.")


def _is_tensor(program: Program, node: ast.Name) -> bool:
    """A tensor for certain, not a tuple or a dict of them: by what is done with it in the same function."""
    if is_backwarded(program, node.id, node):
        return True
    function = program.enclosing_function(node)
    given = program.given_before(node)
    made = given.value if given is not None and given.position is None else None
    if isinstance(made, ast.Call) and _is_library_loss(program, made):
        return not isinstance(program.receiver(made), ast.Call)
    for call in program.nodes(ast.Call):
        if program.enclosing_function(call) is not function:
            continue
        if program.method(call) in _OF_TENSORS and program.written(program.receiver(call)) == node.id:
            return True
        if _is_library_loss(program, call) and call.args and program.written(call.args[0]) == node.id:
            return True
    return False
