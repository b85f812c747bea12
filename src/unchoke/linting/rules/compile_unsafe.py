"""torch.compile where it costs more than it gives, or spoils a checkpoint.

**Compiled again and again.** `torch.compile(model)` inside a loop, a training step or a `forward` makes a new wrapper each
time. Each wrapper is traced, and at first call compiled, anew: seconds to minutes that are meant to be paid once.

**A checkpoint that a plain model cannot load.** `model = torch.compile(model)` puts the network behind a wrapper, and every key
of its `state_dict()` then begins with `_orig_mod.`. Saved like that, the file does not load into the same network without the
wrapper: "Missing key(s) in state_dict" on the day it is needed.

**Write instead.** Compile once, before the loop, and keep the plain model for saving:

    compiled = torch.compile(model)          # once; shares the weights of `model`
    ...
    torch.save(model.state_dict(), path)     # or getattr(model, "_orig_mod", model).state_dict()

**When this is fine.** A loop over different networks, or over the blocks of one (each is compiled once). Saving is not reported
in a file that deals with `_orig_mod` anywhere.

Since torch 2.0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from unchoke.code.node_index import FunctionNode, LoopNode, parameters
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, line_of

RULE = Rule(
    code="compile-unsafe",
    group="device",
    stage="network",
    title="compiled again and again, or saved with the wrapper's keys",
    gain="one compilation instead of many, and a checkpoint that loads",
    command="unchoke tune",
    since="torch 2.0",
    frameworks=("torch",),
)
Round = LoopNode | ast.comprehension
_EACH_CALL = frozenset({"forward", "__call__", "training_step", "validation_step", "test_step", "predict_step", "__getitem__"})
_SAVES = frozenset({"torch.save", "safetensors.torch.save_file"})
_SAME_NETWORK = frozenset({"to", "train", "eval", "cuda", "half", "float", "bfloat16"})
_DEEPEST = 4


def check(program: Program) -> Iterator[Hit]:
    compiles = [call for call in program.nodes(ast.Call) if program.name(call) == "torch.compile"]
    for call in compiles:
        why = _repeated(program, call)
        if why:
            text = program.text(call)
            yield Hit(
                call,
                f"`{text}` {why}: the network is compiled anew each time",
                evidence={"call": text},
                fix=f"compile once before that: `compiled = {text}`, and use `compiled` inside",
            )
    if compiles and not _unwraps(program):
        yield from _saves(program)


def _repeated(program: Program, call: ast.Call) -> str:
    """Why it runs more than once for the same network, or nothing."""
    given = call.args[0] if call.args else program.argument(call, "model")
    if program.facts.is_conditional(call) or program.facts.is_lazy(call):
        return ""
    loops = program.loops_around(call)
    if loops:
        own = given is not None and _is_own(program, given, loops)
        fresh = own or _varies(program, _options(call), loops)
        return "" if fresh else f"runs in a loop ({line_of(program, loops[0], seen_from=call)})"
    function = program.enclosing_function(call)
    if function is None or given is None or _made_in(program, given, function):
        return ""
    if function.name in _EACH_CALL:
        return f"runs on every call of `{function.name}`"
    return _called_in_loop(program, call, given, function)


def _options(call: ast.Call) -> list[ast.expr]:
    return [*call.args[1:], *(keyword.value for keyword in call.keywords)]


def _comprehensions(program: Program, node: ast.AST) -> list[ast.comprehension]:
    found: list[ast.comprehension] = []
    for above in program.ancestors(node):
        if isinstance(above, ast.stmt):
            break
        found += getattr(above, "generators", [])
    return found


def _names_in(program: Program, nodes: list[ast.expr]) -> set[str]:
    """The names that these expressions depend on, also through one variable."""
    names = [part for node in nodes for part in program.within(node, ast.Name)]
    behind = [given for part in names if (given := program.latest(part)) is not None]
    return {part.id for part in names} | {part.id for given in behind for part in program.within(given, ast.Name)}


def _varies(program: Program, nodes: list[ast.expr], loops: Sequence[Round]) -> bool:
    """Does the loop go through settings of the compiler, as a comparison does?"""
    names = _names_in(program, nodes)
    targets = {part.id for loop in loops if not isinstance(loop, ast.While) for part in program.within(loop.target, ast.Name)}
    return bool(names & targets)


def _called_in_loop(program: Program, call: ast.Call, given: ast.expr, function: FunctionNode) -> str:
    """Its function is called in a loop with the same network and the same settings each time."""
    used = _names_in(program, _options(call)) & set(parameters(function))
    for use in program.callers(function):
        loops: list[Round] = [*program.loops_around(use), *_comprehensions(program, use)]
        if not loops or program.facts.is_conditional(use):
            continue
        handed = [item for name in used if (item := program.argument_for(use, function, name)) is not None]
        if _varies(program, handed, loops):
            continue
        network: ast.expr | None = given
        if isinstance(given, ast.Name) and given.id in parameters(function):
            network = program.argument_for(use, function, given.id)
        if network is not None and not _is_own(program, network, loops):
            line = line_of(program, loops[0], seen_from=given)
            return f"runs on every call of `{function.name}`, which is called in a loop ({line})"
    return ""


def _is_own(program: Program, given: ast.expr, loops: Sequence[Round]) -> bool:
    """Has each round a network of its own: the loop's variable, or one made in the loop's body?"""
    names = {part.id for part in program.within(given, ast.Name)}
    for loop in loops:
        if not isinstance(loop, ast.While):
            targets = {part.id for part in program.within(loop.target, ast.Name)}
            if names & targets and "epoch" not in " ".join(targets).lower():
                return True
        made = program.latest(given)
        fresh = isinstance(made, ast.Call) and program.name(made) != "torch.compile"
        if made is not None and fresh and program.index.holds_any(getattr(loop, "body", []), made):
            return True
    return isinstance(given, ast.Call) and not _keeps(given)


def _keeps(call: ast.Call) -> bool:
    """`model.train()`, `model.to(device)`: the same network, not a new one."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _SAME_NETWORK


def _made_in(program: Program, given: ast.expr, function: FunctionNode) -> bool:
    """Is the network made in the function itself?"""
    if isinstance(given, ast.Call):
        return not _keeps(given)
    made = program.latest(given)
    return isinstance(made, ast.Call) and program.name(made) != "torch.compile" and program.index.holds(function, made)


def _unwraps(program: Program) -> bool:
    """Does the file deal with the wrapper anywhere?"""
    attributes = any(node.attr == "_orig_mod" for node in program.nodes(ast.Attribute))
    return attributes or any(isinstance(node.value, str) and "_orig_mod" in node.value for node in program.nodes(ast.Constant))


def _saves(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        if program.name(call) not in _SAVES or not call.args:
            continue
        for states in _state_dicts(program, call.args[0]):
            name = program.written(program.receiver(states))
            if name and _is_compiled(program, program.receiver(states)):
                yield Hit(
                    call,
                    f"`{name}.state_dict()` of a compiled model is saved: every key begins with `_orig_mod.`, "
                    "and the plain network cannot load it",
                    evidence={"variable": name},
                    fix=f'save the plain network: `getattr({name}, "_orig_mod", {name}).state_dict()`',
                    kind="risk",
                )
                break


def _state_dicts(program: Program, node: ast.AST, depth: int = 0) -> Iterator[ast.Call]:
    """The `x.state_dict()` calls in what is saved, through variables and copies."""
    for call in program.within(node, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict":
            yield call
    for part in program.within(node, ast.Name):
        parent = program.parent(part)
        given = program.latest(part) if depth < _DEEPEST and not isinstance(parent, ast.Attribute) else None
        is_new = isinstance(given, ast.Dict | ast.Call) and given is not node
        if given is not None and is_new and program.name(given) not in ("torch.compile", "torch.load"):
            yield from _state_dicts(program, given, depth + 1)


def _is_compiled(program: Program, node: ast.expr | None, depth: int = 0) -> bool:
    """Was this variable last given what torch.compile returns?"""
    if node is None or depth > _DEEPEST:
        return False
    function = program.enclosing_function(node)
    own = isinstance(node, ast.Name) and any(given.scope is function for given in program.given(node.id))
    if isinstance(node, ast.Name) and function is not None and node.id in parameters(function) and not own:
        given = [program.argument_for(use, function, node.id) for use in program.callers(function)]
        return bool(given) and all(_is_compiled(program, item, depth + 1) for item in given)
    made = program.latest(node)
    if isinstance(made, ast.Call):
        inner = made
        while isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Call) and _keeps(inner):
            inner = inner.func.value
        return program.name(inner) == "torch.compile" and program.is_before(made, node)
    if isinstance(made, ast.IfExp):
        return any(program.name(side) == "torch.compile" for side in (made.body, made.orelse))
    return isinstance(made, ast.Name | ast.Attribute) and made is not node and _is_compiled(program, made, depth + 1)
