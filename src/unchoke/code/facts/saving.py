"""What a training puts on disk: weights, arrays and tables, and where to; and whether it writes its numbers down while it runs.

In comes a call, out goes what it writes (ask for each call of a run's functions); in comes a run over epochs, out goes whether
its history reaches a file or a tracking service. What cannot be told (a logger of another file) counts as written.
"""

from __future__ import annotations

import ast
import re

from unchoke.code.facts.epochs import EpochRun, nodes_of
from unchoke.code.node_index import arguments
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
_WRITING = frozenset(
    {"writerow", "writerows", "write", "writelines", "write_text", "to_csv", "to_json", "to_parquet", "to_pickle", "to_excel",
     "to_sql", "log_metric", "log_metrics", "log_scalar", "log_dict", "add_scalar", "add_scalars", "report_scalar", "track",
     "savetxt", "writeheader"}
)  # fmt: skip
_TRACKERS = ("wandb.", "mlflow.", "neptune.", "comet_ml.", "clearml.", "aim.", "dvclive.", "tf.summary.", "trackio.", "swanlab.")
_RECORDING = (".autolog", "comet_ml.Experiment", "clearml.Task.init", "comet_ml.start")
_SCREEN = re.compile(r"(?:^|\.)(?:tqdm|stdout|stderr|st|pbar|bar|progress|console|tq)$", re.IGNORECASE)
_NOT_LOGS = ("torch.", "numpy.", "math.", "tf.math", "tf.keras", "jax.")
_LOGGER = re.compile(r"(?:^|[._])(?:log|logger|logging|recorder|tracker|writer|tb)\w*$", re.IGNORECASE)
_OWN_LOG = re.compile(
    r"^(?:log|save|write|dump|record|report|track)(?:_|$)(?!.*(?:model|checkpoint|ckpt|weights|state|softmax|image|fig|prob|"
    r"pretrained|sample|pred|video|plot|graph|grid|audio))",
    re.IGNORECASE,
)
_LEVELS = frozenset({"info", "debug", "warning", "critical", "success"})


def is_weights_save(program: Program, call: ast.Call) -> bool:
    """Does this call save a model or a training's state, as far as its name tells?"""
    name = program.name(call)
    if name in _WEIGHTS:
        return not (call.args and _ONLY_NUMBERS.match(program.text(call.args[0])))
    if name.startswith("numpy.save"):
        return any(_PARAMETERS.search(program.text(item)) for item in call.args)
    if name in WRITERS or name.startswith(("torch.utils.checkpoint", "os.", "matplotlib.")):
        return False
    return program.function_of(call) is None and _is_named_save(program, call)  # a function of this file is looked into instead


def _is_named_save(program: Program, call: ast.Call) -> bool:
    """`manager.save()`, `model.save_weights(…)`, `early_stopping(loss, model)`, `save_checkpoint(…)` of another file."""
    method = program.method(call) or program.text(call.func)
    receiver = program.receiver(call)
    written = program.written(receiver)
    if _SAVES.search(method):
        picture = _PICTURES.search(written) or program.made_by(receiver).startswith(("PIL.", "matplotlib."))
        asks = method.startswith(("load", "find", "get", "is_", "has_", "latest", "restore"))
        return not (_SAVES_ELSE.search(method) or picture or asks)
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


def has_automatic_log(program: Program) -> bool:
    """A service that records every fit by itself."""
    return any(name.endswith(_RECORDING) for name in program.calls_by_name)


def records_history(program: Program, run: EpochRun, names: set[str]) -> bool:
    """Does something in the loop write down numbers, or the lists called `names`?"""
    drawn = saved = False
    for call in nodes_of(program, run, ast.Call):
        if is_record(program, call) or _writes_the_list(program, call, names):
            return True
        drawn = drawn or (program.method(call) in ("plot", "semilogy") and _mentions(program, call, names))
        saved = saved or program.method(call) == "savefig"
    return drawn and saved


def is_record(program: Program, node: ast.AST) -> bool:
    """Does this call write numbers to a file or a tracking service?"""
    if not isinstance(node, ast.Call):
        return False
    name, method = program.name(node), program.method(node)
    if name.startswith(_TRACKERS) or name == "json.dump":
        return True
    if name == "print":
        return any(keyword.arg == "file" and not _SCREEN.search(program.written(keyword.value)) for keyword in node.keywords)
    receiver = program.receiver(node)
    written = program.written(receiver)
    if method in _WRITING and isinstance(node.func, ast.Attribute):
        return not _SCREEN.search(written) and not name.startswith(("tqdm.", "sys."))
    if method == "log" and node.args and not name.startswith(_NOT_LOGS):
        return isinstance(node.args[0], ast.Dict | ast.JoinedStr) or isinstance(program.value(node.args[0]), str)
    if method in _LEVELS and receiver is not None:
        return _logs_to_file(program, receiver, written)
    return _is_own_log(program, node, name)


def _is_own_log(program: Program, call: ast.Call, name: str) -> bool:
    """`log_metrics(…)`, `save_history(…)` of another file."""
    if program.function_of(call) is not None or name in WRITERS or name.startswith(_NOT_LOGS):
        return False
    if not arguments(call) or name.endswith((".save", ".log")):
        return False
    return bool(_OWN_LOG.search(name.rpartition(".")[2]))


def _logs_to_file(program: Program, receiver: ast.expr, written: str) -> bool:
    """Python's logging goes to the screen unless the file gives it a file; a logger of elsewhere may."""
    made = program.made_by(receiver)
    if made not in ("logging.getLogger", "") or (not made and program.name(receiver) != "logging" and _LOGGER.search(written)):
        return True
    calls = list(program.nodes(ast.Call))
    handlers = any(program.method(call).endswith("FileHandler") for call in calls)
    return handlers or any(program.name(call) == "logging.basicConfig" and program.keyword(call, "filename") for call in calls)


def _writes_the_list(program: Program, call: ast.Call, names: set[str]) -> bool:
    """`torch.save({…, "history": history}, …)`, also through a function of this file that saves."""
    function = program.function_of(call)
    saves = program.name(call) in WRITERS
    if function is not None:
        parts: list[ast.AST] = [function, *program.reach(function)]
        saves = any(program.name(inner) in WRITERS for inner in program.calls_in(parts))
    elif not saves:
        saves = "save" in program.method(call)
    return saves and _mentions(program, call, names)


def _mentions(program: Program, call: ast.Call, names: set[str]) -> bool:
    """Is one of them among what a call is given, or in a dict that is?"""
    parts = [part for node in arguments(call) for part in program.within(node, ast.Name, ast.Attribute)]
    given = [value for part in parts if isinstance(part, ast.Name) for value in program.assigned(part.id, part)]
    held = (value for value in given if isinstance(value, ast.Dict))
    parts += [part for value in held for part in program.within(value, ast.Name, ast.Attribute)]
    return any(program.written(part) in names for part in parts)
