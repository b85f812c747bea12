"""Which parts of networks stay frozen while the rest is trained, told apart by one key wherever they are named.

In comes a program, out go `Freeze` records. `self.backbone` in a class and `model.backbone` of its instance have the same key
(`Net.backbone`). `Facts.frozen` says what was switched off; here it is decided whether that is the whole encoder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.bindings import Binding
from unchoke.code.facts.networks import FrozenModule, switched
from unchoke.code.facts.origins import sources
from unchoke.code.node_index import arguments, remembered
from unchoke.code.program import Program

_HEAD = re.compile(
    r"_?fc\d*|\w*heads?|classif\w*|last_linear|linear\d*|top|predictor|logits|score|out\w*|\w+_predictor|proj\w*|norm|fc_norm|dense\w*|clf|cls\w*"
)
_MAKING = re.compile(r"(?:^|_)(?:model|net|generator|decoder|encoder|unet)$", re.IGNORECASE)
_RUNS = ("forward", "forward_features", "encode_image", "extract_features")
_DEEPEST = 5
ENCODERS = frozenset(
    {"encoder", "backbone", "features", "base_model", "base", "body", "trunk", "vit", "feature_extractor", "stem"}
)


@dataclass(frozen=True, eq=False)
class Freeze:
    """An encoder that is frozen as a whole, at `node`; `thawed` is where all or a part of it learns again."""

    key: str
    name: str
    node: ast.AST
    by: str
    thawed: ast.AST | None = None


def is_head(name: str) -> bool:
    """Is this the name of a network's last part: `fc`, `head`, `classifier[6]`?"""
    return bool(_HEAD.fullmatch(name.partition("[")[0].lower()))


@remembered
def key_of(program: Program, name: str, at: ast.AST) -> str:
    """The module by its class where that is in the file, else by the variable it was first kept in: `Net.backbone`, `encoder`.

    A parameter is followed to what callers give, a variable to the function that built its network.
    """
    first, *rest = [part for part in name.split(".") if part != "module"] or [""]
    if first == "self" and rest:
        handed = _handed_in(program, rest[0], at)
        if handed:
            return ".".join([handed, *rest[1:]])
    owner = program.enclosing_class(at) if first == "self" else _class_of(program, first, at)
    return ".".join([owner.name if owner is not None else _origin(program, first, at), *rest])


def key_of_call(program: Program, call: ast.Call) -> str:
    """The module that a forward call runs."""
    name = program.written(call.func)
    if isinstance(call.func, ast.Attribute) and call.func.attr in _RUNS:
        name = program.written(call.func.value)
    return key_of(program, name, call) if name else ""


def maker_of(program: Program, node: ast.AST, depth: int = 0) -> str:
    """The dotted name of the call that made this network, through parameters and functions of the file that build it."""
    for leaf in program.choices(node).nodes if depth <= _DEEPEST else ():
        made = program.construction(leaf)
        found = program.name(made) if made is leaf or made is None else maker_of(program, made, depth + 1)
        if made is not None and found:
            return found
    return ""


def _origin(program: Program, variable: str, at: ast.AST, depth: int = 0) -> str:
    """The variable that the network was first kept in, with its function where that is not the whole file's."""
    if depth > _DEEPEST:
        return variable
    function = program.enclosing_function(at)
    own = [item for item in program.given(variable) if item.scope is function]
    for given in program.given_by_callers(variable, at, most=4) if not own else []:
        if isinstance(given, ast.Name):
            return _origin(program, given.id, given, depth + 1)
    for item in own:
        inner = _same_network(program, item)
        if isinstance(inner, ast.Name) and inner.id != variable:
            return _origin(program, inner.id, inner, depth + 1)
    return f"{variable}@{function.name}" if own and function is not None else variable


def _same_network(program: Program, given: Binding) -> ast.expr | None:
    """The network behind an assignment: `net` in `ddp = DDP(net).to(device)`, what a function of the file returns."""
    node = program.given_value(given)
    for _ in range(_DEEPEST):
        if not isinstance(node, ast.Call):
            return node
        function = program.functions.get(program.name(node))
        returned = [item.value for item in program.returns(function) if item.value is not None] if function is not None else []
        node = returned[-1] if returned else program.handed_on(node)
    return None


def _handed_in(program: Program, attribute: str, at: ast.AST) -> str:
    """The key of what callers hand to `__init__` and it keeps as `self.attribute`; empty where the class makes it itself."""
    owner = program.enclosing_class(at)
    for item in program.given(f"self.{attribute}"):
        if item.owner is owner and isinstance(item.value, ast.Name):
            given = program.given_by_callers(item.value.id, item.value, most=4)
            if given and isinstance(given[0], ast.Name):
                return _origin(program, given[0].id, given[0])
    return ""


def _class_of(program: Program, variable: str, at: ast.AST) -> ast.ClassDef | None:
    function = program.enclosing_function(at)
    for node in program.names(variable):
        if isinstance(node.ctx, ast.Load) and program.enclosing_function(node) is function:
            owner = program.assigned_class(node)
            if owner is not None:
                return owner
    return None


def freezes(program: Program) -> list[Freeze]:
    """Encoders that are frozen as a whole, in order."""
    found = [
        Freeze(key_of(program, item.name, item.node), item.name, item.node, item.by, _thaw(program, item))
        for item in program.facts.frozen
        if item.name and (item.whole or _all_but_head(item.test) or (item.test is None and _all_but_last(program, item)))
    ]
    chained = [Freeze(key_of(program, name, call), name, call, "requires_grad") for name, call in _chained(program)]
    return sorted((*found, *chained), key=lambda item: program.index.number[item.node])


def any_frozen(program: Program) -> set[str]:
    """The keys of everything that is frozen in whole or in part."""
    named = {key_of(program, item.name, item.node) for item in program.facts.frozen if item.name}
    return named | {key_of(program, name, call) for name, call in _chained(program)} | _by_helpers(program)


def _all_but_head(test: ast.expr | None) -> bool:
    """`if "fc" not in name`, `if not name.startswith("head")`."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn):
        words = test.left.value if isinstance(test.left, ast.Constant) else None
        return isinstance(words, str) and is_head(words.strip("."))
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if not isinstance(asked, ast.Call) or not asked.args or not isinstance(asked.func, ast.Attribute):
        return False
    given = asked.args[0].value if isinstance(asked.args[0], ast.Constant) else None
    return asked.func.attr == "startswith" and isinstance(given, str) and is_head(given.strip("."))


def _all_but_last(program: Program, item: FrozenModule) -> bool:
    """`list(model.parameters())[:-2]` and `list(model.children())[:-1]` leave out the last layer alone."""
    for loop in program.loops_around(item.node):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Subscript) and isinstance(loop.iter.slice, ast.Slice):
            last = program.value(loop.iter.slice.upper)
            calls = {program.method(call) for call in program.within(loop.iter, ast.Call)}
            return loop.iter.slice.lower is None and (
                ("parameters" in calls and last in (-1, -2)) or ("children" in calls and last == -1)
            )
    return False


def _thaw(program: Program, item: FrozenModule) -> ast.AST | None:
    """Where it, or a part of it that is no head, is switched on again."""
    for thaw in switched(program, on=True):
        whole = f"{item.name}.".startswith(f"{thaw.name}.")
        part = thaw.name.startswith(item.name + ".") and not is_head(thaw.name[len(item.name) + 1 :].partition(".")[0])
        if (whole or part) and program.is_before(item.node, thaw.node):
            return thaw.node
    return None


def _chained(program: Program) -> Iterator[tuple[str, ast.Call]]:
    """`enc = build().eval().requires_grad_(False)`, `for part in (stem, body): part.requires_grad_(False)`, `net.freeze()`."""
    for call in program.nodes(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "requires_grad_":
            continue
        if program.value(program.argument(call, "requires_grad", 0)) is not False:
            continue
        if isinstance(func.value, ast.Call):
            yield from ((name, call) for name in program.targets(call))
        for loop in program.loops_around(call):
            parts = loop.iter.elts if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple | ast.List) else []
            if isinstance(loop, ast.For) and program.written(loop.target) == program.written(func.value):
                yield from ((program.written(part), call) for part in parts if program.written(part))


def _by_helpers(program: Program) -> set[str]:
    """What is handed to a function or method that freezes by its name: `freeze(model)`, `model.freeze_encoder()`."""
    found = set()
    for call in program.nodes(ast.Call):
        method = program.method(call).lower()
        if ("freeze" in method and "unfreeze" not in method) or "requires_grad" in method:
            given = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
            found |= {key_of(program, program.written(item), call) for item in given if program.written(item)}
    return found


def put_together(program: Program, call: ast.Call) -> list[ast.expr]:
    """`encoder` and `head` for `model(x)` where `model = nn.Sequential(encoder, head)`."""
    made = program.latest(call.func)
    together = isinstance(made, ast.Call) and program.name(made) == "torch.nn.Sequential"
    return [item for item in made.args if program.written(item)] if together and isinstance(made, ast.Call) else []


def is_fed_by_a_network(program: Program, call: ast.Call) -> bool:
    """Was what comes in made by another network? It changes as that one learns, and gradients may have to pass through to it."""
    parts = [part for item in arguments(call) for part in sources(program, item) if isinstance(part, ast.Call)]
    return any(part is not call and (program.facts.is_forward(part) or _MAKING.search(program.method(part))) for part in parts)
