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
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.flow import follow
from unchoke.code.facts.origins import grounds, is_of_sample
from unchoke.code.facts.vocabulary import RASTER_OPENERS
from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.questions import Round, is_done_anew, names_holding, num_items, whole_round, words_in
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="open",
    title="container opened again for each window",
    kind="nit",
    gain="4.5 s to 0.5 s with 320 windows of 64 px of one GeoTIFF",
    claim="Planted chokes",
    command="unchoke tile",
    in_training=True,
)
_CONTAINERS = RASTER_OPENERS - {"zarr.open", "pyvips.Image.new_from_file", "aicsimageio.AICSImage"} | {
    "tiffslide.TiffSlide", "cucim.CuImage"
}  # fmt: skip
_WINDOWED = frozenset({"ReadAsArray", "read_region", "isel", "sel", "sample", "clip_box", "extractfile", "getmember"})
_FEW = frozenset({"epoch", "ep", "fold", "seed", "split", "phase", "subset"})
_FEWEST = 8


def check(program: Program) -> Iterator[Hit]:
    for call in program.calls_named(_CONTAINERS):
        mode = program.value(program.argument(call, "mode", 1))
        in_memory = any(program.method(inner) in ("BytesIO", "MemoryFile") for inner in program.within(call, ast.Call))
        written = isinstance(mode, str) and mode[:1] in ("w", "a", "x")
        if call.args and not in_memory and not written:
            name, path = program.text(call.func), program.text(call.args[0])
            said, fix = _again(program, call, path)
            if said:
                yield Hit(call, f"`{name}` opens `{path}` {said}", evidence={"call": name, "file": path}, fix=fix)


def _again(program: Program, call: ast.Call, path: str) -> tuple[str, str]:
    """How often it is opened, and what to write instead; empty where that is fine."""
    opened = program.text(call)
    if program.facts.in_per_sample(call) is None:
        loop = _loop_over_parts(program, call)
        over = f"again in each round over `{program.text(loop.iter)}`, although it is the same file" if loop is not None else ""
        return over, f"open once before the loop: `with {opened} as …:` round it"
    fix = f"keep the handle: `if self.opened is None: self.opened = {opened}`, with `self.opened = None` in `__init__`"
    said = "again for every sample, although it is the same file"
    if is_of_sample(program, call.args[0]):
        own = names_holding(program, call)
        parts = any(is_of_sample(program, node, without=own, random=window) for node, window in _parts(program, call))
        said = "for every sample and reads one part of it; the next sample opens it again" if parts else ""
        fix = f"keep the handles by path: `if {path} not in self.opened: self.opened[{path}] = {opened}`"
    if program.enclosing_class(call) is None:
        fix = f"keep the handles: a function with `functools.lru_cache` that takes the path and returns `{opened}`"
    return said if is_done_anew(program, call) else "", fix


def _parts(program: Program, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """What says which part of the file is read, and whether it is a window (may be random): `f["x"][k]`, `read(window=w)`."""
    for value in follow(program, call):
        parent = program.parent(value)
        if isinstance(parent, ast.Subscript) and parent.value is value:
            yield parent.slice, False
        above = program.parent(parent) if isinstance(parent, ast.Attribute) else None
        if isinstance(above, ast.Call) and above.func is parent:
            window = program.argument(above, "window")
            given = [window] if window is not None else arguments(above) if program.method(above) in _WINDOWED else []
            yield from ((item, True) for item in given)


def _loop_over_parts(program: Program, call: ast.Call) -> Round | None:
    """The loop that opens the same file in each round to read another part of it."""
    files = {ground.node for ground in grounds(program, call.args[0], everywhere=True)}
    own = names_holding(program, call)
    for node, _ in _parts(program, call):
        for ground in grounds(program, node, without=own, everywhere=True):
            loop = ground.node
            if isinstance(loop, Round) and loop not in files and _is_round(program, loop, call):
                return loop
    return None


def _is_round(program: Program, loop: Round, call: ast.Call) -> bool:
    """Does the loop run this call in each of many rounds, directly or through one function?"""
    if words_in(loop.target) & _FEW or (num_items(program, loop.iter) or _FEWEST + 1) <= _FEWEST:
        return False
    function, whole = program.enclosing_function(call), whole_round(program, loop)
    calls = [call, *(program.callers(function) if function is not None else ())]
    return any(program.index.holds(whole, item) and not program.index.holds(loop.iter, item) for item in calls)
