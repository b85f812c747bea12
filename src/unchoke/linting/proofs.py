"""Proofs that an edit changes nothing but time and memory. What is not proven here is a suggestion in words, never an edit.

In come a program and the place an edit would go to, out goes yes or no. Yes means: every call that the edit could reach is in the
file, or is one of a library of which it is known, and nothing that is printed, returned or kept would be another. Code that
cannot be seen (a model from another file, a parameter nobody in the file gives, a checkpoint that somebody else wrote) is no.
"""

from __future__ import annotations

import ast

from unchoke.code.node_index import parameters, targets_of
from unchoke.code.program import Program

_DEEPEST = 5
_STILL_TENSORS = frozenset({"mean", "sum", "cpu", "float", "max", "min", "sqrt", "abs"})
_OF_TENSORS = frozenset({"sum", "max", "min", "torch.stack", "torch.tensor", "torch.cat"})


def shows_no_graph(program: Program, name: str, at: ast.AST, followed: frozenset[str] = frozenset()) -> bool:
    """Does every use of this variable end in a plain number, so that nobody could tell whether it has a graph?"""
    scope = program.enclosing_scope(at)
    if name in followed:
        return True
    if not name or "." in name or len(followed) > _DEEPEST or (scope is not None and name in parameters(scope)):
        return False
    uses = program.names(name)
    if any(program.enclosing_scope(node) is not scope for node in uses):
        return False
    return all(_ends_in_number(program, node, followed | {name}) for node in uses if isinstance(node.ctx, ast.Load))


def _ends_in_number(program: Program, node: ast.AST, followed: frozenset[str]) -> bool:
    below = node
    for above in program.ancestors(node):
        if isinstance(above, ast.Call):
            ends = _called_to_number(program, above, below)
            if ends is not None:
                return ends
        elif isinstance(above, ast.FormattedValue):
            return above.conversion == -1 and above.format_spec is not None
        elif isinstance(above, ast.Assign | ast.AugAssign):
            targets = targets_of(above)
            name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
            return bool(name) and shows_no_graph(program, name, above, followed)
        elif not isinstance(above, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript | ast.List | ast.Tuple):
            return False
        below = above
    return False


def _called_to_number(program: Program, call: ast.Call, below: ast.AST) -> bool | None:
    """True where the call makes a number of it, None where it makes another tensor, False where it may show a graph."""
    if below is call.func:
        method = program.method(call)
        if method in ("append", "clear"):
            return isinstance(program.parent(call), ast.Expr)
        return True if method in ("item", "detach") else (None if method in _STILL_TENSORS else False)
    name = program.name(call)
    return True if name in ("float", "int", "len") else (None if name in _OF_TENSORS else False)


def is_own_state_dict(program: Program, load: ast.Call) -> bool:
    """Was the file that is loaded here written by this very program, each time with nothing but a network's `state_dict()`?"""
    if program.unread or any(program.attributes("get_extra_state")) or "get_extra_state" in program.functions or not load.args:
        return False
    path = _spelled(program, load.args[0])
    saves = [call for call in program.calls_to("save") if program.name(call) == "torch.save" and len(call.args) == 2]
    if not path or any(program.name(call) == "torch.save" and len(call.args) != 2 for call in program.calls_to("save")):
        return False
    own = [call for call in saves if _spelled(program, call.args[1]) == path]
    unknown = [call for call in saves if not _spelled(program, call.args[1])]
    return bool(own) and not unknown and all(_is_state_of_network(program, call.args[0]) for call in own)


def _spelled(program: Program, node: ast.expr) -> str:
    value = program.value(node)
    return value if isinstance(value, str) else ""


def _is_state_of_network(program: Program, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or program.method(node) != "state_dict" or node.args or node.keywords:
        return False
    network = program.receiver(node)
    handed = isinstance(network, ast.Name) and any(bound.how == "handed" for bound in program.reaching(network))
    return network is not None and not handed and _is_module(program, network)  # a parameter may be anything


def _is_module(program: Program, node: ast.expr) -> bool:
    made = program.made_by(node)
    if made.startswith(("torch.nn.", "torchvision.models.")) or made == "timm.create_model":
        return True
    owner = program.assigned_class(node)
    return owner is not None and any(base.rpartition(".")[2] == "Module" for base in program.bases(owner))
