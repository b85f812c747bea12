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
(they are under no_grad already), functions that are only called where gradients are off or that a decorator from elsewhere may
switch, a single pass in a method that only a base class of elsewhere can call, and a try with random numbers. Always a nit: a
library's own `forward` may switch gradients off, which the file does not tell.

The line is shown and never written by `--fix`: what a function runs may look whether gradients are on, and with attention torch
takes another kernel without them, so that last digits may differ. PyTorch only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from unchoke.code.facts.devices import torch_name
from unchoke.code.facts.evaluation import EvaluationCode
from unchoke.code.facts.loops import step_kind
from unchoke.code.facts.origins import sources
from unchoke.code.facts.vocabulary import role_of
from unchoke.code.magics import split_lines
from unchoke.code.node_index import FunctionNode, arguments
from unchoke.code.program import Program
from unchoke.code.source import CodePlace
from unchoke.linting.questions import COMPREHENSIONS, inherits
from unchoke.linting.rule import Edit, Hit, Rule, shortened

RULE = Rule(
    group="device",
    stage="evaluation",
    title="evaluation that prepares for a backward pass",
    kind="nit",
    gain="memory of all intermediate results, and some time",
    command="unchoke profile -- python SCRIPT",
    frameworks=("torch",),
    in_training=True,
)
_NOT_TORCH = (
    "tf.", "sklearn.", "xgboost.", "lightgbm.", "catboost.", "transformers.pipeline", "ultralytics.", "onnxruntime.", "fastai.",
    "sentence_transformers.",
)  # fmt: skip
_ON_TORCH = ("torch", "torchvision", "timm", "fastai", "lightning", "pytorch_lightning")
_OFF_ALREADY = frozenset({"predict", "predict_on_batch", "generate", "encode"})
_WITHOUT_WEIGHTS = frozenset(
    {"Sigmoid", "Softmax", "LogSoftmax", "ReLU", "GELU", "Tanh", "Identity", "Flatten", "Upsample", "Softmax2d",
     "AdaptiveAvgPool2d", "CosineSimilarity", "AvgPool2d", "MaxPool2d", "Dropout", "PairwiseDistance", "Fold", "Unfold",
     "PixelShuffle"}
)  # fmt: skip
_ASKS = frozenset(
    {"requires_grad", "requires_grad_", "retain_grad", "autograd", "enable_grad", "register_full_backward_hook", "GradCAM",
     "attribute", "jacobian", "grad", "backward"}
)  # fmt: skip
_EXPLAINS = re.compile(r"(?:^|_)(?:grad_?)?cam(?:_|$)|salien|explain|relevance|integrated_grad", re.IGNORECASE)
_ENGINES = re.compile(r"trt|tensorrt|onnx|ort_|openvino|(?:^|_)ov_|nncf|session|interpreter|tflite|coreml|engine", re.IGNORECASE)
_RANDOM = re.compile(r"torch\.(?:rand|randn|ones|zeros)(?:_like)?$|torch\.randint$")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_NO_HOOKS = frozenset({"object", "abc.ABC", "typing.Generic", "typing.Protocol"})


def check(program: Program) -> Iterator[Hit]:
    if not any(module.partition(".")[0] in _ON_TORCH for module in program.modules):
        return
    done: set[ast.AST] = set()
    for call in program.nodes(ast.Call):
        if not _runs_network(program, call) or program.facts.no_grad(call) or program.facts.in_training(call) is not None:
            continue
        found = _evaluation_of(program, call)
        if found is not None and found.node not in done and not _needs_gradients(program, found):
            done.add(found.node)
            yield _hit(program, call, found)


def _evaluation_of(program: Program, call: ast.Call) -> EvaluationCode | None:
    """The evaluation that this call is part of, if the rule is about it: the function whose name says so, else after `eval()`."""
    if inherits(program, program.enclosing_class(call), "LightningModule"):
        return None
    function = program.enclosing_function(call)
    while function is not None:
        found = program.facts.evaluation_of(function)
        if found is not None:
            asked = not _is_unit_test(program, function) and not _is_called_by_others(program, function)
            return replace(found, scope=function) if asked else None
        function = program.enclosing_function(function)
    return _in_mode(program, call)


def _in_mode(program: Program, call: ast.Call) -> EvaluationCode | None:
    """After `model.eval()`; the whole function round it where nothing trains in that."""
    found, function = program.facts.in_mode(call), program.enclosing_function(call)
    if found is None or not _is_model(program, call, found.model):
        return None
    if function is not None and any(step_kind(program, item) for item in program.within(function, ast.Call)):
        function = None
    return replace(found, node=function or found.node, scope=function)


def _is_model(program: Program, call: ast.Call, model: str) -> bool:
    """Does the call run the model that was put into evaluation mode, or a part of it?"""
    if f"{program.written(call.func)}.".startswith(f"{model}."):
        return True
    return program.function_of(call) is not None and model in [program.written(item) for item in arguments(call)]


def _is_called_by_others(program: Program, function: FunctionNode) -> bool:
    """A method that others may call with gradients on or off as they need: `def predict(self, x): return self(x)` of a network,
    or one pass in a class whose base is of elsewhere, which nobody here calls again and again."""
    owner = program.enclosing_class(function)
    if owner is None or any(program.method(call) == "eval" for call in program.within(function, ast.Call)):
        return False
    if "forward" in program.methods(owner) or inherits(program, owner, "Module", "Model"):
        return True
    around = [above for call in program.callers(function) for above in program.ancestors(call)]
    again = any(isinstance(above, (*_LOOPS, *COMPREHENSIONS)) for above in around) or any(program.within(function, *_LOOPS))
    elsewhere = any(base not in program.classes and base not in _NO_HOOKS for base in program.bases(owner))
    return elsewhere and not again


def _is_unit_test(program: Program, function: FunctionNode) -> bool:
    """By its name, and because it asserts or runs a network once."""
    named = function.name.startswith(("test_", "_test_")) or function.name.endswith("_test")
    asserts = any(program.method(call).startswith("assert") for call in program.within(function, ast.Call))
    return named and (asserts or any(program.within(function, ast.Assert)) or not any(program.within(function, ast.For)))


def _runs_network(program: Program, call: ast.Call, depth: int = 0) -> bool:
    """Directly, or through a function of this file in which gradients are on."""
    if _is_forward(program, call):
        return True
    function = program.function_of(call)
    if function is None or depth > 2 or program.facts.evaluation_of(function) is not None or role_of(function.name) == "train":
        return False  # reported there, or trains
    inner = program.within(function, ast.Call)
    return any(_runs_network(program, item, depth + 1) and not program.facts.no_grad(item) for item in inner)


def _is_forward(program: Program, call: ast.Call) -> bool:
    """Not of a frozen network, or one without weights: nothing is prepared there."""
    if not program.facts.is_forward(call) or program.keyword(call, "training") or program.method(call) in _OFF_ALREADY:
        return False
    if _is_tried(program, call) or _is_engine(program, call):
        return False
    made, name = program.made_by(call.func), program.written(call.func)
    weightless = made.startswith("torch.nn.") and made.rpartition(".")[2] in _WITHOUT_WEIGHTS
    frozen = any(item.name == name and item.whole and item.by == "requires_grad" for item in program.facts.frozen)
    return not weightless and not frozen and not made.startswith(_NOT_TORCH)


def _is_engine(program: Program, call: ast.Call) -> bool:
    """A compiled network of another runtime, by its annotation, its make or its names: it has no graph."""
    function, name = program.enclosing_function(call), program.written(call.func)
    given = [program.text(item) for item in program.within(function or call, ast.arg) if item.arg == name]
    return any(_ENGINES.search(text) for text in (name, program.made_by(call.func), *given))


def _needs_gradients(program: Program, found: EvaluationCode) -> bool:
    """Does the evaluation ask for gradients of its own?"""
    numbers = program.index.number
    parts = (found.scope, *program.reach(found.scope)) if found.scope is not None else ()
    nodes = [node for part in parts for node in program.within(part, ast.Attribute, ast.Name)]
    if found.scope is None:
        nodes = [node for node in program.nodes(ast.Attribute, ast.Name) if found.first <= numbers[node] <= found.last]
    asked = (node.attr for node in nodes if isinstance(node, ast.Attribute))
    shown = any("gradcam" in node.id.lower() for node in nodes if isinstance(node, ast.Name))
    return shown or any(name in _ASKS or _EXPLAINS.search(name) for name in asked)


def _hit(program: Program, call: ast.Call, found: EvaluationCode) -> Hit:
    function = found.scope if isinstance(found.scope, FunctionNode) else None
    torch = torch_name(program, found.node)
    text = shortened(program, call, keep_end=False)
    if function is not None:
        where, instead = f"in `{function.name}`", f"`@{torch or 'torch'}.no_grad()` over `{function.name}`"
    else:
        where, instead = f"after `{found.model}.eval()`", "`with torch.inference_mode():` round it"
    return Hit(
        call,
        f"`{text}` {where} keeps everything for a backward pass that never comes: gradients are not switched off",
        evidence={"forward": text},
        fix=f"write {instead}; `eval()` alone does not switch them off",
        suggestion=_suggestion(program, function, torch) if isinstance(function, ast.FunctionDef) and torch else (),
    )


def _is_tried(program: Program, call: ast.Call) -> bool:
    """On random numbers, or in the default of an argument, which runs where that is called."""
    parts = [part for item in arguments(call)[:1] for part in sources(program, item)]
    if any(isinstance(part, ast.Call) and _RANDOM.match(program.name(part)) for part in parts):
        return True
    return any(
        isinstance(above, ast.Lambda) and isinstance(program.parent(above), ast.arguments) for above in program.ancestors(call)
    )


def _suggestion(program: Program, function: ast.FunctionDef, torch: str) -> tuple[Edit, ...]:
    """`@torch.no_grad()` over the function."""
    place, text = program.place(function), program.cell(function).text
    indent = split_lines(text)[place.line - 1][: place.column]
    at = CodePlace(place.cell, place.line, place.column, place.line, place.column)
    return () if indent.strip() or function.decorator_list else (Edit(at, f"@{torch}.no_grad()\n{indent}"),)
