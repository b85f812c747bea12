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

**When this is fine.** A loop over different networks, over the blocks of one (each is compiled once), or over settings of which
one asks for it. Saving is not reported in a file that deals with `_orig_mod` anywhere.

Since torch 2.0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from unchoke.code.facts.origins import loop_names, sources
from unchoke.code.node_index import LoopNode, arguments, names_in
from unchoke.code.program import Program
from unchoke.linting.questions import tests_round
from unchoke.linting.rule import Hit, Rule, line_of

RULE = Rule(
    group="device",
    stage="network",
    title="compiled again and again, or saved with the wrapper's keys",
    kind="nit",
    gain="one compilation instead of many, and a checkpoint that loads",
    command="unchoke tune",
    since="torch 2.0",
    frameworks=("torch",),
)
Round = LoopNode | ast.comprehension
_EACH_CALL = frozenset({"forward", "__call__", "training_step", "validation_step", "test_step", "predict_step", "__getitem__"})
_SAVES = frozenset({"torch.save", "safetensors.torch.save_file"})
_SAME_NETWORK = frozenset({"to", "train", "eval", "cuda", "half", "float", "bfloat16"})


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
    given = program.argument(call, "model", 0)
    function, loops = program.enclosing_function(call), program.loops_around(call)
    if given is None or program.facts.is_conditional(call) or program.facts.is_lazy(call):
        return ""
    options = [*arguments(call)[1:], *tests_round(program, call)]
    if loops:
        fresh = _is_own(program, given, loops) or _varies(program, options, loops)
        return "" if fresh else f"runs in a loop ({line_of(program, loops[0], seen_from=call)})"
    if function is None or _is_made_in(program, given, function.body):
        return ""
    if function.name in _EACH_CALL:
        return f"runs on every call of `{function.name}`"
    return ""


def _varies(program: Program, nodes: list[ast.expr], loops: Sequence[Round]) -> bool:
    """Does the loop go through settings of the compiler, or whether to compile, as a comparison does?"""
    return any(_names_behind(program, nodes) & loop_names(loop) for loop in loops)


def _names_behind(program: Program, nodes: list[ast.expr]) -> set[str]:
    """The names that these expressions depend on, also through variables of the same function."""
    return {part.id for node in nodes for part in sources(program, node) if isinstance(part, ast.Name)}


def _is_own(program: Program, given: ast.expr, loops: Sequence[Round]) -> bool:
    """Has each round a network of its own: the loop's variable, or one made in the loop's body?"""
    for loop in loops:
        looped = any(name in names_in(given) and "epoch" not in name.lower() for name in loop_names(loop))
        if looped or _is_made_in(program, given, getattr(loop, "body", [])):
            return True
    return False


def _is_made_in(program: Program, given: ast.expr, body: Sequence[ast.stmt]) -> bool:
    """Is the network made on the spot, or in these lines? `model.to(device)` is the same network, not a new one."""
    if isinstance(given, ast.Call):
        return program.method(given) not in _SAME_NETWORK
    made = program.latest(given)
    fresh = isinstance(made, ast.Call) and program.name(made) != "torch.compile"
    return fresh and made is not None and program.index.holds_any(body, made)


def _unwraps(program: Program) -> bool:
    """Does the file deal with the wrapper anywhere?"""
    texts = (node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str))
    return bool(program.attributes("_orig_mod")) or any("_orig_mod" in text for text in texts)


def _saves(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        if program.name(call) not in _SAVES or not call.args:
            continue
        for states in sources(program, call.args[0]):
            model = program.receiver(states) if program.method(states) == "state_dict" else None
            name = program.written(model)
            if name and any(program.name(made) == "torch.compile" for made in program.made_of(model)):
                yield Hit(
                    call,
                    f"`{name}.state_dict()` of a compiled model is saved: every key begins with `_orig_mod.`, "
                    "and the plain network cannot load it",
                    evidence={"variable": name},
                    fix=f'save the plain network: `getattr({name}, "_orig_mod", {name}).state_dict()`',
                )
                break
