"""Networks as the program uses them: forward calls, frozen parts, optimizers and what they are given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from unchoke.code.constant_values import Values
from unchoke.code.facts.evaluation import is_off_at
from unchoke.code.node_index import names_in, parameters, remembered

_NETWORK_WORD = re.compile(
    r"(?:^|_)(?:model|net|network|encoder|enc|backbone|base|unet|resnet\w*|vit|cnn|classifier|head|decoder|generator|discriminator|"
    r"feature_extractor|extractor|trunk|teacher|student|detector|segmenter|body|vgg\w*|efficientnet|clf|ema|base_model|conv_base)\d*$",
    re.IGNORECASE,
)
_MAKERS = (
    "torchvision.models.", "timm.create_model", "segmentation_models_pytorch.", "torch.nn.", "tf.keras.applications.",
    "tf.keras.Model", "tf.keras.Sequential", "tf.keras.models.", "transformers.AutoModel", "transformers.ViT", "torch.hub.load",
    "torch.compile", "monai.networks.", "efficientnet_pytorch.", "pretrainedmodels.", "open_clip.", "clip.load",
    "ultralytics.YOLO", "torch.jit.load",
)  # fmt: skip
_NOT_NETWORKS = re.compile(
    r".*(?:losses|metrics)\.|torch\.nn\.(?:\w*Loss|functional|Parameter|utils|init|MSE\w*|ModuleList|parallel)"
)
_VERB = re.compile(
    r"_*(?:save|load|fit|evaluate|predict|build|create|get|make|compile|init|set|train|export|freeze|unfreeze|define|wrap|unwrap|"
    r"prepare|release|offload|move|replace|convert|update|reset|copy|clone|setup|register|quantize|prune|summarize|describe|plot|log)_"
)
_FORWARD = frozenset({"forward", "forward_features", "predict", "predict_on_batch", "encode_image", "extract_features"})
_NOT_FORWARD = frozenset({"summary", "print", "len", "sum", "type"})
_SWITCHES: dict[str, Literal["requires_grad", "trainable"]] = {"requires_grad": "requires_grad", "trainable": "trainable"}
_MODEL_BASES = ("Module", "LightningModule", "Model", "PreTrainedModel", "Layer")


@dataclass(frozen=True, eq=False)
class FrozenModule:
    """`name` is the part as written (`self.backbone`), `by` how it was frozen, `whole` whether all of it was."""

    name: str
    node: ast.AST
    by: Literal["requires_grad", "trainable", "no_grad"]
    whole: bool = True
    test: ast.expr | None = None  # the condition under which each parameter is frozen: `"fc" not in name`


@dataclass(frozen=True, eq=False)
class Optimizer:
    """`names` are the modules whose parameters it is given, as written; empty where that cannot be told."""

    call: ast.Call
    names: tuple[str, ...]


@remembered
def is_network(program: Values, node: ast.AST | None) -> bool:
    """Is this expression a network: by how it was made, its class in the file, or its name?"""
    if not isinstance(node, ast.Name | ast.Attribute) or "." in program.name(node).removeprefix("?."):
        return False  # a name of a library makes networks and is none
    made = program.made_by(node)
    if made:
        if made.startswith(_MAKERS):
            return not _NOT_NETWORKS.match(made)
        owner = program.classes.get(made)
        if owner is not None:
            return _is_model_class(program, owner)
        if made.startswith(("torch.optim", "torch.utils", "sklearn", "numpy", "pandas")):
            return False
    name = program.written(node)
    if name == "self":
        owner = program.enclosing_class(node)
        return owner is not None and _is_model_class(program, owner)
    last = name.rpartition(".")[2]
    if last in program.functions or last in program.classes:
        return False
    return bool(_NETWORK_WORD.search(last)) and not _VERB.match(last)


def is_network_made(name: str) -> bool:
    """Does a call of this name make a network?"""
    return name.startswith((*_MAKERS, "tensorflow_hub.KerasLayer")) and not _NOT_NETWORKS.match(name)


def _is_model_class(program: Values, owner: ast.ClassDef) -> bool:
    if owner.name.endswith("Loss"):
        return False
    return any(base.rpartition(".")[2] in _MODEL_BASES for base in program.bases(owner))


def is_forward(program: Values, call: ast.Call) -> bool:
    """Does this call run a network: `model(x)`, `self.backbone(x)`, `model.forward(x)`, `model.predict(x)`?"""
    if not call.args and not any(keyword.arg in (None, "pixel_values", "x", "images", "inputs") for keyword in call.keywords):
        return False
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in _FORWARD:
        return is_network(program, func.value) or func.attr in ("forward", "forward_features")
    text = any(program.name(item) == "?.join" for item in call.args[:1])
    return is_network(program, func) and program.method(call) not in _NOT_FORWARD and not text


def forwards(program: Values) -> list[ast.Call]:
    """All calls that run a network, in order; calls in a Keras model's own construction (on layers) are among them."""
    return [call for call in program.nodes(ast.Call) if is_forward(program, call)]


def frozen_parts(program: Values, trained: Iterable[ast.AST]) -> list[FrozenModule]:
    """What the program freezes, in order; `trained` are the training loops and the like, without the evaluation in them."""
    found = [*switched(program, on=False), *_by_no_grad(program, trained)]
    return sorted(found, key=lambda item: program.index.number[item.node])


def switched(program: Values, *, on: bool) -> Iterator[FrozenModule]:
    """Every `requires_grad = …`, `requires_grad_(…)` and `trainable = …` that is off, or that is on or may be."""
    for node in program.nodes(ast.Assign):
        for target in node.targets:
            by = _SWITCHES.get(target.attr) if isinstance(target, ast.Attribute) else None
            if isinstance(target, ast.Attribute) and by is not None and (program.value(node.value) is not False) is on:
                yield from _frozen_by_loop(program, target.value, node, by)
    for call in program.calls_to("requires_grad_"):
        given = program.argument(call, "requires_grad", 0)
        if isinstance(call.func, ast.Attribute) and (program.value(given) is not False) is on:
            yield from _frozen_by_loop(program, call.func.value, call, "requires_grad")


def _frozen_by_loop(
    program: Values, node: ast.expr, at: ast.AST, by: Literal["requires_grad", "trainable"]
) -> Iterator[FrozenModule]:
    """`for p in X.parameters(): p.requires_grad = False`, or `X.requires_grad_(False)` and `X.trainable = False` themselves."""
    module, whole, tests = _looped_module(program, node)[0], True, []
    for loop in program.loops_around(at):
        if isinstance(loop, ast.For) and program.written(node) in names_in(loop.target):
            module, whole = _looped_module(program, loop.iter)
            inside = (above for above in program.ancestors(at) if program.index.holds(loop, above))
            tests = [above.test for above in inside if isinstance(above, ast.If)]
            break
    frozen = FrozenModule(program.written(module), at, by, whole and not tests, tests[0] if tests else None)
    yield from _named_by_callers(program, frozen, module)


def _named_by_callers(program: Values, frozen: FrozenModule, module: ast.expr) -> Iterator[FrozenModule]:
    """In a helper (`def freeze(net): …`) the part is what each call of the helper gives."""
    function = program.enclosing_function(frozen.node)
    helper = function if isinstance(module, ast.Name) and function and module.id in parameters(function) else None
    if helper is not None and (callers := program.callers(helper)):
        for call in callers:
            yield replace(frozen, name=program.written(program.argument_for(call, helper, frozen.name)), node=call)
    elif frozen.name:
        yield frozen


def _looped_module(program: Values, node: ast.expr) -> tuple[ast.expr, bool]:
    """The module whose parameters or layers are looped over, and whether all of them are."""
    whole = True
    while True:
        if isinstance(node, ast.Subscript) and not program.written(node):
            whole, node = False, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Call) and node.args:
            node = node.args[0]
        elif isinstance(node, ast.Attribute) and node.attr == "layers":
            node = node.value
        else:
            return node, whole


def _by_no_grad(program: Values, trained: Iterable[ast.AST]) -> Iterator[FrozenModule]:
    """A part whose forward runs with gradients off in a model's `forward` or on each step of training, and nowhere with them."""
    off, on = [], set()
    functions = [node for node in program.nodes(ast.FunctionDef) if node.name in ("forward", "training_step")]
    calls = dict.fromkeys(program.calls_in((*functions, *trained)))
    for call in calls:
        if is_forward(program, call):
            name = program.written(call.func) or program.written(program.receiver(call))
            if is_off_at(program, call):
                off.append(FrozenModule(name, call, "no_grad"))
            else:
                on.add(name)
    yield from (item for item in off if item.name not in on)


def optimizers(program: Values) -> list[Optimizer]:
    """Every optimizer the program makes."""
    calls = [call for call in program.nodes(ast.Call) if _makes_optimizer(program, call)]
    given = [(call, program.argument(call, "params", 0)) for call in calls]
    return [Optimizer(call, tuple(dict.fromkeys(_given_modules(program, node)))) for call, node in given if node is not None]


def _makes_optimizer(program: Values, call: ast.Call) -> bool:
    name, last = program.name(call), program.method(call)
    if name.startswith("torch.optim."):
        return "lr_scheduler" not in name and last[:1].isupper()
    if last in ("create_optimizer_v2", "create_optimizer"):
        return True
    given = program.argument(call, "params", 0) if last[:1].isupper() and program.keyword(call, "lr") else None
    inner = program.within(given, ast.Call) if given is not None else ()
    return any(program.method(part) in ("parameters", "named_parameters") for part in inner)


def _given_modules(program: Values, node: ast.AST, depth: int = 0) -> Iterator[str]:
    """`model.fc` for `model.fc.parameters()`, through lists, dicts, filters and variables."""
    for call in program.within(node, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters"):
            yield program.written(call.func.value)
    for part in program.within(node, ast.Name):
        given = program.latest(part) if depth < 3 else None
        if given is not None and not isinstance(program.parent(part), ast.Attribute):
            yield from _given_modules(program, given, depth + 1)
