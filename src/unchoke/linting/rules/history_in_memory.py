"""The record of a training kept only in memory.

Losses and metrics that are appended to a list, or that Keras returns as a History object, exist only until the process ends.
A kill in epoch 30 of 40 loses the curves although the checkpoints are there, and so does a restarted notebook kernel.

**Write instead.** One line an epoch, on disk before the next epoch begins:

    with open("log.csv", "a", newline="") as file:
        csv.writer(file).writerow([epoch, train_loss, val_loss])

Keras: `keras.callbacks.CSVLogger("log.csv", append=True)` (or TensorBoard) among the callbacks. A plot can read the file.
`unchoke train` keeps every run's history in its experiment; `unchoke runs` shows them side by side.

**When this is fine.** A look at a few epochs that nobody will ask about again. Fewer than five epochs are not reported, nor
is a run that keeps nothing or only prints. Writing the list after the loop does not help: a kill never reaches that line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.facts.epochs import EpochRun, callbacks_of, epoch_runs, is_long, nodes_of, one_does
from unchoke.code.facts.loops import Fit
from unchoke.code.facts.saving import has_automatic_log, is_record, records_history
from unchoke.code.node_index import names_in
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, at_method

RULE = Rule(
    group="resume",
    stage="checkpoint",
    title="losses and metrics kept only in memory",
    kind="nit",
    gain="the curves of a run that was killed",
    command="unchoke train",
)
_LOGGING = frozenset(
    {"CSVLogger", "TensorBoard", "WandbCallback", "WandbMetricsLogger", "NeptuneCallback", "MlflowCallback", "MLflowCallback",
     "RemoteMonitor", "DVCLiveCallback", "CometCallback", "ClearMLCallback", "JSONLogger"}
)  # fmt: skip
_METRIC = re.compile(
    r"loss|acc|metric|score|hist|err|f1|auc|iou|dice|mae|mse|rmse|(?<![a-z])r2|psnr|ssim|prec|recall|(?<![a-z])log|curve|perplex|ppl|kappa|"
    r"record|stat|result|reward|train|val|epoch",
    re.IGNORECASE,
)
_NOT_METRIC = re.compile(
    r"state_dict|deepcopy|\bpath|\.pth?\b|snapshot|checkpoint|get_weights|param_groups|get_last_lr", re.IGNORECASE
)
_NOT_HISTORY = re.compile(
    r"(?:^|[._])(?:preds?|outputs?|targets?|labels?|images?|paths?|files?|snapshots?|checkpoints?|models?|samples?|lrs?)$",
    re.IGNORECASE,
)
_CONTAINERS = frozenset(
    {"list", "dict", "collections.defaultdict", "collections.OrderedDict", "collections.deque", "numpy.zeros", "numpy.empty",
     "numpy.full", "numpy.array", "torch.zeros", "torch.empty", "pandas.DataFrame", "types.SimpleNamespace"}
)  # fmt: skip


def check(program: Program) -> Iterator[Hit]:
    if has_automatic_log(program):
        return
    for run in epoch_runs(program):
        yield from _in_loop(program, run)
    for fit in program.facts.fits:
        if fit.kind == "keras":
            yield from _of_fit(program, fit)


def _in_loop(program: Program, run: EpochRun) -> Iterator[Hit]:
    kept = list(_kept(program, run)) if is_long(run.num_epochs) else []
    names = list(dict.fromkeys(name for _, name in kept))
    if kept and not records_history(program, run, set(names)):
        first, listed = kept[0][0], ", ".join(f"`{name}`" for name in names[:4])
        yield Hit(
            first,
            f"the numbers of {int(run.num_epochs)} epochs are only kept in {listed}: nothing inside the loop writes them down",
            {"epochs": int(run.num_epochs), "kept in": names},
            f'append a line to a file in each epoch, `with open("log.csv", "a") as file: csv.writer(file).writerow([…])`, '
            f"beside line {program.line(first)}",
        )


def _kept(program: Program, run: EpochRun) -> Iterator[tuple[ast.AST, str]]:
    """What is added in each epoch to something that was made before the loop, with its name."""
    for node in nodes_of(program, run, ast.Call, ast.Assign, ast.AugAssign):
        holder, value = _addition(program, run, node)
        base = _base(holder)
        if holder is None or value is None or base is None:
            continue
        name, said = program.written(base), program.text(value)
        is_metric = _METRIC.search(f"{program.text(holder)} {said}") and not _NOT_METRIC.search(said)
        if not name or not is_metric or _NOT_HISTORY.search(name) or not _is_made_before(program, run, base):
            continue
        each_batch = run.batches not in (None, run.node) and run.batches is not None and program.index.holds(run.batches, node)
        if not each_batch or _is_used_after(program, run, name):
            yield node, name


def _is_used_after(program: Program, run: EpochRun, name: str) -> bool:
    """Numbers of every batch are a history if they are looked at later; else they only serve a mean."""
    uses = (node for node in program.nodes(ast.Name, ast.Attribute) if program.written(node) == name)
    last = program.index.stop(run.node)
    return any(program.index.number[node] > last and isinstance(node.ctx, ast.Load) for node in uses)


def _addition(program: Program, run: EpochRun, node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The holder and what is added to it: `x.append(v)`, `x += [v]`, `x[epoch] = v`, `x = x + [v]`, `x = np.append(x, v)`."""
    if isinstance(node, ast.Call) and program.method(node) == "append" and len(node.args) == 1:
        return program.receiver(node), node.args[0]
    if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List):
        return node.target, node.value
    if not isinstance(node, ast.Assign):
        return None, None
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Subscript):
        grows = isinstance(run.node, ast.For) and not names_in(run.node.target).isdisjoint(names_in(target.slice))
    else:
        joins = isinstance(value, ast.BinOp) and isinstance(value.right, ast.List)
        names = {program.written(part) for part in program.within(value, ast.Name, ast.Attribute)}
        grows = (joins or program.name(value) in ("numpy.append", "pandas.concat")) and program.written(target) in names
    return (target, value) if grows else (None, None)


def _base(node: ast.expr | None) -> ast.expr | None:
    """`history` of `history["loss"]`, `history.setdefault("loss", [])`, `frame.loc[epoch]`."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("setdefault", "get"):
            node = node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("loc", "at", "iloc")):
            node = node.value
        else:
            return node if isinstance(node, ast.Name | ast.Attribute) else None


def _is_made_before(program: Program, run: EpochRun, base: ast.expr) -> bool:
    """Is it a list or dict from outside the loop, also one that callers hand over, so that it grows from epoch to epoch?"""
    given = (*program.assigned(program.written(base), base), *program.choices(base).nodes)
    written = ast.List | ast.Dict | ast.ListComp | ast.DictComp
    made = [value for value in given if isinstance(value, written) or program.name(value) in _CONTAINERS]
    again = any(_is_in(program, run, value) and program.is_before(value, base) for value in made)
    return not again and any(not _is_in(program, run, value) for value in made)


def _is_in(program: Program, run: EpochRun, node: ast.AST) -> bool:
    function = program.enclosing_function(node)
    called = function in run.functions and function is not None and function.name != "__init__"
    return called or program.in_body(run.node, program.index.number[node])


def _of_fit(program: Program, fit: Fit) -> Iterator[Hit]:
    count = fit.num_epochs
    if not is_long(count) or not _is_kept(program, fit.call):
        return
    given = callbacks_of(program, fit.call)
    if given is None or one_does(program, given, _LOGGING, is_record) is not False:
        return
    name = next(iter(program.targets(fit.call)), "the History object")
    yield Hit(
        at_method(program, fit.call),
        f"the losses of {int(count)} epochs are only kept in `{name}`: a kill before the end loses them",
        {"epochs": int(count), "callbacks": [program.text(item)[:60] for item in given]},
        'add `keras.callbacks.CSVLogger("log.csv", append=True)` to `callbacks`; the plot can read that file',
    )


def _is_kept(program: Program, call: ast.Call) -> bool:
    """Is what `fit` gives back put somewhere?"""
    statement = program.statement(call)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return program.targets(call) != ["_"]
    return isinstance(statement, ast.Expr) and program.method(statement.value) == "append"
