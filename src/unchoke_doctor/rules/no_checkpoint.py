"""Is a long training lost if the process stops: is nothing saved, or only when it ends?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from unchoke_doctor.code.program import LOOPS, Program
from unchoke_doctor.code.trace import UNKNOWN, argument_values, given, origins
from unchoke_doctor.code.training import Training, own_node
from unchoke_doctor.rules import Case, Hit, one_hit
from unchoke_doctor.units import format_seconds

_SAVES = re.compile(r"save|checkpoint|ckpt|export|dump|log_model|push_to_hub|log_artifact|serialize|write_model|torchscript", re.IGNORECASE)
_OTHER_SAVES = re.compile(r"savefig|savetxt|save_?image|save_?plot|imsave|save_img|save_?fig|dumps|load|numpy\.save|json\.|yaml\.|save_csv|save_?history|save_?log", re.IGNORECASE)
_CALLBACKS = re.compile(r"Checkpoint|BackupAndRestore|Wandb|SaveModel|CSVSaver", re.IGNORECASE)
_LONG_S, _HOURS_S = 300.0, 3600.0
_MANY_EPOCHS = 10


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    never, at_end = [], []
    anywhere = any(_is_save(program, call) for call in program.calls)
    for training in case.trainings:
        node = own_node(program, training)
        if node is None or _saves_during(program, training):
            continue
        (at_end if anywhere else never).append((node, training))
    if never:
        yield _hit(case, never, "nothing is ever saved: when the session ends, the trained weights are gone", saved=False)
    if at_end:
        yield _hit(case, at_end, "nothing is saved before the training ends: a stop loses everything since its start", saved=True)


def _hit(case: Case, some: list[tuple[ast.AST, Training]], what: str, *, saved: bool) -> Hit:
    node, training = max(some, key=lambda one: one[1].epochs or 0)
    epochs = training.epochs
    shown = case.training_s(training)
    long = shown >= (_HOURS_S if saved else _LONG_S) if shown is not None else not saved and epochs is not None and epochs >= _MANY_EPOCHS
    length = [f"{epochs} epochs" if epochs else "", f"{format_seconds(shown)} by the saved outputs" if shown else ""]
    told = ", ".join(part for part in length if part)
    places = [node, *(other for other, _ in some if other is not node)]
    return one_hit(
        list(dict.fromkeys(places)), message=f"{what}{f' ({told})' if told else ''}", fix=_fix(case.program, training),
        kind="choke" if long and not case.little else "note", basis="outputs" if shown is not None else "code",
        evidence={"epochs": epochs, "training_s": shown, "saved_at_end": saved},
    )  # fmt: skip


def _fix(program: Program, training: Training) -> str:
    name = program.text(training.model) if training.model is not None else "model"
    return {
        "keras": "give `fit` `callbacks=[keras.callbacks.ModelCheckpoint('best.keras', save_best_only=True), keras.callbacks.BackupAndRestore('backup')]`: "
        "the second one resumes a training that was stopped",
        "tape": "make a `tf.train.CheckpointManager` of model and optimizer and call its `save()` after each epoch",
        "fastai": "give it `cbs=SaveModelCallback(monitor='valid_loss')`",
        "lightning": "leave `enable_checkpointing` on, and pass `ckpt_path='last'` to resume",
        "trainer": "set `save_strategy='epoch', save_total_limit=2`, and resume with `train(resume_from_checkpoint=True)`",
        "yolo": "leave `save` on, and resume with `resume=True`",
    }.get(training.kind, f"at the end of each epoch `torch.save` a dictionary with `{name}.state_dict()`, the optimizer's state and the epoch, "
          "and load it at the start if it is there")  # fmt: skip


def _saves_during(program: Program, training: Training) -> bool:
    """Is something saved in a loop around the training, by a callback, or by the trainer's own default?"""
    call = training.node
    if isinstance(call, ast.Call) and training.kind == "keras":
        return _keras_saves(program, call) or _saved_in_loops(program, training)
    if isinstance(call, ast.Call) and training.kind == "fastai":
        words = [word for word in call.keywords if word.arg in ("cbs", "callbacks", None)]
        makers = program.calls_to("vision_learner", "cnn_learner", "unet_learner", "Learner")
        return any("Save" in ast.dump(part) for part in (*words, *makers)) or _saved_in_loops(program, training)
    if isinstance(call, ast.Call):
        flags = {"lightning": ("Trainer", "enable_checkpointing", False), "trainer": ("TrainingArguments", "save_strategy", "no")}
        maker, option, off = flags.get(training.kind, ("", "save", False))
        places = program.calls_to(maker) if maker else [call]
        return not any(argument_values(program, place, option, None, UNKNOWN) == [off] for place in places)
    return _saved_in_loops(program, training)


def _keras_saves(program: Program, call: ast.Call) -> bool:
    expr = given(program, call, "callbacks")
    if expr is None:
        return any(word.arg is None for word in call.keywords)
    return any(_is_saving_callback(program, part) for part in _listed(program, expr))


def _listed(program: Program, expr: ast.expr) -> Iterator[ast.AST]:
    """The callbacks in a list, those that are added to it later too."""
    for end in origins(program, expr, through=False):
        yield from (one for part in end.elts for one in origins(program, part)) if isinstance(end, ast.List | ast.Tuple) else (end,)
        if isinstance(end, ast.BinOp):
            yield from (*_listed(program, end.left), *_listed(program, end.right))
    if isinstance(expr, ast.Name):
        added = [call for call in program.calls_to("append", "extend") if isinstance(call.func, ast.Attribute) and ast.dump(call.func.value) == ast.dump(expr)]
        yield from (end for call in added for part in call.args for end in origins(program, part))


def _is_saving_callback(program: Program, node: ast.AST) -> bool:
    """A callback that saves; what is not known may save."""
    if not isinstance(node, ast.Call):
        return not isinstance(node, ast.List | ast.Tuple | ast.BinOp)
    owner = program.target(node)
    if isinstance(owner, ast.ClassDef):
        return any(_is_save(program, call) for call in program.calls_in(owner)) or any(_CALLBACKS.search(base) for base in program.base_names(owner))
    return _CALLBACKS.search(program.name(node)) is not None or _is_save(program, node)


def _saved_in_loops(program: Program, training: Training) -> bool:
    loops = [part for part in (training.node, *training.chain) if isinstance(part, LOOPS)]
    return any(_is_save(program, call) for loop in loops for call in _calls(program, loop.body))


def _calls(program: Program, body: Iterable[ast.stmt]) -> Iterator[ast.Call]:
    for statement in body:
        yield from program.reached(statement)


def _is_save(program: Program, call: ast.Call) -> bool:
    """A call that writes weights, by its name; pictures, tables and histories are none."""
    name = program.name(call)
    return _SAVES.search(name.rpartition(".")[2]) is not None and not _OTHER_SAVES.search(name)
