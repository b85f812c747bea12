"""A frozen encoder run over the same pictures in every epoch.

When no parameter of the encoder learns and the pictures are not augmented at random, the encoder gives the same features for
the same picture every time. Running it again in each epoch buys nothing: all epochs but the first pay for what is already
known, decoding included. Fifty epochs of a head over a small frozen encoder took 4.1 s, 0.4 s with the features computed once.

**Write instead.** Run the encoder once, keep its features, and train the head on those:

    with torch.inference_mode():
        features = torch.cat([encoder(images.to(device)).cpu() for images, _ in loader])
    head_loader = DataLoader(TensorDataset(features, labels), batch_size=256, shuffle=True)

With Keras: `features = base.predict(train)`, then `head.fit(features, labels)`. `unchoke fit` does this, and can be resumed.

**When this is fine.** With random augmentation, flips included (the encoder then sees another picture each time), with a single
epoch, when a part of the encoder is trained too, or when features for all pictures do not fit on the disk. Fewer than five
epochs, a number that the file does not give, and freezing that is an option are a nit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.facts.epochs import few, is_long
from unchoke.code.facts.freezing import ENCODERS, Freeze, freezes, is_fed_by_a_network, is_head, key_of, key_of_call, put_together
from unchoke.code.facts.gradients import is_off
from unchoke.code.facts.loops import Fit, Loop
from unchoke.code.facts.per_sample import is_random_number
from unchoke.code.program import Program
from unchoke.linting.questions import tests_round, torch_loaders
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="compute",
    stage="step",
    title="frozen encoder run again in every epoch",
    gain="4.1 to 0.4 s for 50 epochs of a head with the features computed once (machine A)",
    claim="Planted chokes",
    command="unchoke fit",
)
_CHANGING = re.compile(
    r"teacher|ema|target|momentum|generator|discriminator|critic|gan|adversar|vgg_loss|perceptual|lpips", re.IGNORECASE
)
_JUDGING = re.compile(r"loss|percep|lpips|style", re.IGNORECASE)  # what another network makes
_AUGMENTING = re.compile(
    r"aug(?:ment\w*|s|_\w+|mix)?$|^aug|mixup|cutmix|cutout|jitter|random_\w+|rand_?aug\w*|create_transform|RandomState",
    re.IGNORECASE,
)
_UNREAD = r"(?i)augment|random|flip|rotat|zoom|jitter|crop"
_SWITCHED = re.compile(r"aug|random|flip|rotat|jitter|shift")  # `random_shift=True`, of a data set
_DRAWING = ("torch.bernoulli", "kornia.augmentation", "torch.distributions", "torch.normal", "torch.rand", "tf.random.")
_KNOWN_DATA = (
    "torch", "tf.", "timm.", "datasets.", "tensorflow_datasets.", "medmnist.", "numpy.", "tfds.", "monai.", "sklearn.",
    "pandas.",
)  # fmt: skip


def check(program: Program) -> Iterator[Hit]:
    if program.facts.augments or _may_augment(program) or program.could_be_elsewhere(_UNREAD):
        return
    for freeze in freezes(program):
        owner = program.enclosing_class(freeze.node)
        if _CHANGING.search(freeze.name) or (owner is not None and _JUDGING.search(owner.name)):
            continue
        if freeze.by == "no_grad" and (not is_off(program, freeze.node) or freeze.key in _trained(program)):
            continue  # on in training, or in an optimizer's hands under its own name
        forward = _keras_run(program, freeze) if freeze.by == "trainable" else _torch_run(program, freeze)
        if forward is not None:
            yield _hit(program, freeze, forward)
            return


def _hit(program: Program, freeze: Freeze, forward: ast.AST) -> Hit:
    loop = program.facts.in_training(forward)
    trainings: list[Loop | Fit] = [loop] if loop is not None else [fit for fit in program.facts.fits if fit.call is forward]
    epochs = next((training.num_epochs for training in trainings), None)
    often = f"in each of {epochs} epochs" if isinstance(epochs, int) else "in every epoch"
    return Hit(
        freeze.node,
        f"`{freeze.name}` is frozen and nothing is augmented at random, yet it runs over the same pictures {often}",
        evidence={
            "frozen": freeze.name,
            "epochs": epochs if isinstance(epochs, int) else "not known",
            "run at line": program.line(forward),
        },
        fix=f"run `{freeze.name}` once over the training pictures, keep the features, and train the rest on them",
        kind=None if is_long(epochs) and not tests_round(program, freeze.node) else "nit",
    )


def _may_augment(program: Program) -> bool:
    """Augmentation that is not in a table: functions named for it, draws in the training loop, settings of another library."""
    for call in program.nodes(ast.Call):
        name = program.name(call)
        draws = is_random_number(program, call) or (name.startswith(_DRAWING) and program.method(call) != "randperm")
        if _AUGMENTING.search(program.method(call)) or "peft" in name or (draws and program.facts.in_training(call) is not None):
            return True
        if any(_SWITCHED.search(word.arg or "") and program.value(word.value) is True for word in call.keywords):
            return True
    return any(_AUGMENTING.search(name) for name in program.functions)


def _torch_run(program: Program, freeze: Freeze) -> ast.AST | None:
    """The forward call of the frozen part on each step of a training of several epochs, on the data itself."""
    loaders = [loader for loader in torch_loaders(program) if loader.role != "eval"]
    known = all(_is_known(program, loader.dataset) for loader in loaders) and bool(loaders or program.facts.datasets)
    if not known or not _trains_only_a_head(program, freeze):
        return None
    for call in program.facts.forwards:
        loop = program.facts.in_training(call)
        if loop is None or not _has_epochs(loop) or program.facts.is_conditional(call):
            continue
        run = _is_run(program, freeze, call) and not is_fed_by_a_network(program, call)
        if run and _is_frozen_at(program, freeze, loop.node):
            return call
    return next((fit.call for fit in program.facts.fits if fit.kind == "hf" and _is_run_by(program, freeze, fit)), None)


def _is_run_by(program: Program, freeze: Freeze, fit: Fit) -> bool:
    """A trainer of several epochs that is given the network whose encoder is frozen for good."""
    given = program.argument(fit.trainer, "model", 0) if fit.trainer is not None else None
    key = key_of(program, program.written(given), fit.call)
    held = freeze.key == key or freeze.key.removeprefix(key + ".") in ENCODERS
    return held and given is not None and freeze.thawed is None and not few(fit.num_epochs, below=2)


def _has_epochs(loop: Loop) -> bool:
    return (loop.kind == "lightning" or loop.epochs is not None) and not few(loop.num_epochs, below=2)


def _trained(program: Program) -> set[str]:
    """What the optimizers of the file have the parameters of."""
    return {key_of(program, name, item.call) for item in program.facts.optimizers for name in item.names}


def _is_run(program: Program, freeze: Freeze, call: ast.Call) -> bool:
    """Does this call run the frozen part: itself, or the network of a library that holds it as its encoder?"""
    key = key_of_call(program, call)
    parts = [key_of(program, program.written(item), item) for item in put_together(program, call)]
    if freeze.key in (key, *parts):
        return True
    rest = freeze.key.removeprefix(key + ".")
    return key != "" and rest != freeze.key and rest in ENCODERS and key.partition(".")[0] not in program.classes


def _trains_only_a_head(program: Program, freeze: Freeze) -> bool:
    """Something else learns, and behind the frozen part, not in front of it: `model.fc = …` is given a new layer."""
    own = freeze.name + "."
    made = [
        node for node in program.nodes(ast.Assign) if isinstance(node.value, ast.Call) and program.is_before(freeze.node, node)
    ]
    names = [program.written(target) for node in made for target in node.targets]
    replaced = [name.removeprefix(own).partition(".")[0] for name in names if name.startswith(own)]
    learns = bool(replaced) or "." in freeze.key or bool(_trained(program) - {freeze.key})
    return learns and all(is_head(name) for name in replaced)


def _is_known(program: Program, data: ast.expr | None) -> bool:
    """Are the transforms of these pictures in this file, as far as can be told?"""
    made = program.made_by(data)
    return "." not in made.removeprefix("?.") or made.startswith(_KNOWN_DATA)


def _keras_run(program: Program, freeze: Freeze) -> ast.AST | None:
    """The fit of several epochs behind which the part is frozen, unless its features are computed apart already."""
    extracts = program.calls_to("predict", "predict_generator")
    if any(program.written(program.receiver(call)) == freeze.name for call in extracts):
        return None
    fits = [fit for fit in program.facts.fits if fit.kind == "keras" and _is_known(program, program.argument(fit.call, "x", 0))]
    runs = [fit.call for fit in fits if not few(fit.num_epochs, below=2)]
    return next((run for run in runs if _is_frozen_at(program, freeze, run)), None)


def _is_frozen_at(program: Program, freeze: Freeze, training: ast.AST) -> bool:
    """Frozen for good; or frozen, then trained, and only then thawed, in the same function."""
    if freeze.thawed is None:
        return True
    if len({program.enclosing_function(node) for node in (freeze.node, training, freeze.thawed)}) > 1:
        return False
    return program.is_before(freeze.node, training) and program.index.stop(training) < program.index.number[freeze.thawed]
