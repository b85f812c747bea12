"""A container opened again for each window.

A GeoTIFF, an HDF5 file, a zip archive or a slide holds many samples. Opening it means reading its header and directory, building
tables and starting with an empty cache of blocks; closing it throws all that away. Done for each sample or each window, the
opening often costs more than the read.

**Write instead.** Open once in each worker and keep the handle:

    def __getitem__(self, index):
        if self.file is None:                          # opened in the worker, not in __init__: handles do not pickle
            self.file = h5py.File(self.path, "r")
        return self.file["images"][index]

In a loop over windows open before the loop. `unchoke tile` reads each scene once, in the order of its blocks.

**When this is fine.** One file for each sample, read whole. A handle that is kept. Very many files, so that each is seen once in
a while: keep the few latest open (`functools.lru_cache`).

Holds on every device and for every version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.following import follow
from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.origins import grounds, is_of_sample, runs_for_each_sample
from unchoke.code.facts.vocabulary import words
from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="reopened-file",
    group="input",
    stage="open",
    title="container opened again for each window",
    gain="4.5 s to 0.5 s with 320 windows of 64 px of one GeoTIFF",
    claim="Planted chokes",
    command="unchoke tile",
)
_CONTAINERS = frozenset(
    {"rasterio.open", "osgeo.gdal.Open", "gdal.Open", "rioxarray.open_rasterio", "tifffile.TiffFile", "h5py.File",
     "tables.open_file", "netCDF4.Dataset", "xarray.open_dataset", "xarray.open_mfdataset", "xarray.open_rasterio",
     "xarray.open_dataarray", "xarray.open_zarr", "openslide.OpenSlide", "openslide.open_slide", "zipfile.ZipFile",
     "tarfile.open", "lmdb.open", "lmdb.Environment", "tiffslide.TiffSlide", "cucim.CuImage", "tables.openFile"}
)  # fmt: skip
_WINDOWED = frozenset({"ReadAsArray", "read_region", "isel", "sel", "sample", "clip_box", "extractfile", "getmember"})
_MEMBERS = frozenset({"open", "read", "get"})
_FEW = frozenset({"epoch", "epochs", "ep", "fold", "folds", "seed", "split", "phase", "subset"})
_FEWEST = 8


def check(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        if program.name(call) in _CONTAINERS and call.args and _is_for_reading(program, call):
            yield from _judged(program, call)


def _judged(program: Program, call: ast.Call) -> Iterator[Hit]:
    name, path = program.text(call.func), program.text(call.args[0])
    if program.facts.in_per_sample(call) is not None:
        if not runs_for_each_sample(program, call) or is_kept(program, call):
            return
        if not is_of_sample(program, call.args[0]):
            yield _hit(program, call, f"`{name}` opens `{path}` again for every sample, although it is the same file")
        elif any(_is_part_of_sample(program, part, call) for part in _parts(program, call)):
            yield _hit(
                program,
                call,
                f"`{name}` opens `{path}` for every sample and reads one part of it; the next sample opens it again",
            )
    else:
        loop = _loop_over_parts(program, call)
        if loop is not None:
            over = program.text(loop.iter)
            yield _hit(program, call, f"`{name}` opens `{path}` again in each round over `{over}`, although it is the same file")


def _hit(program: Program, call: ast.Call, message: str) -> Hit:
    path = program.text(call.args[0])
    return Hit(call, message, evidence={"call": program.text(call.func), "file": path}, fix=_fix(program, call, path))


def _fix(program: Program, call: ast.Call, path: str) -> str:
    opened = program.text(call)
    if program.facts.in_per_sample(call) is None:
        return f"open once before the loop: `with {opened} as …:` round it"
    if program.enclosing_class(call) is None:
        return f"keep the handles: a function with `functools.lru_cache` that takes the path and returns `{opened}`"
    if is_of_sample(program, call.args[0]):
        return f"keep the handles by path: `if {path} not in self.opened: self.opened[{path}] = {opened}`"
    return f"keep the handle: `if self.opened is None: self.opened = {opened}`, with `self.opened = None` in `__init__`"


def _is_for_reading(program: Program, call: ast.Call) -> bool:
    mode = program.value(program.argument(call, "mode", 1))
    made_in_memory = any(
        program.method(inner) in ("BytesIO", "MemoryFile") for inner in program.within(call, ast.Call) if inner is not call
    )
    return not made_in_memory and not (isinstance(mode, str) and mode[:1] in ("w", "a", "x"))


def _parts(program: Program, call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    """What says which part of the file is read, and how: `window`, `member` (a name) or `index` (numbers)."""
    for value in follow(program, call):
        parent = program.parent(value)
        if isinstance(parent, ast.Subscript) and parent.value is value:
            yield from _indexed(program, parent)
        elif isinstance(parent, ast.Attribute):
            above = program.parent(parent)
            if isinstance(above, ast.Call) and above.func is parent:
                yield from _asked(program, above)


def _indexed(program: Program, node: ast.Subscript) -> Iterator[tuple[ast.expr, str]]:
    """`f["images"][k]` but not `f["images"][:]`; `f[key]` with a key that is not a constant is a member."""
    is_first = not isinstance(node.value, ast.Subscript)
    if isinstance(program.value(node.slice), str) or _is_whole(node.slice):
        return
    yield node.slice, "member" if is_first and not isinstance(node.slice, ast.Slice | ast.Tuple) else "index"


def _is_whole(node: ast.expr) -> bool:
    """`[:]`, `[...]`, `[()]`."""
    if isinstance(node, ast.Tuple):
        return all(_is_whole(part) for part in node.elts)
    if isinstance(node, ast.Slice):
        return node.lower is None and node.upper is None
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _asked(program: Program, call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    method = program.method(call)
    window = program.argument(call, "window")
    if window is not None:
        yield window, "window"
    elif method in _WINDOWED:
        yield from ((given, "window") for given in arguments(call))
    elif method in _MEMBERS and call.args and _is_archive(program, call):
        yield call.args[0], "member"


def _is_archive(program: Program, call: ast.Call) -> bool:
    made = program.made_by(program.receiver(call))
    return made.startswith(("zipfile.", "tarfile.", "lmdb.")) or program.method(call) == "get"


def _is_part_of_sample(program: Program, part: tuple[ast.expr, str], call: ast.Call) -> bool:
    """Does the part change from sample to sample, other than through the file itself? A window drawn at random counts."""
    node, how = part
    own = frozenset(value.id for value in follow(program, call) if isinstance(value, ast.Name))
    return is_of_sample(program, node, without=own, random=how == "window")


def _loop_over_parts(program: Program, call: ast.Call) -> ast.For | ast.AsyncFor | ast.comprehension | None:
    """The loop that opens the same file in each round to read another part of it."""
    files = {ground.node for ground in grounds(program, call.args[0], everywhere=True) if ground.kind == "loop"}
    own = frozenset(value.id for value in follow(program, call) if isinstance(value, ast.Name))
    for node, how in _parts(program, call):
        if how == "member":
            continue
        for ground in grounds(program, node, without=own, everywhere=True):
            loop = ground.node
            if ground.kind != "loop" or loop in files or not isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension):
                continue
            if _is_round(program, loop, call) and _is_over_many(program, loop):
                return loop
    return None


def _is_round(program: Program, loop: ast.For | ast.AsyncFor | ast.comprehension, call: ast.Call) -> bool:
    """Does the loop run this call in each round, directly or through one function?"""
    whole = program.parent(loop) if isinstance(loop, ast.comprehension) else loop
    if whole is None:
        return False
    function = program.enclosing_function(call)
    calls = [call, *(program.callers(function) if function is not None else ())]
    return any(program.index.holds(whole, item) and not program.index.holds(loop.iter, item) for item in calls)


def _is_over_many(program: Program, loop: ast.For | ast.AsyncFor | ast.comprehension) -> bool:
    names = {word for part in program.within(loop.target, ast.Name) for word in words(part.id)}
    if names & _FEW or isinstance(loop.iter, ast.Tuple | ast.List):
        return False
    if isinstance(loop.iter, ast.Call) and program.name(loop.iter) == "range":
        counts = [program.value(given) for given in loop.iter.args]
        return any(count is UNKNOWN for count in counts) or max(counts, default=0) > _FEWEST
    return True
