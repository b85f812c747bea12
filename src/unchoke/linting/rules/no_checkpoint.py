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
does not give. It is a choke where the file shows a run of hours: 100 epochs and more (30 in a notebook) over pictures that it
reads from files, and nothing is saved after them either, or 15,000 steps and more of convolutions. All else is a nit, and so is
a training that stops by itself, a gallery's script, an environment's steps, and a trainer with checkpoints switched off.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from unchoke.code.facts.epochs import (
    EpochRun,
    callbacks_of,
    epoch_runs,
    is_long,
    large_network,
    nodes_of,
    one_does,
    trains_on_kept_features,
)
from unchoke.code.facts.gradients import uses_torch
from unchoke.code.facts.loops import Fit, count_of, most, unwrapped
from unchoke.code.facts.origins import may_save
from unchoke.code.facts.saving import is_weights_save
from unchoke.code.facts.stakes import is_gallery, is_little, known_steps, reads_pictures
from unchoke.code.program import Program
from unchoke.core.findings import Kind
from unchoke.linting.questions import acts, calls_run_by
from unchoke.linting.rule import Hit, Rule, at_method

RULE = Rule(
    group="resume",
    stage="checkpoint",
    title="nothing is saved before the training ends",
    gain="a killed run goes on instead of starting again: a training by unchoke killed 20 times ended with the same weights",
    claim="Nothing is lost",
    command="unchoke train",
)
_SAVING = frozenset({"ModelCheckpoint", "BackupAndRestore", "WandbModelCheckpoint", "WandbCallback", "OnExceptionCheckpoint"})
_LIGHTNING_EPOCHS = 1000
_MANY_EPOCHS = {False: 100, True: 30}  # in a notebook, whose kernel dies with a browser, a lid or a session
_LEAST_STEPS = 5000
_MANY_STEPS = 15_000
_CONVOLUTIONS = ("Conv2d", "Conv2D", "Convolution2D", "Conv3d", "Conv3D")


def check(program: Program) -> Iterator[Hit]:
    for run in epoch_runs(program):
        if is_long(run.num_epochs) and not _is_quick(program, run) and not _saves(program, nodes_of(program, run, ast.Call)):
            yield _loop_hit(program, run)
    yield from _by_steps(program)
    for fit in program.facts.fits:
        judge = {"keras": _keras, "lightning": _lightning, "hf": _hugging_face}.get(fit.kind)
        hit = judge(program, fit) if judge is not None else None
        if hit is not None:
            yield hit


def _saves(program: Program, calls: Iterable[ast.Call]) -> bool:
    return any(is_weights_save(program, call) or may_save(program, call) for call in calls)


def _by_steps(program: Program) -> Iterator[Hit]:
    """A loop of thousands of steps that is in no loop over epochs."""
    for loop in program.facts.training_loops:
        if not isinstance(loop.node, ast.For) or loop.epochs is not None:
            continue
        count = count_of(program, loop.node)
        if is_long(count) and count >= _LEAST_STEPS and not _saves(program, calls_run_by(program, *loop.node.body)):
            yield Hit(
                loop.node,
                f"{int(count):,} steps with nothing saved inside the loop: a kill loses all of them",
                {"steps": int(count)},
                "save the weights every few hundred steps, `if step % 500 == 0:`, under a temporary name that is then renamed",
                kind=None if count >= _MANY_STEPS and _is_dear(program) and not acts(program, loop.node) else "nit",
            )


def _loop_hit(program: Program, run: EpochRun) -> Hit:
    count = int(run.num_epochs)
    methods = {program.method(call) for call in nodes_of(program, run, ast.Call)}
    fix = (
        "call `model.save(…)` at the end of each round, or give `fit` a `ModelCheckpoint(…)` among its `callbacks`"
        if run.batches is None
        else "make a `tf.train.CheckpointManager` of model and optimizer before the loop and call its `save()` after each epoch"
        if "GradientTape" in methods and not uses_torch(program)
        else "call `model.save(…)` at the end of each epoch, under a temporary name that is then renamed"
        if "train_on_batch" in methods and not uses_torch(program)
        else "at the end of each epoch `torch.save` the state of model and optimizer and the epoch under a temporary name, then "
        "`os.replace` it over the checkpoint, and load that at the start if it is there"
    )
    return Hit(
        run.node,
        f"{count} epochs with nothing saved inside the loop: a kill loses all of them",
        {"epochs": count},
        fix,
        kind=_kind(program, count, stops_early=any(program.within(run.node, ast.Break))),
    )


def _kind(program: Program, count: float, *, stops_early: bool) -> Kind:
    """Worth saying where the file shows that it takes hours and all may be lost: very many epochs over pictures, never saved."""
    many = _MANY_EPOCHS[program.is_notebook]
    short = _is_saved(program) or count < many or stops_early or is_gallery(program) or is_little(program)
    return "nit" if short or not reads_pictures(program) else "choke"


def _is_saved(program: Program) -> bool:
    """Is anything ever saved, after the training at least?"""
    functions = (program.enclosing_function(call) for call in program.nodes(ast.Call) if is_weights_save(program, call))
    return any(function is None or program.callers(function) for function in functions)


def _is_dear(program: Program) -> bool:
    """A step that takes a while on any device."""
    return bool(program.calls_to(*_CONVOLUTIONS)) or large_network(program) is not None


def _is_quick(program: Program, run: EpochRun) -> bool:
    """A small head on features that were worked out before."""
    forwards = [call for call in nodes_of(program, run, ast.Call) if program.facts.is_forward(call)]
    source = unwrapped(program, run.batches.iter) if isinstance(run.batches, ast.For) else None
    return trains_on_kept_features(
        program, [item for call in forwards for item in call.args] if run.batches is run.node else [source]
    )


def _keras(program: Program, fit: Fit) -> Hit | None:
    count = fit.num_epochs
    given = callbacks_of(program, fit.call)
    if not is_long(count) or given is None or trains_on_kept_features(program, fit.call.args[:1]):
        return None
    if one_does(program, given, _SAVING, is_weights_save) is not False:
        return None
    saves = "its callback does not save" if len(given) == 1 else f"none of its {len(given)} callbacks saves"
    there = saves if given else "it has no callback that saves"
    stops = "EarlyStopping" in map(program.method, given)
    return Hit(
        at_method(program, fit.call),
        f"`{program.text(fit.call.func)}` runs {int(count)} epochs and {there}: a kill loses all of them",
        {"epochs": int(count), "callbacks": [program.text(item)[:60] for item in given]},
        _keras_fix(program, fit),
        kind="nit" if (known_steps(program, fit) or _MANY_STEPS) < _MANY_STEPS else _kind(program, count, stops_early=stops),
        fact="fit",
    )


def _keras_fix(program: Program, fit: Fit) -> str:
    """`BackupAndRestore` is younger than `fit_generator`, and brings back the state of whichever `fit` wrote its folder last."""
    if program.method(fit.call) == "fit_generator":
        return "add `ModelCheckpoint(…)` to `callbacks`, and load what it saved when going on"
    each = ", a folder for each `fit`" if sum(other.kind == "keras" for other in program.facts.fits) > 1 else ""
    return f'add `keras.callbacks.BackupAndRestore("backup")` (goes on after a kill{each}) or `ModelCheckpoint(…)` to `callbacks`'


def _lightning(program: Program, fit: Fit) -> Hit | None:
    trainer = fit.trainer
    option = program.keyword(trainer, "enable_checkpointing") if trainer is not None else None
    if trainer is None or option is None or program.value(option.value) is not False:
        return None
    epochs = program.argument(trainer, "max_epochs")
    whole = epochs is None and not any(program.keyword(trainer, name) for name in ("max_steps", "max_time", "fast_dev_run"))
    count = _LIGHTNING_EPOCHS if whole else most(program, epochs)
    given = callbacks_of(program, trainer)
    if not is_long(count) or given is None or one_does(program, given, _SAVING, is_weights_save) is not False:
        return None
    return Hit(
        option,
        f"`enable_checkpointing=False` in a training of {int(count)} epochs: a kill loses all of them",
        {"epochs": int(count)},
        "leave `enable_checkpointing` out, or add `ModelCheckpoint(save_last=True)` to `callbacks`",
        kind="nit",
    )


def _hugging_face(program: Program, fit: Fit) -> Hit | None:
    option = program.keyword(fit.settings, "save_strategy") if fit.settings is not None else None
    off = option is not None and (program.value(option.value) == "no" or program.name(option.value).endswith("Strategy.NO"))
    if option is None or not off or not is_long(fit.num_epochs):
        return None
    return Hit(
        option,
        f"`save_strategy` is off in a training of {int(fit.num_epochs)} epochs: a kill loses all of them",
        {"epochs": int(fit.num_epochs)},
        'write `save_strategy="epoch", save_total_limit=2` and go on with `trainer.train(resume_from_checkpoint=True)`',
        kind="nit",
    )
