"""Does a value drag autograd's graph along? True, False, or None where reading cannot tell.

In come a program and an expression of PyTorch code, out goes the answer: a network's output and what is worked out from it
carries the graph until `.item()`, `.detach()`, `float()`, a comparison or a block without gradients ends it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.origins import comprehensions_round, given_before, loop_names
from unchoke.code.node_index import FunctionNode, arguments, parameters
from unchoke.code.program import Program

_DETACHING = frozenset(
    {"item", "detach", "detach_", "numpy", "tolist", "argmax", "argmin", "argsort", "size", "dim", "numel", "nelement", "long",
     "int", "bool", "byte", "short", "eq", "ne", "gt", "lt", "ge", "le", "any", "all", "nonzero", "isnan", "isfinite", "isinf",
     "predict", "predict_on_batch", "backward", "step", "zero_grad", "count_nonzero", "bincount", "unique", "keys", "strip",
     "format", "state_dict"}
)  # fmt: skip
_DETACHED = frozenset({"data", "shape", "dtype", "device", "grad", "ndim", "indices", "is_cuda", "requires_grad", "name"})
_PLAIN = frozenset(
    {"float", "int", "len", "str", "round", "bool", "range", "isinstance", "print", "id", "type", "repr", "enumerate", "hash"}
)
_MADE = re.compile(
    r"torch\.(?:tensor|zeros|ones|full|empty|arange|linspace|eye|from_numpy|rand\w*|no_grad|argm\w+|argsort|eq|ne|gt|lt|ge|le|isnan|autograd\.grad)\b|torch\.\w+_like$"
)
_ELSEWHERE = (
    "numpy.", "sklearn.", "scipy.", "pandas.", "math.", "random.", "os.", "time.", "json.", "tf.", "cv2.", "PIL.", "matplotlib.",
)  # fmt: skip
_PAIRS = frozenset({"max", "min", "topk", "sort", "median", "mode", "kthvalue", "cummax", "cummin"})
_LOSS = re.compile(
    r"(?:^|_)(?:loss\w*|crit\w*|objective|bce\w*|dice\w*|mse\w*|ce|nll|huber|l1|l2|kld?)(?:_|$)|loss|criterion", re.IGNORECASE
)
_ON_TORCH = ("torch", "lightning", "pytorch_lightning", "fastai", "timm", "transformers", "accelerate")
_DEEPEST = 10
_KNOWN: WeakKeyDictionary[Program, dict[ast.AST, bool | None]] = WeakKeyDictionary()
GraphAnswer = bool | None


def carries_graph(program: Program, node: ast.AST | None, depth: int = 0) -> GraphAnswer:
    """Does this expression hold a tensor that still has its graph?"""
    if node is None or depth > _DEEPEST:
        return None
    known = _KNOWN.setdefault(program, {})
    if node not in known:
        known[node] = None  # while it is being worked out, it cannot be told
        found = _answer(program, node, depth)
        if found is None and depth:
            del known[node]  # from nearer it may be told
            return None
        known[node] = found
    return known[node]


def _answer(program: Program, node: ast.AST, depth: int) -> GraphAnswer:
    if isinstance(node, ast.Constant | ast.Compare | ast.JoinedStr | ast.Lambda | ast.BoolOp):
        return False
    if isinstance(node, ast.Call):
        return _call(program, node, depth)
    if isinstance(node, ast.Attribute) and node.attr in _DETACHED:
        return False
    if isinstance(node, ast.Name | ast.Attribute):
        return _named(program, node, depth)
    if isinstance(node, ast.Subscript):
        return False if _is_second_of_pair(program, node) else carries_graph(program, node.value, depth + 1)
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return carries_graph(program, node.elt, depth + 1)
    parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    if isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    return together(carries_graph(program, part, depth + 1) for part in parts)


def uses_torch(program: Program) -> bool:
    """Does the program import PyTorch or what is built on it?"""
    return any(module.startswith(_ON_TORCH) for module in program.modules)


def is_off(program: Program, node: ast.AST) -> bool:
    """Are gradients off here in training too? `set_grad_enabled(phase == "train")` leaves them on for it."""
    if not program.facts.no_grad(node):
        return False
    switches = [item.context_expr for above in program.ancestors(node) if isinstance(above, ast.With) for item in above.items]
    asked = [item for item in switches if isinstance(item, ast.Call) and program.method(item) == "set_grad_enabled"]
    return not any(program.value(program.argument(item, "mode", 0)) is UNKNOWN for item in asked)


def is_detaching(program: Program, call: ast.Call) -> bool:
    """A method that gives back numbers, indices or a tensor without its graph."""
    return isinstance(call.func, ast.Attribute) and program.method(call) in _DETACHING


def together(answers: Iterable[GraphAnswer]) -> GraphAnswer:
    """One that does is enough; one that cannot be told leaves it open."""
    found = list(answers)
    if True in found:
        return True
    return None if None in found else False


def _is_second_of_pair(program: Program, node: ast.Subscript) -> bool:
    """`out.max(1)[1]` are indices."""
    index = program.value(node.slice)
    return isinstance(node.value, ast.Call) and program.method(node.value) in _PAIRS and index in (1, -1)


def _named(program: Program, node: ast.Name | ast.Attribute, depth: int) -> GraphAnswer:
    given = given_before(program, node)
    found: GraphAnswer = None
    if given is not None:
        if given.position == 1 and isinstance(given.value, ast.Call) and program.method(given.value) in _PAIRS:
            return False
        part = program.given_value(given)
        found = carries_graph(program, part if part is not None else given.value, depth + 1)
    elif isinstance(node, ast.Name):
        found = _bound(program, node, depth)
    elif program.written(node.value) != "self":
        return carries_graph(program, node.value, depth + 1)
    if found is None and is_backwarded(program, program.written(node), node):
        return True
    return found


def _bound(program: Program, node: ast.Name, depth: int) -> GraphAnswer:
    """A variable of a comprehension or a loop, or a parameter."""
    for part in comprehensions_round(program, node):
        if node.id in loop_names(part):
            return carries_graph(program, part.iter, depth + 1)
    for loop in program.loops_around(node):
        if isinstance(loop, ast.For) and node.id in loop_names(loop):
            return carries_graph(program, loop.iter, depth + 1) is True
    function = program.enclosing_function(node)
    if function is None or node.id not in parameters(function):
        return None
    if depth > 6:
        return None
    calls = program.callers(function)[:8]
    answers = (carries_graph(program, program.argument_for(call, function, node.id), depth + 2) for call in calls)
    return together(answers) if calls else None


def _call(program: Program, call: ast.Call, depth: int) -> GraphAnswer:
    name = program.name(call)
    if name in _PLAIN or is_detaching(program, call) or _MADE.match(name) or name.startswith(_ELSEWHERE):
        return False
    if program.facts.is_forward(call):
        return not is_off(program, call) and program.keyword(call, "training") is None  # `training=` is Keras
    function = program.function_of(call)
    if function is not None:
        found = _returned(program, function, depth)
        if found is not None:
            return found
    receiver = program.receiver(call)
    if receiver is not None and not _is_library(name):
        found = carries_graph(program, receiver, depth + 1)
        if found:
            return True
    given = together(carries_graph(program, item, depth + 1) for item in arguments(call))
    if _is_library(name) or is_loss(program, call):
        return given if not is_off(program, call) else False
    return False if given is False and receiver is None else None


def _is_library(name: str) -> bool:
    libraries = ("torch.", "kornia.", "einops.", "monai.", "segmentation_models_pytorch.")
    return name.startswith(libraries) or name in ("sum", "max", "min", "abs")


def is_loss(program: Program, call: ast.Call) -> bool:
    """Is what is called a loss: by its name, or made from a loss class?"""
    func = call.func.func if isinstance(call.func, ast.Call) else call.func
    if _LOSS.search(program.written(func).rpartition(".")[2]) or _LOSS.search(program.method(func)):
        return True
    made = program.made_by(call.func)
    return made.startswith("torch.nn.") or made.rpartition(".")[2].endswith("Loss")


def _returned(program: Program, function: FunctionNode, depth: int) -> GraphAnswer:
    returns = [item.value for item in program.within(function, ast.Return) if item.value is not None]
    if not returns or depth > 6:
        return None
    return together(carries_graph(program, item, depth + 2) for item in returns)


def is_backwarded(program: Program, name: str, at: ast.AST) -> bool:
    """Is `backward` called on this variable (or Lightning given it as the loss) in the same function? Then it has a graph."""
    function = program.enclosing_function(at)
    calls = [*program.calls_to("backward"), *program.calls_to("manual_backward")]
    own = [call for call in calls if program.enclosing_function(call) is function]
    if any(program.written(part) == name for call in own for part in backwarded(program, call)):
        return True
    if function is None or function.name != "training_step":
        return False
    returned = [item.value for item in program.within(function, ast.Return) if item.value is not None]
    values = [value for item in returned for value in (item, *(item.values if isinstance(item, ast.Dict) else ()))]
    return any(program.written(value) == name for value in values)


def backwarded(program: Program, call: ast.Call) -> Iterator[ast.AST]:
    """The names in what a call of `backward` is for: of its receiver, or of its first argument (`accelerator.backward(loss)`)."""
    receiver = program.receiver(call)
    places = [item for item in (receiver, *call.args[:1]) if item is not None]
    for place in places:
        yield from (
            part for part in program.within(place, ast.Name, ast.Attribute) if program.written(part) not in ("self", "cls")
        )
