"""Does a value drag autograd's graph along? True, False, or None where reading cannot tell.

In come a program and an expression of PyTorch code, out goes the answer: a network's output and what is worked out from it
carries the graph until `.item()`, `.detach()`, `float()`, a comparison or a block without gradients ends it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from unchoke.code.bindings import Binding
from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.asking import Question
from unchoke.code.node_index import arguments, remembered
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
GraphAnswer = bool | None


def carries_graph(program: Program, node: ast.AST | None) -> GraphAnswer:
    """Does this expression hold a tensor that still has its graph?"""
    return _graph(program).ask(node)


class _Graph(Question[GraphAnswer]):
    open = None
    plain = False
    deepest = 20

    def join(self, answers: Iterable[GraphAnswer]) -> GraphAnswer:
        """One that does is enough; one that cannot be told leaves it open."""
        found = list(answers)
        return True if True in found else None if None in found else False

    def compared(self, _node: ast.Compare) -> GraphAnswer:
        return False

    def _answer(self, node: ast.AST) -> GraphAnswer:
        base = node.value if isinstance(node, ast.Subscript) and self.program.value(node.slice) in (1, -1) else None
        if isinstance(base, ast.Call) and self.program.method(base) in _PAIRS:
            return False  # `out.max(1)[1]` are indices
        return False if isinstance(node, ast.BoolOp) else super()._answer(node)

    def bound(self, bound: Binding, _node: ast.expr, /) -> GraphAnswer:
        second = bound.position == 1 and isinstance(bound.value, ast.Call) and self.program.method(bound.value) in _PAIRS
        return False if second else None

    def named(self, node: ast.Name | ast.Attribute) -> GraphAnswer:
        found = super().named(node)
        return True if found is None and is_backwarded(self.program, self.program.written(node), node) else found

    def round(self, over: ast.expr, _target: ast.expr, _name: str) -> GraphAnswer:
        return self.ask(over) is True

    def attribute(self, node: ast.Attribute) -> GraphAnswer:
        if node.attr in _DETACHED:
            return False
        own = self.program.reaching(node) or self.program.written(node.value) == "self"
        return self.named(node) if own else self.ask(node.value)

    def call(self, call: ast.Call) -> GraphAnswer:
        program = self.program
        name = program.name(call)
        if name in _PLAIN or is_detaching(program, call) or _MADE.match(name) or name.startswith(_ELSEWHERE):
            return False
        if program.facts.is_forward(call):
            return not is_off(program, call) and program.keyword(call, "training") is None  # `training=` is Keras
        function = program.function_of(call)
        found = self.returned(function) if function is not None else None
        if found is not None:
            return found
        receiver = program.receiver(call)
        if receiver is not None and not _is_library(name) and self.ask(receiver):
            return True
        given = self.any_of(arguments(call))
        if _is_library(name) or is_loss(program, call):
            return given if not is_off(program, call) else False
        return False if given is False and (receiver is None or self.ask(receiver) is False) else None


_graph = remembered(_Graph)


def uses_torch(program: Program) -> bool:
    """Does the program import PyTorch or what is built on it?"""
    return any(module.startswith(_ON_TORCH) for module in program.modules)


def is_off(program: Program, node: ast.AST) -> bool:
    """Are gradients off here in training too? `set_grad_enabled(phase == "train")`, or one in an `if`, leaves them on for it."""
    if not program.facts.no_grad(node):
        return False
    switches = [item.context_expr for above in program.ancestors(node) if isinstance(above, ast.With) for item in above.items]
    asked = [item for item in switches if isinstance(item, ast.Call) and program.method(item) == "set_grad_enabled"]
    plain = [call for call in program.calls_to("set_grad_enabled") if isinstance(program.parent(call), ast.Expr)]
    here = (program.parent(call) for call in plain if program.enclosing_function(call) is program.enclosing_function(node))
    by_phase = any(isinstance(program.parent(item), ast.If) for item in here if item is not None)
    return not by_phase and not any(program.value(program.argument(item, "mode", 0)) is UNKNOWN for item in asked)


def is_detaching(program: Program, call: ast.Call) -> bool:
    """A method that gives back numbers, indices or a tensor without its graph."""
    return isinstance(call.func, ast.Attribute) and program.method(call) in _DETACHING


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
