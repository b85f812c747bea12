"""Training by one call: Keras `fit`, Lightning's and Hugging Face's trainers, fastai's learners, scikit-learn."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from unchoke.code.constant_values import UNKNOWN, Valued

Kind = Literal["keras", "lightning", "hf", "fastai", "sklearn"]
_KERAS_OPTIONS = frozenset(
    {"epochs", "nb_epoch", "validation_data", "steps_per_epoch", "callbacks", "validation_split", "batch_size", "verbose",
     "workers", "initial_epoch", "validation_steps", "class_weight", "use_multiprocessing"}
)  # fmt: skip
_FASTAI = frozenset({"fine_tune", "fit_one_cycle", "fit_flat_cos", "fit_sgdr"})
_TRAINERS = frozenset({"Trainer", "Seq2SeqTrainer", "SFTTrainer"})


@dataclass(frozen=True, eq=False)
class Fit:
    """`trainer` is the construction of the trainer, `settings` that of its arguments, where there are such."""

    call: ast.Call
    kind: Kind
    num_epochs: Any
    trainer: ast.Call | None = None
    settings: ast.Call | None = None


def fits(program: Valued) -> list[Fit]:
    """Every such call, in order."""
    return list(_found(program))


def _found(program: Valued) -> Iterator[Fit]:
    for call in program.calls_to("fit", "fit_generator", "train", *_FASTAI):
        if not isinstance(call.func, ast.Attribute):
            continue
        method = call.func.attr
        if method in ("fit", "fit_generator"):
            yield _fit(program, call)
        elif method == "train":
            trainer = _construction(program, call.func.value)
            if trainer is not None and _is_hf(program, trainer):
                yield _hf(program, call, trainer)
        elif method in _FASTAI:
            yield Fit(
                call, "fastai", _number(program, program.argument(call, "epochs" if method == "fine_tune" else "n_epoch", 0))
            )


def _fit(program: Valued, call: ast.Call) -> Fit:
    trainer = _construction(program, program.receiver(call))
    if trainer is not None and program.method(trainer) == "Trainer" and not _is_hf(program, trainer):
        given = program.argument(trainer, "max_epochs")
        return Fit(call, "lightning", _number(program, given), trainer)
    made = program.made_by(program.receiver(call))
    if made.startswith("fastai") or made.endswith("Learner"):
        return Fit(call, "fastai", _number(program, program.argument(call, "n_epoch", 0)))
    if _is_keras(program, call, made):
        given = program.argument(call, "epochs", 3) or program.argument(call, "nb_epoch")
        return Fit(call, "keras", _number(program, given) if given is not None else 1)
    return Fit(call, "sklearn", None)


def _is_keras(program: Valued, call: ast.Call, made: str) -> bool:
    if call.func.attr == "fit_generator" if isinstance(call.func, ast.Attribute) else False:
        return True
    if made.startswith("sklearn") or made.endswith("ImageDataGenerator"):
        return False
    if any(keyword.arg in _KERAS_OPTIONS for keyword in call.keywords):
        return True
    return made.startswith("tf.keras")


def _construction(program: Valued, node: ast.AST | None) -> ast.Call | None:
    if isinstance(node, ast.Call):
        return node
    given = program.latest(node) if node is not None else None
    return given if isinstance(given, ast.Call) else None


def _is_hf(program: Valued, trainer: ast.Call) -> bool:
    name = program.name(trainer)
    if name.startswith("transformers.") or name.rpartition(".")[2] in _TRAINERS - {"Trainer"}:
        return True
    owner = program.classes.get(name)
    if owner is not None:
        return any(base.startswith("transformers.") for base in program.bases(owner))
    return name.endswith("Trainer") and program.keyword(trainer, "train_dataset") is not None


def _hf(program: Valued, call: ast.Call, trainer: ast.Call) -> Fit:
    given = program.argument(trainer, "args", 1)
    settings = _construction(program, given)
    if settings is None:
        return Fit(call, "hf", 3, trainer)
    epochs = program.argument(settings, "num_train_epochs")
    return Fit(call, "hf", _number(program, epochs) if epochs is not None else 3, trainer, settings)


def _number(program: Valued, node: ast.AST | None) -> Any:
    found = program.value(node)
    return found if isinstance(found, int | float) else UNKNOWN
