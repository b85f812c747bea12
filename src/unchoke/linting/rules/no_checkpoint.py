"""A long training that saves nothing until it ends.

A power cut, a closed notebook, an out-of-memory error in epoch 38 of 40 or a session limit (Colab, Kaggle, a cluster's queue)
throws away everything since the start. A checkpoint costs the time to write the weights, usually well below a second an
epoch.

**Write instead.** Save what is needed to go on, under a temporary name, then rename it, and look for it at the start:

    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, "last.pt.tmp")
    os.replace("last.pt.tmp", "last.pt")

Keras: `callbacks=[keras.callbacks.BackupAndRestore("backup")]` goes on after a kill, `ModelCheckpoint` keeps the best.
Lightning: leave `enable_checkpointing` alone. Hugging Face: `save_strategy="epoch"` and `save_total_limit=2`.

**When this is fine.** When all of it takes less time than writing a checkpoint and starting again: a small head on features
that are already worked out, a test of a few minutes. Fewer than five epochs are not reported, nor is a number that the file
does not give. Fewer than 20 are a nit (10 of a large network, 100 on one of the small sets of lessons).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from unchoke.code.facts.epochs import (
    EpochRun,
    callbacks_of,
    epoch_runs,
    is_long,
    most,
    nodes_of,
    one_does,
    trains_on_kept_features,
)
from unchoke.code.facts.loops import Fit, is_range, unwrapped
from unchoke.code.facts.magnitude import large_network, trains_on_small_set
from unchoke.code.facts.saving import is_weights_save
from unchoke.code.facts.unseen import may_save
from unchoke.code.program import Program
from unchoke.core.findings import Kind
from unchoke.linting.rule import Hit, Rule, at_method

RULE = Rule(
    code="no-checkpoint",
    group="resume",
    stage="checkpoint",
    title="nothing is saved before the training ends",
    gain="a killed run goes on instead of starting again: a training by unchoke killed 20 times ended with the same weights",
    claim="Nothing is lost",
    command="unchoke train",
)
_SAVING = frozenset({"ModelCheckpoint", "BackupAndRestore", "WandbModelCheckpoint", "WandbCallback", "OnExceptionCheckpoint"})
_SMALL_LAYERS = frozenset(
    {"Linear", "LayerNorm", "Dropout", "ReLU", "GELU", "SiLU", "Tanh", "BatchNorm1d", "Softmax", "LogSoftmax", "Sigmoid",
     "LeakyReLU", "ELU", "Identity"}
)  # fmt: skip
_LIGHTNING_EPOCHS = 1000
_MANY_EPOCHS = 20
_MANY_LARGE_EPOCHS = 10
_MANY_STEPS = 5000
_MANY_SMALL_EPOCHS = 100


def check(program: Program) -> Iterator[Hit]:
    for run in epoch_runs(program):
        calls = nodes_of(program, run, ast.Call)
        saves = (call for call in calls if is_weights_save(program, call) or may_save(program, call))
        if is_long(run.num_epochs) and not _is_quick(program, run) and not any(saves):
            yield _loop_hit(program, run)
    yield from _by_steps(program)
    for fit in program.facts.fits:
        judge = {"keras": _keras, "lightning": _lightning, "hf": _hugging_face}.get(fit.kind)
        hit = judge(program, fit) if judge is not None else None
        if hit is not None:
            yield hit


def _by_steps(program: Program) -> Iterator[Hit]:
    """A loop of thousands of steps that is in no loop over epochs."""
    for loop in program.facts.training_loops:
        node = loop.node
        inner = unwrapped(program, node.iter) if isinstance(node, ast.For) and loop.epochs is None else None
        if not isinstance(node, ast.For) or not isinstance(inner, ast.Call) or not is_range(program, inner) or not inner.args:
            continue
        count = most(program, inner.args[-1 if len(inner.args) < 3 else 1])
        functions = {function for block in node.body for function in program.reach(block)}
        calls = program.calls_in([*node.body, *functions])
        saves = (call for call in calls if is_weights_save(program, call) or may_save(program, call))
        if is_long(count) and count >= _MANY_STEPS and not any(saves):
            yield Hit(
                node,
                f"{int(count):,} steps with nothing saved inside the loop: a kill loses all of them",
                {"steps": int(count)},
                "save the weights every few hundred steps, `if step % 500 == 0:`, under a temporary name that is then renamed",
            )


def _loop_hit(program: Program, run: EpochRun) -> Hit:
    count = int(run.num_epochs)
    methods = {program.method(call) for call in nodes_of(program, run, ast.Call)}
    fix = (
        "call `model.save(…)` at the end of each round, or give `fit` a `ModelCheckpoint(…)` among its `callbacks`"
        if run.batches is None
        else "make a `tf.train.CheckpointManager` of model and optimizer before the loop and call its `save()` after each epoch"
        if methods & {"GradientTape", "train_on_batch"}
        else "at the end of each epoch `torch.save` the state of model and optimizer and the epoch under a temporary name, then "
        "`os.replace` it over the checkpoint, and load that at the start if it is there"
    )
    return Hit(
        run.node,
        f"{count} epochs with nothing saved inside the loop: a kill loses all of them",
        {"epochs": count},
        fix,
        kind=_kind(program, count),
    )


def _kind(program: Program, count: float) -> Kind:
    """A few epochs are soon run again, of a large network fewer, on one of the small sets of lessons more."""
    large = large_network(program) is not None
    many = _MANY_SMALL_EPOCHS if trains_on_small_set(program) else _MANY_LARGE_EPOCHS if large else _MANY_EPOCHS
    return "choke" if count >= many else "nit"


def _is_quick(program: Program, run: EpochRun) -> bool:
    """A small head on what is already in memory."""
    source = unwrapped(program, run.batches.iter) if isinstance(run.batches, ast.For) else None
    if run.batches is run.node:
        source = None
    return trains_on_kept_features(program, [source, *_inputs(program, run)]) or _is_small_head(program, run, source)


def _inputs(program: Program, run: EpochRun) -> Iterator[ast.expr]:
    """What the network is given where the whole set is one batch."""
    if run.batches is run.node:
        yield from (item for call in nodes_of(program, run, ast.Call) if program.facts.is_forward(call) for item in call.args)


def _is_small_head(program: Program, run: EpochRun, source: ast.expr | None) -> bool:
    """A few linear layers by name and make, on tensors in memory."""
    if source is not None and program.made_by(_dataset_of(program, source)).rpartition(".")[2] != "TensorDataset":
        return False
    trained = [call for call in nodes_of(program, run, ast.Call) if program.facts.is_forward(call)]
    return bool(trained) and all(_is_linear(program, call.func) for call in trained)


def _dataset_of(program: Program, source: ast.expr) -> ast.expr | None:
    loader = source if isinstance(source, ast.Call) else program.latest(source)
    return program.argument(loader, "dataset", 0) if isinstance(loader, ast.Call) else None


def _is_linear(program: Program, node: ast.expr) -> bool:
    made = program.latest(node)
    if not isinstance(made, ast.Call):
        return False
    layers = [program.name(call) for call in program.within(made, ast.Call) if program.name(call).startswith("torch.nn.")]
    plain = [kind for name in layers if (kind := name.rpartition(".")[2]) != "Sequential"]
    return bool(plain) and set(plain) <= _SMALL_LAYERS and plain.count("Linear") <= 2


def _keras(program: Program, fit: Fit) -> Hit | None:
    count = _epochs(program, fit)
    given = callbacks_of(program, fit.call)
    if not is_long(count) or given is None or trains_on_kept_features(program, fit.call.args[:1]):
        return None
    if one_does(program, given, _SAVING, is_weights_save_call) is not False:
        return None
    saves = "its callback does not save" if len(given) == 1 else f"none of its {len(given)} callbacks saves"
    there = saves if given else "it has no callback that saves"
    return Hit(
        at_method(program, fit.call),
        f"`{program.text(fit.call.func)}` runs {int(count)} epochs and {there}: a kill loses all of them",
        {"epochs": int(count), "callbacks": [program.text(item)[:60] for item in given]},
        'add `keras.callbacks.BackupAndRestore("backup")` (goes on after a kill) or `ModelCheckpoint(…)` to `callbacks`',
        kind=_kind(program, count),
    )


def is_weights_save_call(program: Program, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and is_weights_save(program, node)


def _epochs(program: Program, fit: Fit) -> Any:
    if isinstance(fit.num_epochs, int | float):
        return fit.num_epochs
    position = 2 if program.method(fit.call) == "fit_generator" else 3
    return most(program, program.argument(fit.call, "epochs", position))


def _lightning(program: Program, fit: Fit) -> Hit | None:
    trainer = fit.trainer
    option = program.keyword(trainer, "enable_checkpointing") if trainer is not None else None
    if trainer is None or option is None or program.value(option.value) is not False:
        return None
    epochs = program.argument(trainer, "max_epochs")
    limits = ("fast_dev_run", "max_steps", "max_time", "overfit_batches")
    whole = epochs is None and all(program.keyword(trainer, name) is None for name in limits)
    count = _LIGHTNING_EPOCHS if whole else most(program, epochs)
    given = callbacks_of(program, trainer)
    if not is_long(count) or given is None or one_does(program, given, _SAVING, is_weights_save_call) is not False:
        return None
    return Hit(
        option,
        f"`enable_checkpointing=False` in a training of {int(count)} epochs: a kill loses all of them",
        {"epochs": int(count)},
        "leave `enable_checkpointing` out, or add `ModelCheckpoint(save_last=True)` to `callbacks`",
    )


def _hugging_face(program: Program, fit: Fit) -> Hit | None:
    option = program.keyword(fit.settings, "save_strategy") if fit.settings is not None else None
    if option is None or not is_long(fit.num_epochs):
        return None
    if program.value(option.value) != "no" and not program.name(option.value).endswith("Strategy.NO"):
        return None
    return Hit(
        option,
        f"`save_strategy` is off in a training of {int(fit.num_epochs)} epochs: a kill loses all of them",
        {"epochs": int(fit.num_epochs)},
        'write `save_strategy="epoch", save_total_limit=2` and go on with `trainer.train(resume_from_checkpoint=True)`',
    )
