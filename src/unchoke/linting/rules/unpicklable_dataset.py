"""A data set that cannot be sent to worker processes.

Where worker processes are started afresh (macOS, Windows, Linux from Python 3.14 on) the data set, its transforms,
`collate_fn` and `worker_init_fn` are pickled and sent to each of them. A lambda, an open file (h5py, rasterio, lmdb, zip,
sqlite) or a lock cannot be pickled, so the loader stops with "Can't pickle …" as soon as `num_workers` is above 0. On Linux
before, workers inherit an open handle and share its file position: reads of two workers then mix.

**Write instead.** A function with a name in place of the lambda (with `functools.partial` for settings), and a file opened
when the first sample is asked for:

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")

**When this is fine.** With `num_workers=0` for good, or where the class leaves the handle out in `__getstate__`. Where no loader
of the file surely has workers it is a nit. tf.data and Keras' Lambda layers are not pickled this way and are not reported.
`unchoke check` tries a loader's workers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from unchoke.code.node_index import FunctionNode, arguments, flat, is_none, parameters, targets_of
from unchoke.code.program import Program
from unchoke.linting.questions import tests_round, torch_loaders
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="process",
    stage="load",
    title="the data set cannot be sent to worker processes",
    kind="risk",
    command="unchoke check",
    devices=("macOS", "Windows", "Linux from Python 3.14"),
    eased_by=("no-workers",),
)
_HANDLES = frozenset(
    {"open", "io.open", "gzip.open", "h5py.File", "rasterio.open", "lmdb.open", "lmdb.Environment", "sqlite3.connect",
     "zipfile.ZipFile", "tarfile.open", "osgeo.gdal.Open", "gdal.Open", "openslide.OpenSlide", "openslide.open_slide",
     "netCDF4.Dataset", "tifffile.TiffFile", "tables.open_file", "cv2.VideoCapture", "os.fdopen", "bz2.open"}
)  # fmt: skip
_LOCKS = frozenset(
    {"threading.Lock", "threading.RLock", "threading.Condition", "threading.Semaphore", "threading.Event", "threading.local"}
)
_OWN_PICKLING = frozenset({"__getstate__", "__reduce__", "__reduce_ex__"})
_SET_OPTIONS = ("transform", "target_transform", "transforms", "loader")


def check(program: Program) -> Iterator[Hit]:
    loaders = torch_loaders(program)
    place = "in a .py file that the notebook imports" if program.is_notebook else "at module level"
    alone = not any(loader.has_workers for loader in loaders)  # nothing is surely sent anywhere
    for owner in program.facts.datasets:
        if not _OWN_PICKLING & program.methods(owner).keys():
            yield from (replace(hit, kind="nit") if alone else hit for hit in _kept(program, owner))
    known = any(program.name(call).startswith("torchvision.datasets.") for call in program.nodes(ast.Call))
    for call in program.nodes(ast.Call) if known or loaders or program.facts.datasets else ():
        for given in _places(program, call):
            node = program.latest(given) if isinstance(given, ast.Name) else given
            if isinstance(node, ast.Lambda):
                shown, taker = program.text(node)[:60], program.text(call.func)
                yield Hit(
                    node,
                    f"`{shown}` is given to `{taker}`: a lambda cannot be pickled, so worker processes cannot start",
                    {"lambda": shown, "given to": taker},
                    f"write it as a function with a name {place} and give that",
                    kind="nit" if alone or tests_round(program, node) else None,
                    fact="lambda",
                )


def _kept(program: Program, owner: ast.ClassDef) -> Iterator[Hit]:
    """Handles, locks and lambdas put on `self` when the data set is made."""
    init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None:
        return
    for function in (init, *program.in_order(program.reach(init) & set(program.methods(owner).values()))):
        for node in program.within(function, ast.Assign, ast.AnnAssign):
            for name in map(program.written, targets_of(node)):
                held = _held(program, node.value) if name.startswith("self.") else ""
                if held and not program.facts.is_lazy(node) and not _is_let_go(program, init, name):
                    what = "a lambda" if held == "lambda" else f"what `{held}` made"
                    yield Hit(
                        node,
                        f"`{name}` of `{owner.name}` holds {what}, which cannot be sent to worker processes",
                        {"class": owner.name, "attribute": name, "holds": held},
                        _fix(name, held),
                    )


def _fix(name: str, held: str) -> str:
    if held == "lambda":
        return f"write the lambda as a function with a name and keep that in `{name}`"
    if held in _LOCKS:
        return (
            f"make the lock where it is used, or leave `{name}` out in `__getstate__`; each worker has a copy of its own anyway"
        )
    return f"keep the path, set `{name} = None` here and open it in `__getitem__` when `{name} is None`"


def _held(program: Program, node: ast.AST | None, depth: int = 0) -> str:
    """What cannot be pickled in this value: the maker's name, or `lambda`."""
    if isinstance(node, ast.Lambda):
        return "lambda"
    if isinstance(node, ast.Call):
        name = program.name(node)
        return name if name in _HANDLES | _LOCKS else ""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):  # file["images"] is as open as the file
        return _held(program, node.value) if isinstance(program.value(node.slice), str) else ""
    if isinstance(node, ast.IfExp | ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.DictComp):
        parts = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        return next(filter(None, (_held(program, part, depth) for part in parts)), "")
    given = program.latest(node) if isinstance(node, ast.Name) and depth < 3 else None
    if given is None or isinstance(program.parent(given), ast.withitem) or program.enclosing_function(given) is None:
        return ""
    return _held(program, given, depth + 1)


def _is_let_go(program: Program, init: FunctionNode, name: str) -> bool:
    """Closed or set to None again before `__init__` ends."""
    closed = (program.receiver(call) for call in program.within(init, ast.Call) if program.method(call) == "close")
    dropped = (target for node in program.within(init, ast.Delete) for target in node.targets)
    given = [node for node in program.within(init, ast.Assign) if name in map(program.written, node.targets)]
    return name in map(program.written, (*closed, *dropped)) or (bool(given) and is_none(given[-1].value))


def _places(program: Program, call: ast.Call) -> Iterator[ast.expr | None]:
    """What a loader, a data set or a transform is given and workers will need."""
    name, method = program.name(call), program.method(call)
    if method == "DataLoader":
        yield from (program.argument(call, "collate_fn", 6), program.argument(call, "worker_init_fn"))
    elif name.startswith("torchvision.datasets."):
        yield from (program.argument(call, option) for option in _SET_OPTIONS)
    elif method == "Lambda" and not name.startswith(("tf.", "torch.nn", "?.")):
        yield from arguments(call) if not _is_only_called(program, call) else ()
    elif method == "Compose" and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
        yield from call.args[0].elts if not _is_only_called(program, call) else ()
    else:
        yield from _own_set(program, call)


def _is_only_called(program: Program, call: ast.Call) -> bool:
    """A transform for looking at pictures: called by its name and given to nobody."""
    names = [name for name in program.targets(call) if "." not in name]
    uses = [use for name in names for use in program.names(name) if isinstance(use.ctx, ast.Load)]
    return bool(uses) and all(isinstance(above := program.parent(use), ast.Call) and above.func is use for use in uses)


def _own_set(program: Program, call: ast.Call) -> Iterator[ast.expr | None]:
    """Arguments of an own data set class that it keeps: `self.transform = transform`, also among others or with `or None`."""
    owner = program.classes.get(program.written(call.func))
    init = program.methods(owner).get("__init__") if owner in program.facts.datasets and owner is not None else None
    if init is None or owner is None or _OWN_PICKLING & program.methods(owner).keys():
        return
    for node in program.within(init, ast.Assign, ast.AnnAssign):
        values = [node.value, *getattr(node.value, "elts", ()), *getattr(node.value, "values", ())]
        if any(program.written(part).startswith("self.") for target in targets_of(node) for part in flat(target)):
            names = [value.id for value in values if isinstance(value, ast.Name)]
            yield from (program.argument_for(call, init, name) for name in names if name in parameters(init))
