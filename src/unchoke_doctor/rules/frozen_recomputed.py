"""Does a frozen network run over the same images again in every epoch, though its features never change?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import RANDOM, feeds, random_steps
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import argument_values, origins, values
from unchoke_doctor.code.training import NETWORK, Training
from unchoke_doctor.rules import Case, Hit

_CHANGING = re.compile(
    r"teacher|ema\b|target|momentum|generator|discriminator|critic|gan\b|adversar|loss|perceptual|lpips|embed", re.IGNORECASE
)
_HEAD = re.compile(r"fc\b|classif|head|dense|output|linear|predictions|top", re.IGNORECASE)
_KERAS_LAYERS = (
    "RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast", "RandomBrightness", "RandomCrop",
)  # fmt: skip
_SMALL = re.compile(r"mobilenet|squeezenet|shufflenet|resnet18|efficientnet[-_]?b0|mnasnet", re.IGNORECASE)
_FEWEST_EPOCHS, _MANY_EPOCHS = 3, 5
"""From when on it is worth a word, and where the validation images alone, which stay the same, are worth the change."""
_Freeze = tuple[ast.AST, ast.expr, bool]
"""Where a network is frozen, which, and whether it is one of Keras."""


def check(case: Case) -> Iterator[Hit]:
    program, seen = case.program, set[str]()
    for freeze in [*_freezes(program), *_without_gradients(case)]:
        name = program.text(freeze[1])
        if _CHANGING.search(name) or name in seen or not program.is_own(freeze[0]):
            continue
        training = next((one for one in case.trainings if _trains_with(program, one, freeze)), None)
        if training is None or (training.epochs is not None and training.epochs < _FEWEST_EPOCHS):
            continue
        seen.add(name)
        steps = random_steps(program, training.data)
        if not steps and not feeds(program, training.data) and training.kind != "keras":
            steps = sorted({program.last(call) for call in program.calls_to(*RANDOM)})  # the data is not known: any counts
        if freeze[2]:
            steps += [program.last(call) for call in program.calls_to(*_KERAS_LAYERS) if program.name(call).startswith("keras")]
        told = f"`{'`, `'.join(steps[:3])}` change the training images" if steps else "nothing changes the images at random"
        fix = "run it once over the images, save the features, and train the layers behind it on those"
        if steps:
            fix = (
                "save the features of the validation images, which stay the same, and, if the score allows, those of a few "
                "augmented copies of each image (of flips alone: of its mirror image)"
            )
        often = f"each of {training.epochs} epochs" if training.epochs else "every epoch"
        said = f"`{name}` is frozen and {told}, yet {often} runs all images through it again"
        brief = bool(steps) and ((training.epochs or _MANY_EPOCHS) < _MANY_EPOCHS or bool(_SMALL.search(case.texts)))
        places = [freeze[0], *([training.node] if program.is_own(training.node) else [])]
        yield case.hit(places, said, fix, "note" if brief else "choke", frozen=name, augmentation=steps)


def _freezes(program: Program) -> Iterator[_Freeze]:
    """`p.requires_grad = False` for all parameters, `x.requires_grad_(False)`, `x.trainable = False`, a frozen TF Hub layer."""
    for attribute in ("requires_grad", "trainable"):
        for target, value in reversed(program.stored.get(attribute, ())):  # a network that is made twice: the last one counts
            network = _owner(program, target)
            if network is not None and values(program, value) == [False] and not _is_partly(program, target):
                yield target, network, attribute == "trainable"
    for call in program.calls_to("requires_grad_", "freeze"):
        off = program.last(call) == "freeze" or (call.args and values(program, call.args[0]) == [False])
        if off and isinstance(call.func, ast.Attribute) and NETWORK.search(program.text(call.func.value).rpartition(".")[2]):
            yield call, call.func.value, False
    for call in program.calls_to("Adam", "AdamW", "SGD", "RMSprop"):
        match call.args[:1]:  # only the head is given to the optimizer
            case [ast.Call(func=ast.Attribute(attr="parameters", value=ast.Attribute(attr=head, value=network)))]:
                if _HEAD.match(head) and NETWORK.search(program.text(network).rpartition(".")[2]):
                    yield call, network, False
    for call in program.calls_to("hub.KerasLayer", "tensorflow_hub.KerasLayer"):
        if argument_values(program, call, "trainable", 1, False) == [False]:
            yield call, call, True


def _owner(program: Program, target: ast.Attribute) -> ast.expr | None:
    """The network whose parameters or layers a loop freezes, or the object itself; None where only some are taken."""
    loop = program.loop(target)
    names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)} if isinstance(loop, ast.For) else set()
    if not isinstance(loop, ast.For) or not (isinstance(target.value, ast.Name) and target.value.id in names):
        return target.value
    inside: ast.expr | None = loop.iter
    while inside is not None:
        match inside:
            case ast.Call(func=ast.Attribute(attr="parameters" | "named_parameters" | "modules" | "children", value=network)):
                return network
            case ast.Attribute(attr="layers", value=network):
                return network
            case ast.Subscript(value=inside, slice=ast.Slice(lower=None, upper=None | ast.UnaryOp(op=ast.USub()))):
                pass  # all of them, or all but the last few
            case ast.Call(args=[inside, *_]):
                pass
            case _:
                inside = None
    return None


def _is_partly(program: Program, target: ast.AST) -> bool:
    """Inside its loop, a condition that spares more than the head."""
    loop = program.loop(target)
    for part in program.above(target) if loop is not None else ():
        if part is loop:
            break
        if isinstance(part, ast.If) and not _HEAD.search(program.text(part.test, 200)):
            return True
    return False


def _without_gradients(case: Case) -> Iterator[_Freeze]:
    """A network that runs under `no_grad` in the loop that trains another one on its result."""
    program = case.program
    for training in (one for one in case.trainings if one.kind == "torch"):
        own = program.text(training.model).removeprefix("self.") if training.model is not None else ""
        for block in (part for part in ast.walk(training.node) if isinstance(part, ast.With)):
            if not any(program.last(item.context_expr) in ("no_grad", "inference_mode") for item in block.items):
                continue
            for call in program.calls_in(*block.body):
                name = program.text(call.func).removeprefix("self.")
                feeds_on = isinstance(call.func, ast.Name | ast.Attribute) and isinstance(program.statement(call), ast.Assign)
                if feeds_on and NETWORK.search(name) and name != own:
                    yield block, call.func, False


def _trains_with(program: Program, training: Training, freeze: _Freeze) -> bool:
    """Does this training run the frozen network, and is nothing of it thawed before?"""
    node, network, keras = freeze
    if (training.kind == "keras") != keras or training.kind in ("fastai", "yolo", "tape"):
        return False
    name = program.text(network).removeprefix("self.")
    between = range(program.order[node] + 1, program.order[training.node])
    for attribute in ("requires_grad", "trainable"):
        for target, value in program.stored.get(attribute, ()):
            owner = _owner(program, target)
            text = program.text(owner if owner is not None else target.value).removeprefix("self.")
            of_it = owner is None or text == name or text.startswith(f"{name}.")
            thaws = program.order[target] in between and of_it and True in values(program, value)
            if thaws and not _HEAD.search(text.removeprefix(name)):
                return False
    if keras:
        passes = program.calls_to("predict", "predict_generator")
        extracted = any(program.text(one.func).startswith(f"{name}.predict") and program.order[one] in between for one in passes)
        return not extracted and program.order[node] < program.order[training.node]
    if isinstance(node, ast.With):
        return program.contains(training.node, node)
    made = {end for end in origins(program, network) if isinstance(end, ast.Call)}
    trained = (
        {end for end in origins(program, training.model) if isinstance(end, ast.Call)} if training.model is not None else None
    )
    return not made or not trained or bool(made & trained) or program.class_of(node) is not None
