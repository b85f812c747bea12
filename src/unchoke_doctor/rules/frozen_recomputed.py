"""Does a frozen network run over the same images again in every epoch, though its features never change?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke_doctor.code.data import RANDOM, feeds, random_steps
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import MISSING, argument, origins, values
from unchoke_doctor.code.training import NETWORK, Training
from unchoke_doctor.rules import Case, Hit

_CHANGING = re.compile(r"teacher|ema\b|target|momentum|generator|discriminator|critic|gan\b|adversar|loss|perceptual|lpips|embed", re.IGNORECASE)
_HEAD = re.compile(r"fc\b|classif|head|dense|output|linear|predictions|top", re.IGNORECASE)
_FLIPS = frozenset({"RandomHorizontalFlip", "RandomVerticalFlip", "HorizontalFlip", "VerticalFlip", "horizontal_flip", "vertical_flip", "RandomFlip"})
_KERAS_LAYERS = ("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast", "RandomBrightness", "RandomCrop")
_FEWEST_EPOCHS = 3


@dataclass(frozen=True, eq=False)
class _Freeze:
    node: ast.AST
    network: ast.expr
    keras: bool


def check(case: Case) -> Iterator[Hit]:
    program, seen = case.program, set()
    for freeze in [*_freezes(program), *_without_gradients(case)]:
        name = program.text(freeze.network)
        if _CHANGING.search(name) or name in seen or not program.is_own(freeze.node):
            continue
        training = next((one for one in case.trainings if _trains_with(program, one, freeze)), None)
        if training is not None and (training.epochs is None or training.epochs >= _FEWEST_EPOCHS):
            seen.add(name)
            yield _hit(case, freeze, training, name)


def _hit(case: Case, freeze: _Freeze, training: Training, name: str) -> Hit:
    program = case.program
    steps = random_steps(program, training.data)
    if not steps and not feeds(program, training.data) and training.kind != "keras":
        steps = sorted({program.name(call).rpartition(".")[2] for call in program.calls_to(*RANDOM)})  # the data is not known: any counts
    if freeze.keras:
        steps += [layer for layer in _KERAS_LAYERS if any(program.name(call).startswith("keras") for call in program.calls_to(layer))]
    often = f"each of {training.epochs} epochs" if training.epochs else "every epoch"
    only_flips = bool(steps) and set(steps) <= _FLIPS and (training.epochs or 0) >= 8
    kind, basis, evidence = case.weigh("note" if steps and not only_flips else "choke")
    if not steps:
        told, fix = "nothing changes the images at random", "run it once over the images, save the features, and train the layers behind it on those"
    elif only_flips:
        told, fix = "only flips change the images", "save the features of each image and of its mirror image once, and train the layers behind it on those"
    else:
        told = f"`{'`, `'.join(steps[:3])}` change the training images"
        fix = "save the features of the validation images, which stay the same, and, if the score allows, those of a few augmented copies of each image"
    return Hit(
        freeze.node, f"`{name}` is frozen and {told}, yet {often} runs all images through it again{case.told()}", fix, kind, basis,
        {**evidence, "frozen": name, "augmentation": steps}, further=(training.node,) if program.is_own(training.node) else (),
    )  # fmt: skip


# What is frozen -----------------------------------------------------------------------------------------------------------


def _freezes(program: Program) -> Iterator[_Freeze]:
    """`p.requires_grad = False` for all parameters of X, `X.requires_grad_(False)`, `X.trainable = False`, a frozen layer of TF Hub."""
    for attribute, keras in (("requires_grad", False), ("trainable", True)):
        for target, value in program.stored.get(attribute, ()):
            network = _owner(program, target)
            if network is not None and values(program, value) == [False] and not _is_partly(program, target):
                yield _Freeze(target, network, keras)
    for call in program.calls_to("requires_grad_", "freeze"):
        if isinstance(call.func, ast.Attribute) and NETWORK.search(program.text(call.func.value).rpartition(".")[2]):
            if call.func.attr == "freeze" or (call.args and values(program, call.args[0]) == [False]):
                yield _Freeze(call, call.func.value, False)
    for call in program.calls_to("hub.KerasLayer", "tensorflow_hub.KerasLayer"):
        flag = argument(program, call, "trainable", 1)
        if flag == MISSING or (isinstance(flag, ast.AST) and values(program, flag) == [False]):
            yield _Freeze(call, call.args[0] if call.args and False else call, True)


def _owner(program: Program, target: ast.Attribute) -> ast.expr | None:
    """The network whose parameters or layers a loop freezes, or the object itself; None where only some are taken."""
    loop = program.loop(target)
    if not (isinstance(loop, ast.For) and isinstance(target.value, ast.Name) and target.value.id in {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}):
        return target.value
    inside = loop.iter
    while isinstance(inside, ast.Call | ast.Subscript | ast.Attribute):
        if isinstance(inside, ast.Subscript):
            if not (isinstance(inside.slice, ast.Slice) and inside.slice.lower is None and inside.slice.upper is None):
                return None
            inside = inside.value
        elif isinstance(inside, ast.Call):
            if isinstance(inside.func, ast.Attribute) and inside.func.attr in ("parameters", "named_parameters", "modules", "children"):
                return inside.func.value
            if not inside.args:
                return None
            inside = inside.args[0]
        elif inside.attr == "layers":
            return inside.value
        else:
            return None
    return None


def _is_partly(program: Program, target: ast.AST) -> bool:
    """Inside its loop, a condition that spares more than the head."""
    loop = program.loop(target)
    for part in program.above(target):
        if part is loop:
            return False
        if isinstance(part, ast.If) and loop is not None and not _HEAD.search(program.text(part.test, 200)):
            return True
    return False


def _without_gradients(case: Case) -> Iterator[_Freeze]:
    """A network that runs under `no_grad` in the loop that trains another one on its result."""
    program = case.program
    for training in case.trainings:
        own = program.text(training.model) if training.model is not None else ""
        for part in ast.walk(training.node) if training.kind == "torch" else ():
            if not isinstance(part, ast.With) or not any(program.name(item.context_expr).endswith(("no_grad", "inference_mode")) for item in part.items):
                continue
            for call in program.calls_in(*part.body):
                name = program.text(call.func).removeprefix("self.")
                feeds_on = isinstance(program.statement(call), ast.Assign)
                if isinstance(call.func, ast.Name | ast.Attribute) and NETWORK.search(name) and name != own.removeprefix("self.") and feeds_on:
                    yield _Freeze(part, call.func, False)


# What is trained with it --------------------------------------------------------------------------------------------------


def _trains_with(program: Program, training: Training, freeze: _Freeze) -> bool:
    """Does this training run the frozen network, and is nothing of it thawed before?"""
    if (training.kind == "keras") != freeze.keras or training.kind in ("fastai", "yolo", "tape"):
        return False
    name = program.text(freeze.network).removeprefix("self.")
    for attribute in ("requires_grad", "trainable"):
        for target, value in program.stored.get(attribute, ()):
            owner = _owner(program, target)
            text = program.text(owner).removeprefix("self.") if owner is not None else program.text(target.value)
            thaws = True in values(program, value) and (text == name or text.startswith(f"{name}.") or owner is None) and not _HEAD.search(text.removeprefix(name))
            if thaws and program.order[target] < program.order[training.node] and program.order[target] > program.order[freeze.node]:
                return False
    if freeze.keras:
        extracted = any(program.text(call.func).startswith(f"{name}.predict") for call in program.calls_to("predict", "predict_generator"))
        return not extracted and program.order[freeze.node] < program.order[training.node]
    if isinstance(freeze.node, ast.With):
        return program.contains(training.node, freeze.node)
    made = {end for end in origins(program, freeze.network) if isinstance(end, ast.Call)}
    trained = {end for end in origins(program, training.model) if isinstance(end, ast.Call)} if training.model is not None else set()
    return not made or not trained or bool(made & trained) or program.class_of(freeze.node) is not None
