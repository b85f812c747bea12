"""Evaluation that prepares for a backward pass.

Outside `torch.no_grad()` or `torch.inference_mode()` a forward pass keeps every intermediate result for gradients that nobody
will ask for. `model.eval()` does not change that: it only switches dropout and batch norm. Evaluation then takes as much memory
as training, so its batches must be as small, and each step is slower.

**Write instead.** One line over the function, or round the loop:

    @torch.inference_mode()          # or @torch.no_grad()
    def evaluate(model, loader): ...

`inference_mode` saves a little more; tensors made in it cannot take part in gradients later. `no_grad` has no such limit.

**When this is fine.** Where evaluation needs gradients: saliency maps, adversarial examples, adaptation at test time. A
function that calls `backward` or `autograd.grad` or asks for `requires_grad` is not reported, nor are Lightning's own steps
(they are under no_grad already), functions that are only called where gradients are off, and a single pass in a method that
only a base class of elsewhere can call.

`--fix` puts `@torch.no_grad()` over a function only where that provably changes no result: all it runs is in the file or known
(a network of the file's own, a convolutional one of torchvision or timm), and it shows, keeps and returns plain numbers. Networks
with attention are left to you: there torch takes another kernel without gradients, and last digits may differ.

PyTorch only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.facts.devices import torch_name
from unchoke.code.facts.evaluation import EvaluationCode
from unchoke.code.facts.loops import step_kind
from unchoke.code.facts.origins import root
from unchoke.code.facts.vocabulary import role_of
from unchoke.code.magics import split_lines
from unchoke.code.node_index import FunctionNode, arguments
from unchoke.code.program import Program
from unchoke.code.source import CodePlace
from unchoke.linting.proofs import is_same_without_gradients
from unchoke.linting.rule import Edit, Hit, Rule, shortened

RULE = Rule(
    code="no-inference-mode",
    group="device",
    stage="evaluation",
    title="evaluation that prepares for a backward pass",
    gain="memory of all intermediate results, and some time",
    command="unchoke profile -- python SCRIPT",
    fixable=True,
    frameworks=("torch",),
)
_NOT_TORCH = (
    "tf.", "sklearn.", "xgboost.", "lightgbm.", "catboost.", "transformers.pipeline", "ultralytics.", "onnxruntime.", "fastai.",
    "sentence_transformers.",
)  # fmt: skip
_ON_TORCH = ("torch", "torchvision", "timm", "fastai", "lightning", "pytorch_lightning")
_OFF_ALREADY = frozenset({"predict", "predict_on_batch", "generate", "encode"})
_OFF_MAKERS = ("pipeline", "InferenceSession", "SentenceTransformer", "YOLO", "Learner", "vision_learner")
_WITHOUT_WEIGHTS = frozenset(
    {"Sigmoid", "Softmax", "LogSoftmax", "ReLU", "GELU", "Tanh", "Identity", "Flatten", "Upsample", "Softmax2d",
     "AdaptiveAvgPool2d", "CosineSimilarity", "AvgPool2d", "MaxPool2d", "Dropout", "PairwiseDistance", "Fold", "Unfold",
     "PixelShuffle"}
)  # fmt: skip
_ASKS = frozenset(
    {"requires_grad", "requires_grad_", "retain_grad", "autograd", "enable_grad", "register_full_backward_hook", "GradCAM",
     "attribute", "jacobian", "grad"}
)  # fmt: skip

_REPEATS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_EXPLAINS = re.compile(r"(?:^|_)(?:grad_?)?cam(?:_|$)|salien|explain|relevance|integrated_grad", re.IGNORECASE)


@dataclass(frozen=True)
class EvaluationSpan:
    """Evaluation code: a function, or what follows `model.eval()`, by the numbers of its nodes."""

    key: ast.AST
    function: FunctionNode | None
    model: str
    first: int
    last: int


def check(program: Program) -> Iterator[Hit]:
    if not any(module.partition(".")[0] in _ON_TORCH for module in program.modules):
        return
    done: set[ast.AST] = set()
    chains = list(_eval_chains(program))
    for call in program.nodes(ast.Call):
        if not _runs_network(program, call) or program.facts.no_grad(call) or program.facts.in_training(call) is not None:
            continue
        found = _evaluation_of(program, call) or _after_chain(program, call, chains)
        if found is not None and found.key not in done and not _needs_gradients(program, found):
            done.add(found.key)
            yield _hit(program, call, found)


def _evaluation_of(program: Program, call: ast.Call) -> EvaluationSpan | None:
    """The evaluation that this call is part of, if the rule is about it: the function whose name says so, else after `eval()`."""
    function = program.enclosing_function(call)
    while function is not None:
        found = program.facts.evaluation_of(function)
        if found is not None:
            return _of_function(program, found, function)
        function = program.enclosing_function(function)
    found = program.facts.in_mode(call)
    if found is None or not _is_model(program, call, found.model) or _in_lightning(program, call):
        return None
    function = program.enclosing_function(call)
    whole = function is not None and not any(step_kind(program, item) for item in program.within(function, ast.Call))
    function = function if whole else None
    return EvaluationSpan(function or found.node, function, found.model, found.first, found.last)


def _of_function(program: Program, found: EvaluationCode, function: FunctionNode) -> EvaluationSpan | None:
    if found.kind == "lightning" or _is_unit_test(program, function) or _in_lightning(program, function):
        return None
    owner = program.enclosing_class(function)
    if owner is not None and (_is_own_forward(program, owner, function) or _is_hook(program, owner, function)):
        return None
    return EvaluationSpan(function, function, "", found.first, found.last)


def _in_lightning(program: Program, node: ast.AST) -> bool:
    owner = program.enclosing_class(node)
    return owner is not None and any(base.rpartition(".")[2] == "LightningModule" for base in program.bases(owner))


def _eval_chains(program: Program) -> Iterator[tuple[ast.stmt, str]]:
    """`model = build().eval()`, `model.to(device).eval()`: statements after which `model` evaluates, and its name."""
    for call in program.nodes(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "eval" or call.args or call.keywords:
            continue
        statement = program.statement(call)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and _is_chain(statement.value, call):
            yield statement, program.written(statement.targets[0])
        elif isinstance(statement, ast.Expr) and statement.value is not call:
            yield statement, root(statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(call.func.value, ast.Call):
            yield statement, root(call.func.value)


def _is_chain(node: ast.AST, call: ast.Call) -> bool:
    """Is `call` one of the links of `a.b().c()`?"""
    while isinstance(node, ast.Call):
        if node is call:
            return True
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    return False


def _after_chain(program: Program, call: ast.Call, chains: list[tuple[ast.stmt, str]]) -> EvaluationSpan | None:
    """After such a statement, in the same function, where nothing trains and the name was given nothing else since."""
    scope = program.enclosing_scope(call)
    for statement, model in chains:
        if not model or program.enclosing_scope(statement) is not scope or not program.is_before(statement, call):
            continue
        if not _is_model(program, call, model) or _in_lightning(program, call) or _trains_in(program, scope, model):
            continue
        later = [given for given in program.given(model) if given.scope is scope]
        if not any(program.index.number[statement] < given.order < program.index.number[call] for given in later):
            first = program.index.number[statement]
            last = program.index.stop(scope) if scope is not None else len(program.index.all)
            function = scope if isinstance(scope, FunctionNode) else None
            return EvaluationSpan(function or statement, function, model, first, last)
    return None


def _trains_in(program: Program, scope: ast.AST | None, model: str) -> bool:
    """Is there a step of training, or `model.train()`, in this scope?"""
    here = [call for call in program.nodes(ast.Call) if program.enclosing_scope(call) is scope]
    switched = (call for call in here if program.method(call) == "train" and program.written(program.receiver(call)) == model)
    return any(switched) or any(step_kind(program, call) for call in here)


def _is_model(program: Program, call: ast.Call, model: str) -> bool:
    """Does the call run the model that was put into evaluation mode, or a part of it?"""
    name = program.written(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""
    if name == model or name.startswith(f"{model}."):
        return True
    function = program.function_of(call)
    given = [program.written(item) for item in arguments(call)]
    return function is not None and model in given


def _is_own_forward(program: Program, owner: ast.ClassDef, function: FunctionNode) -> bool:
    """`def predict(self, x): return self(x)` of a network is another way to call it; gradients may be wanted."""
    is_module = "forward" in program.methods(owner) or any(base.endswith(("Module", "Model")) for base in program.bases(owner))
    return is_module and not any(program.method(call) == "eval" for call in program.within(function, ast.Call))


def _is_hook(program: Program, owner: ast.ClassDef, function: FunctionNode) -> bool:
    """One pass of a network in a method that a base of elsewhere may call, with gradients off: nobody else calls it here."""
    if not any(_is_elsewhere(program, base) for base in owner.bases):
        return False
    loops = any(True for _ in program.within(function, ast.For, ast.While, ast.AsyncFor))
    switched = any(program.method(call) == "eval" for call in program.within(function, ast.Call))
    return not loops and not switched and all(_is_from_hook(program, owner, call) for call in program.callers(function))


def _is_from_hook(program: Program, owner: ast.ClassDef, call: ast.Call) -> bool:
    """Is it called once, from a method of the same class that nobody calls here?"""
    caller = program.enclosing_function(call)
    if caller is None or program.enclosing_class(caller) is not owner or program.callers(caller):
        return False
    return not any(isinstance(above, _REPEATS) for above in program.ancestors(call))


def _is_elsewhere(program: Program, base: ast.expr) -> bool:
    named = base.value if isinstance(base, ast.Subscript) else base
    above = program.classes.get(program.written(named))
    if above is not None:
        return any(_is_elsewhere(program, item) for item in above.bases if program.written(item) != above.name)
    return program.name(named) not in ("object", "abc.ABC", "typing.Generic", "typing.Protocol")


def _is_unit_test(program: Program, function: FunctionNode) -> bool:
    if not function.name.startswith(("test_", "_test_")) and not function.name.endswith("_test"):
        return False
    checks = any(program.method(call).startswith("assert") for call in program.within(function, ast.Call))
    asserts = checks or any(True for _ in program.within(function, ast.Assert))
    return asserts or not any(True for _ in program.within(function, ast.For))


def _runs_network(program: Program, call: ast.Call, depth: int = 0) -> bool:
    """Directly, or through a function of this file in which gradients are on."""
    if _is_forward(program, call):
        return True
    function = program.function_of(call)
    if function is None or depth > 2 or function.name in ("__init__", "forward", "__call__"):
        return False
    if any(program.method(mark) in ("no_grad", "inference_mode") for mark in function.decorator_list):
        return False
    if program.facts.evaluation_of(function) is not None or role_of(function.name) == "train":
        return False  # reported there, or trains
    inner = program.within(function, ast.Call)
    return any(_runs_network(program, item, depth + 1) and not program.facts.no_grad(item) for item in inner)


def _is_forward(program: Program, call: ast.Call) -> bool:
    if not program.facts.is_forward(call) or program.keyword(call, "training") is not None:
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in _OFF_ALREADY:
        return False
    made = program.made_by(call.func)
    if made.startswith("torch.nn.") and made.rpartition(".")[2] in _WITHOUT_WEIGHTS:
        return False
    return not made.startswith(_NOT_TORCH) and made.rpartition(".")[2] not in _OFF_MAKERS and not _is_frozen(program, call)


def _is_frozen(program: Program, call: ast.Call) -> bool:
    """No parameter of it asks for gradients: then none are prepared."""
    name = program.written(call.func)
    return any(item.name == name and item.whole and item.by == "requires_grad" for item in program.facts.frozen)


def _needs_gradients(program: Program, found: EvaluationSpan) -> bool:
    """Does the evaluation ask for gradients of its own?"""
    if found.function is not None:
        return any(_asks(program, part) for part in (found.function, *program.reach(found.function)))
    scope = program.enclosing_scope(found.key)
    nodes = program.nodes(ast.Attribute, ast.Name, ast.keyword)
    inside = (node for node in nodes if found.first <= program.index.number[node] <= found.last)
    return any(_asks_here(program, node) for node in inside if program.enclosing_scope(node) is scope)


def _asks(program: Program, part: ast.AST) -> bool:
    if any(step_kind(program, call) for call in program.within(part, ast.Call)):
        return True
    return any(_asks_here(program, node) for node in program.within(part, ast.Attribute, ast.Name, ast.keyword))


def _asks_here(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _ASKS or node.attr == "backward" or _EXPLAINS.search(node.attr) is not None
    if isinstance(node, ast.keyword):
        return node.arg == "requires_grad" and program.value(node.value) is not False
    return isinstance(node, ast.Name) and "gradcam" in node.id.lower()


def _hit(program: Program, call: ast.Call, found: EvaluationSpan) -> Hit:
    function = found.function
    torch = torch_name(program, found.key)
    text = shortened(program, call, keep_end=False)
    if function is not None:
        where, instead = f"in `{function.name}`", f"`@{torch or 'torch'}.no_grad()` over `{function.name}`"
    else:
        where, instead = f"after `{found.model}.eval()`", "`with torch.inference_mode():` round it"
    edit = _edit(program, function, torch) if isinstance(function, ast.FunctionDef) and torch else None
    proven = edit is not None and function is not None and is_same_without_gradients(program, function)
    return Hit(
        call,
        f"`{text}` {where} keeps everything for a backward pass that never comes: gradients are not switched off",
        evidence={"forward": text},
        fix=f"write {instead}; `eval()` alone does not switch them off",
        edit=edit if proven else None,
        suggestion=(edit,) if edit is not None and not proven else (),
        kind=None if function is not None or program.loops_around(call) else "nit",  # once: freed as soon as it is shown
    )


def _edit(program: Program, function: ast.FunctionDef, torch: str) -> Edit | None:
    """`@torch.no_grad()` over the function."""
    if function.decorator_list:
        return None
    place, text = program.place(function), program.cell(function).text
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = split_lines(text)[place.line - 1][: place.column]
    at = CodePlace(place.cell, place.line, place.column, place.line, place.column)
    return None if indent.strip() else Edit(at, f"@{torch}.no_grad(){newline}{indent}")
