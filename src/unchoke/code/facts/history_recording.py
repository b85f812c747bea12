"""Does a training write its numbers down while it runs: to a file, TensorBoard, a tracking service?

In comes a run over epochs, out goes yes or no. What cannot be told (a logger of another file) counts as yes.
"""

from __future__ import annotations

import ast
import re

from unchoke.code.facts.epochs import Run, nodes_of
from unchoke.code.facts.saving import WRITERS
from unchoke.code.program import Program

_WRITING = frozenset(
    {"writerow", "writerows", "write", "writelines", "write_text", "to_csv", "to_json", "to_parquet", "to_pickle", "to_excel",
     "to_sql",
     "log_metric", "log_metrics", "log_scalar", "log_dict", "add_scalar", "add_scalars", "report_scalar", "track",
     "savetxt", "writeheader"}
)  # fmt: skip
_TRACKERS = ("wandb.", "mlflow.", "neptune.", "comet_ml.", "clearml.", "aim.", "dvclive.", "tf.summary.", "trackio.", "swanlab.")
_SCREEN = re.compile(r"(?:^|\.)(?:tqdm|stdout|stderr|st|pbar|bar|progress|console|tq)$", re.IGNORECASE)
_NOT_LOGS = ("torch.", "numpy.", "math.", "tf.math", "tf.keras", "jax.")
_LOGGER = re.compile(r"(?:^|[._])(?:log|logger|logging|recorder|tracker|writer|tb)\w*$", re.IGNORECASE)
_OWN_LOG = re.compile(
    r"^(?:log|save|write|dump|record|report|track)(?:_|$)(?!.*(?:model|checkpoint|ckpt|weights|state|softmax|image|fig|prob|"
    r"pretrained|sample|pred|video|plot|graph|grid|audio))",
    re.IGNORECASE,
)
_LEVELS = frozenset({"info", "debug", "warning", "critical", "success"})


def has_automatic_log(program: Program) -> bool:
    """A service that records every fit by itself."""
    for call in program.nodes(ast.Call):
        name = program.name(call)
        if name.endswith(".autolog") or name in ("comet_ml.Experiment", "clearml.Task.init", "comet_ml.start"):
            return True
    return False


def records_history(program: Program, run: Run, names: set[str]) -> bool:
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
    if method == "append" and _LOGGER.search(written) and not program.assigned(written, node):
        return True
    return _is_own_log(program, node, name)


def _is_own_log(program: Program, call: ast.Call, name: str) -> bool:
    """`log_metrics(…)`, `save_history(…)` of another file."""
    if program.function_of(call) is not None or name in WRITERS or name.startswith(_NOT_LOGS):
        return False
    return (
        bool(call.args or call.keywords)
        and bool(_OWN_LOG.search(name.rpartition(".")[2]))
        and not name.endswith((".save", ".log"))
    )


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
        saves = any(program.name(inner) in WRITERS for part in parts for inner in program.within(part, ast.Call))
    elif not saves:
        saves = "save" in program.method(call)
    return saves and _mentions(program, call, names)


def _mentions(program: Program, call: ast.Call, names: set[str], depth: int = 0) -> bool:
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    for node in given:
        for part in program.within(node, ast.Name, ast.Attribute):
            if program.written(part) in names:
                return True
            for value in program.assigned(program.written(part), part) if isinstance(part, ast.Name) else ():
                if isinstance(value, ast.Dict) and any(
                    program.written(item) in names for item in program.within(value, ast.Name, ast.Attribute)
                ):
                    return True
    return False
