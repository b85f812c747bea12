"""Is a long training lost if the process stops: is nothing saved, or only when it ends?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.program import FUNCTIONS, LOOPS, Program
from unchoke_doctor.code.trace import UNKNOWN, argument_values, given, origins
from unchoke_doctor.code.training import Training, own_node
from unchoke_doctor.rules import Case, Hit
from unchoke_doctor.units import format_seconds

_SAVES = re.compile(
    r"save|checkpoint|ckpt|export|dump|log_model|push_to_hub|log_artifact|serialize|write_model|torchscript", re.IGNORECASE
)
_OTHER_SAVES = re.compile(
    r"savefig|savetxt|save_?image|save_?plot|imsave|save_img|save_?fig|dumps|load|numpy\.save|json\.|yaml\.|save_csv|save_?history|"
    r"save_?log",
    re.IGNORECASE,
)
_WEIGHTS = re.compile(r"model|net|state|weight|learn|clf|classifier", re.IGNORECASE)
_PICTURES = re.compile(r"im(?:g|age)|fig|plot|pic|mask|frame|photo|overlay|patch|crop|thumb|doc", re.IGNORECASE)
_NOT_DENSE = re.compile(
    r"conv|resnet|vgg|\blstm|\bgru|attention|transformer|applications|pretrained|load_model|\bhub\b", re.IGNORECASE
)
"""Words of networks that are more than dense layers."""
_CALLBACKS = re.compile(r"Checkpoint|BackupAndRestore|Wandb|SaveModel|CSVSaver", re.IGNORECASE)
_LONG_S, _MANY_EPOCHS, _MANY_IMAGES = {False: 180.0, True: 900.0}, {False: 3, True: 10}, 100_000
"""From when on a training is worth a checkpoint: where nothing is saved, and where the end is."""
_FIXES = {
    "keras": "give `fit` `callbacks=[keras.callbacks.ModelCheckpoint('best.keras', save_best_only=True), "
    "keras.callbacks.BackupAndRestore('backup')]`: the second one resumes a training that was stopped",
    "tape": "make a `tf.train.CheckpointManager` of model and optimizer and call its `save()` after each epoch",
    "fastai": "give it `cbs=SaveModelCallback(monitor='valid_loss')`",
    "lightning": "leave `enable_checkpointing` on, and pass `ckpt_path='last'` to resume",
    "trainer": "set `save_strategy='epoch', save_total_limit=2`, and resume with `train(resume_from_checkpoint=True)`",
    "yolo": "leave `save` on, and resume with `resume=True`",
    "torch": "at the end of each epoch `torch.save` a dictionary with `{model}.state_dict()`, the optimizer's state and the "
    "epoch, and load it at the start if it is there",
}
_SWITCHES = {"lightning": ("Trainer", "enable_checkpointing", False), "trainer": ("TrainingArguments", "save_strategy", "no")}


def check(case: Case) -> Iterator[Hit]:
    program, lost = case.program, []
    for one in case.trainings:  # at the loop over epochs, where a checkpoint would be saved; else where the training shows
        loops = [part for part in one.chain if isinstance(part, LOOPS) and program.is_own(part)]
        node = loops[0] if loops and isinstance(one.node, LOOPS) else own_node(program, one)
        if node is not None and not _saves(program, one):
            lost.append((node, one))
    saves = [call for call in program.calls if _is_save(program, call)] if lost else []
    never = [(node, one) for node, one in lost if not any(_may_save(program, call, one) for call in saves)]
    if not lost:
        return
    at_end, lost = not never, never or lost
    node, training = max(lost, key=lambda one: one[1].epochs or 0)
    epochs, seconds = training.epochs, case.training_s(training)
    stopped = case.stopped_at(training)
    if stopped:
        long = True
    elif seconds is not None or epochs is not None:
        many = (epochs or 0) >= _MANY_EPOCHS[at_end] or (epochs or 0) * (case.outputs.images or 0) >= _MANY_IMAGES
        if many and seconds is None and program.calls_to("Dense", "Linear"):  # dense layers alone take minutes
            many = any(_NOT_DENSE.search(program.name(call)) for call in program.calls)
        long = seconds >= _LONG_S[at_end] if seconds is not None else many
    else:  # it goes through the data several times, though nothing here tells how often
        runs = not (training.chain and isinstance(training.chain[-1], FUNCTIONS))
        repeats = isinstance(training.node, ast.Call) or any(isinstance(part, LOOPS) for part in training.chain)
        long = not at_end and runs and repeats
    what = "nothing is ever saved: when the session ends, the trained weights are gone"
    if at_end:
        what = "nothing is saved before the training ends: a stop loses everything since its start"
    shown = [f"{epochs} epochs"] if epochs else []
    shown += [f"the saved outputs stop in epoch {stopped}"] if stopped else []
    shown += [f"{format_seconds(seconds)} by the saved outputs"] if seconds and not case.is_older(training) else []
    model = program.text(training.model) if training.model is not None else "model"
    yield Hit(
        node,
        what + (f" ({', '.join(shown)})" if shown else ""),
        _FIXES[training.kind].format(model=model),
        "choke" if long and not case.little else "note",
        "outputs" if seconds is not None or stopped else "code",
        {"epochs": epochs, "training_s": seconds, "saved_at_end": at_end},
        further=tuple(dict.fromkeys(other for other, _ in lost if other is not node)),
    )


def _may_save(program: Program, save: ast.Call, training: Training) -> bool:
    """Does a call save what this training made? Surely not where Keras saved before it, or saves a model of another name."""
    held, model = save.func.value if isinstance(save.func, ast.Attribute) else None, training.model
    if training.kind != "keras" or program.function(save) is not None or program.function(training.node) is not None:
        return True
    if not isinstance(model, ast.Name) or not isinstance(held, ast.Name) or held.id in program.own.imports:
        return True
    return program.order[save] > program.order[training.node] and held.id == model.id


def _saves(program: Program, training: Training) -> bool:
    """Is something saved in a loop around the training, by a callback, or by the trainer's own default?"""
    call, kind = training.node, training.kind
    if isinstance(call, ast.Call) and kind == "keras":
        callbacks = given(program, call, "callbacks")
        if callbacks is None and any(word.arg is None for word in call.keywords):
            return True
        if any(_is_saving_callback(program, part) for part in _listed(program, callbacks)):
            return True
    elif isinstance(call, ast.Call) and kind == "fastai":
        words = [word for word in call.keywords if word.arg in ("cbs", "callbacks", None)]
        makers = program.calls_to("vision_learner", "cnn_learner", "unet_learner", "Learner")
        if any("Save" in ast.dump(part) for part in (*words, *makers)):
            return True
    elif isinstance(call, ast.Call):
        maker, option, off = _SWITCHES.get(kind, ("", "save", False))
        places = program.calls_to(maker) if maker else [call]
        return not any(argument_values(program, place, option, None, UNKNOWN) == [off] for place in places)
    loops = [part for part in (call, *training.chain) if isinstance(part, LOOPS)]
    return any(_is_save(program, one) for loop in loops for part in loop.body for one in program.reached(part))


def _listed(program: Program, callbacks: ast.expr | None) -> Iterator[ast.AST]:
    """The callbacks in a list, those that are added to it later too."""
    for end in origins(program, callbacks, through=False) if callbacks is not None else ():
        if isinstance(end, ast.BinOp):
            yield from (*_listed(program, end.left), *_listed(program, end.right))
        elif isinstance(end, ast.List | ast.Tuple):
            yield from (one for part in end.elts for one in origins(program, part))
        else:
            yield end
    if isinstance(callbacks, ast.Name):
        added = [call for call in program.calls_to("append", "extend") if program.text(call.func).startswith(f"{callbacks.id}.")]
        yield from (end for call in added for part in call.args for end in origins(program, part))


def _is_saving_callback(program: Program, node: ast.AST) -> bool:
    """A callback that saves; what is not known may save."""
    if not isinstance(node, ast.Call):
        return not isinstance(node, ast.List | ast.Tuple)
    owner = program.target(node)
    names = program.base_names(owner) if isinstance(owner, ast.ClassDef) else [program.name(node)]
    calls = program.calls_in(owner) if isinstance(owner, ast.ClassDef) else [node]
    return any(_CALLBACKS.search(name) for name in names) or any(_is_save(program, call) for call in calls)


def _is_save(program: Program, call: ast.Call) -> bool:
    """A call that writes weights, by its name; pictures, tables and histories are none."""
    last = program.last(call)
    if not _SAVES.search(last) or _OTHER_SAVES.search(program.name(call)):
        return False
    if last == "dump":
        return bool(call.args) and bool(_WEIGHTS.search(program.text(call.args[0])))
    return not (last == "save" and _PICTURES.search(program.text(call.func, 200)))
