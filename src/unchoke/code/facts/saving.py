"""Calls that put something on disk: weights, arrays, tables; and where to. Shared by the rules about resuming.

In comes a call, out goes what it writes. Does not follow calls: ask for each call of a run's functions.
"""

from __future__ import annotations

import ast
import re

from unchoke.code.program import Program

# Position of the path or file among the arguments, and its keyword.
WRITERS: dict[str, tuple[int, str]] = {
    "torch.save": (1, "f"), "pickle.dump": (1, "file"), "dill.dump": (1, "file"), "cloudpickle.dump": (1, "file"),
    "joblib.dump": (1, "filename"), "json.dump": (1, "fp"), "numpy.save": (0, "file"), "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"), "safetensors.torch.save_file": (1, "filename"), "torch.jit.save": (1, "f"),
}  # fmt: skip
_WEIGHTS = frozenset(
    {"torch.save", "pickle.dump", "dill.dump", "cloudpickle.dump", "joblib.dump", "safetensors.torch.save_file", "torch.jit.save"}
)
_MODEL_WORDS = re.compile(
    r"(?:^|[._])(?:model|net|network|generator|discriminator|critic|actor|encoder|decoder|autoencoder|gan|unet|classifier|learner)s?\w*$|^[gd]en$",
    re.IGNORECASE,
)
_MODEL_FILES = (".h5", ".keras", ".hdf5", ".tf", ".ckpt")
_SAVES = re.compile(
    r"save|checkpoint|ckpt|snapshot|early_?stop|backup|store_(?:model|state|weights)|dump_(?:model|state|weights)", re.IGNORECASE
)
_SAVES_ELSE = re.compile(
    r"fig|image|img|plot|pred|result|metric|hist|log|txt|text|sample|mask|grid|video|anim|gradient_|saved|csv|json|hyperparam|imsave",
    re.IGNORECASE,
)
_PICTURES = re.compile(
    r"(?:^|[._])(?:img|image|fig|figure|anim|animation|writer|plot|frame|canvas|pil|thumb|sample)s?\w*$", re.IGNORECASE
)
_ONLY_NUMBERS = re.compile(r"^\W*(?:\w*(?:hist|loss|metric|log|pred|acc|score)\w*)\W*$", re.IGNORECASE)
_PARAMETERS = re.compile(r"weight|param|state|model|net\b", re.IGNORECASE)


def is_weights_save(program: Program, call: ast.Call) -> bool:
    """Does this call save a model or a training's state, as far as its name tells?"""
    name = program.name(call)
    if name in _WEIGHTS:
        return not (call.args and _ONLY_NUMBERS.match(program.text(call.args[0])))
    if name.startswith("numpy.save"):
        return any(_PARAMETERS.search(program.text(item)) for item in call.args)
    if (
        program.function_of(call) is not None
        or name in WRITERS
        or name.startswith(("torch.utils.checkpoint", "os.", "matplotlib."))
    ):
        return False  # a function of this file is looked into instead
    return _is_named_save(program, call)


def _is_named_save(program: Program, call: ast.Call) -> bool:
    """`manager.save()`, `model.save_weights(…)`, `early_stopping(loss, model)`, `save_checkpoint(…)` of another file."""
    method = program.method(call) or program.text(call.func)
    receiver = program.receiver(call)
    written = program.written(receiver)
    if _SAVES.search(method):
        if (
            _SAVES_ELSE.search(method)
            or _PICTURES.search(written)
            or program.made_by(receiver).startswith(("PIL.", "matplotlib."))
        ):
            return False
        return not (method.startswith(("load", "find", "get", "is_", "has_", "latest", "restore")))
    return method in ("step", "update", "write", "maybe_save") and bool(_SAVES.search(written))


def is_model(program: Program, node: ast.AST | None) -> bool:
    """Is this a network that has `save`: by how it was made, or by its name?"""
    if node is None:
        return False
    made = program.made_by(node)
    if made.startswith(("tf.train.", "PIL.", "matplotlib.")):
        return False
    if made.startswith(("tf.keras.Model", "tf.keras.Sequential", "tf.keras.models.", "tf.keras.applications.")):
        return True
    return program.facts.is_network(node) or bool(_MODEL_WORDS.search(program.written(node)))


def written_path(program: Program, call: ast.Call) -> ast.expr | None:
    """The path or file that this call writes to; None if it is no saving call."""
    name = program.name(call)
    if name in WRITERS:
        position, keyword = WRITERS[name]
        return program.argument(call, keyword, position)
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("save", "save_weights") or program.function_of(call) is not None:
        return None
    path = program.argument(call, "filepath", 0)
    if path is None or program.made_by(func.value).startswith("tf.train."):
        return None
    known = func.attr == "save_weights" or is_model(program, func.value) or str(program.value(path)).endswith(_MODEL_FILES)
    return path if known else None
