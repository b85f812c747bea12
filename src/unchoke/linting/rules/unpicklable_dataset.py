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

**When this is fine.** With `num_workers=0` for good, or where the class leaves the handle out in `__getstate__`. tf.data and
Keras' Lambda layers are not pickled this way and are not reported. `unchoke check` tries a loader's workers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from unchoke.code.node_index import FunctionNode, is_none, parameters, targets_of
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="unpicklable-dataset",
    group="process",
    stage="load",
    title="the data set cannot be sent to worker processes",
    kind="risk",
    command="unchoke check",
    devices=("macOS", "Windows", "Linux from Python 3.14"),
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
_LOADER_OPTIONS = ("collate_fn", "worker_init_fn")
_SET_OPTIONS = ("transform", "target_transform", "transforms", "loader")


def check(program: Program) -> Iterator[Hit]:
    alone = _has_no_workers(program)
    for owner in program.facts.datasets:
        if not _OWN_PICKLING & program.methods(owner).keys():
            yield from (replace(hit, kind="nit") if alone else hit for hit in _kept(program, owner))
    for call in program.nodes(ast.Call) if _loads(program) else ():
        for node, taker in _handed(program, call):
            shown = program.text(node)[:60]
            yield Hit(
                node,
                f"`{shown}` is given to `{taker}`: a lambda cannot be pickled, so worker processes cannot start",
                {"lambda": shown, "given to": taker},
                "write it as a function with a name at module level and give that",
                kind="nit" if alone else None,
            )


def _has_no_workers(program: Program) -> bool:
    """Is no loader of this file given workers, so that there is nothing to send anywhere yet?"""
    loaders = [loader for loader in program.facts.loaders if loader.framework == "torch"]
    return bool(loaders) and all(loader.has_workers is False for loader in loaders)


def _loads(program: Program) -> bool:
    """Is there a data set or a loader of PyTorch in this file at all?"""
    if program.facts.datasets or any(loader.framework == "torch" for loader in program.facts.loaders):
        return True
    return any(program.name(call).startswith("torchvision.datasets.") for call in program.nodes(ast.Call))


def _kept(program: Program, owner: ast.ClassDef) -> Iterator[Hit]:
    """Handles, locks and lambdas put on `self` when the data set is made."""
    init = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None:
        return
    methods = set(program.methods(owner).values())
    for function in (init, *program.in_order(program.reach(init) & methods)):
        for node in program.within(function, ast.Assign, ast.AnnAssign):
            for target in targets_of(node):
                name = program.written(target)
                held = _held(program, node.value, 0) if name.startswith("self.") and node.value is not None else ""
                if held and not program.facts.is_lazy(node) and not _is_let_go(program, init, name):
                    yield _kept_hit(node, owner, name, held)


def _kept_hit(node: ast.AST, owner: ast.ClassDef, name: str, held: str) -> Hit:
    if held == "lambda":
        fix = f"write the lambda as a function with a name and keep that in `{name}`"
    elif held in _LOCKS:
        fix = f"make the lock where it is used, or leave `{name}` out in `__getstate__`; each worker has a copy of its own anyway"
    else:
        fix = f"keep the path, set `{name} = None` here and open it in `__getitem__` when `{name} is None`"
    what = "a lambda" if held == "lambda" else f"what `{held}` made"
    return Hit(
        node,
        f"`{name}` of `{owner.name}` holds {what}, which cannot be sent to worker processes",
        {"class": owner.name, "attribute": name, "holds": held},
        fix,
    )


def _held(program: Program, node: ast.AST, depth: int) -> str:
    """What cannot be pickled in this value: the maker's name, or `lambda`."""
    if isinstance(node, ast.Lambda):
        return "lambda"
    if isinstance(node, ast.Call):
        name = program.name(node)
        return name if name in _HANDLES | _LOCKS else ""
    if isinstance(node, ast.Subscript):  # file["images"] is as open as the file
        return (
            _held(program, node.value, depth)
            if isinstance(program.value(node.slice), str) and isinstance(node.value, ast.Call)
            else ""
        )
    if isinstance(node, ast.IfExp):
        return _held(program, node.body, depth) or _held(program, node.orelse, depth)
    if isinstance(node, ast.List | ast.Tuple):
        return next(filter(None, (_held(program, item, depth) for item in node.elts)), "")
    if isinstance(node, ast.Dict):
        return next(filter(None, (_held(program, item, depth) for item in node.values)), "")
    if isinstance(node, ast.ListComp | ast.DictComp):
        return _held(program, node.elt if isinstance(node, ast.ListComp) else node.value, depth)
    if isinstance(node, ast.Name) and depth < 3:
        given = program.latest(node)
        closed = given is not None and isinstance(program.parent(given), ast.withitem)
        return (
            _held(program, given, depth + 1)
            if given is not None and not closed and program.enclosing_function(given) is not None
            else ""
        )
    return ""


def _is_let_go(program: Program, init: FunctionNode, name: str) -> bool:
    """Closed or set to None again before `__init__` ends."""
    for call in program.within(init, ast.Call):
        if program.method(call) == "close" and program.written(program.receiver(call)) == name:
            return True
    values = [
        node for node in program.within(init, ast.Assign) if any(program.written(target) == name for target in node.targets)
    ]
    last = values[-1].value if values else None
    dropped = any(program.written(target) == name for node in program.within(init, ast.Delete) for target in node.targets)
    return dropped or is_none(last)


def _handed(program: Program, call: ast.Call) -> Iterator[tuple[ast.Lambda, str]]:
    """Lambdas given to a loader, a data set or a transform, directly or through a variable."""
    for node in _places(program, call):
        found = node if isinstance(node, ast.Lambda) else program.latest(node) if isinstance(node, ast.Name) else None
        if isinstance(found, ast.Lambda):
            yield found, program.text(call.func)


def _places(program: Program, call: ast.Call) -> Iterator[ast.expr]:
    name, method = program.name(call), program.method(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    if method == "DataLoader":
        yield from (keywords[option] for option in _LOADER_OPTIONS if option in keywords)
        collate = program.argument(call, "collate_fn", 6)
        if collate is not None and "collate_fn" not in keywords:
            yield collate
    elif method == "Lambda" and not name.startswith(("tf.", "torch.nn", "?.")):
        yield from (*call.args, *keywords.values()) if not _is_only_called(program, call) else ()
    elif method == "Compose" and call.args and isinstance(call.args[0], ast.List | ast.Tuple):
        yield from call.args[0].elts if not _is_only_called(program, call) else ()
    elif name.startswith("torchvision.datasets."):
        yield from (keywords[option] for option in _SET_OPTIONS if option in keywords)
        yield from (item for item in call.args[1:3] if isinstance(item, ast.Lambda))
    else:
        yield from _own_set(program, call)


def _is_only_called(program: Program, call: ast.Call) -> bool:
    """A transform for looking at pictures: called by its name and given to nobody."""
    names = [name for name in program.targets(call) if "." not in name]
    if len(names) != 1:
        return False
    uses = [node for node in program.names(names[0]) if isinstance(node.ctx, ast.Load)]
    called = [node for node in uses if isinstance(above := program.parent(node), ast.Call) and above.func is node]
    return bool(uses) and len(called) == len(uses)


def _own_set(program: Program, call: ast.Call) -> Iterator[ast.expr]:
    """Arguments of an own data set class that it keeps on `self`."""
    owner = program.classes.get(program.written(call.func))
    if owner is None or owner not in program.facts.datasets or _OWN_PICKLING & program.methods(owner).keys():
        return
    init = program.methods(owner).get("__init__")
    if init is None:
        return
    for name in parameters(init)[1:]:
        given = program.argument_for(call, init, name)
        if given is not None and _is_stored(program, init, name):
            yield given


def _is_stored(program: Program, init: FunctionNode, name: str) -> bool:
    for node in program.within(init, ast.Assign, ast.AnnAssign):
        targets: list[ast.expr] = list(node.targets) if isinstance(node, ast.Assign) else [node.target]
        pairs = _pairs(targets, node.value)
        if any(
            program.written(left).startswith("self.") and isinstance(right, ast.Name) and right.id == name
            for left, right in pairs
        ):
            return True
    return False


def _pairs(targets: list[ast.expr], value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        elif value is not None:
            yield target, value.values[0] if isinstance(value, ast.BoolOp) else value
