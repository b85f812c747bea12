"""Can loader processes that are started afresh (Windows, macOS) get the dataset, and do forked ones share an open file?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import Loader, constants, dataset_classes, listed_transforms, loaders
from unchoke_doctor.code.program import FUNCTIONS, Program
from unchoke_doctor.code.trace import given, origins
from unchoke_doctor.rules import Case, Hit

_HANDLES = frozenset({
    "open", "io.open", "gzip.open", "h5py.File", "rasterio.open", "lmdb.open", "sqlite3.connect", "zipfile.ZipFile",
    "tarfile.open", "osgeo.gdal.Open", "gdal.Open", "openslide.OpenSlide", "netCDF4.Dataset", "tifffile.TiffFile",
    "cv2.VideoCapture", "tables.open_file",
})  # fmt: skip
_SPAWNS = re.compile(r"^[A-Za-z]:[\\/](?![\\/]?/)|^/Users/\w")
_LINUX = re.compile(r"^/(?:kaggle|content|home|root|mnt|data|scratch|workspace)/|^\.\./input/")


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    busy = [one for one in loaders(program) if any(isinstance(n, int) and n > 0 for n in one.workers)]
    spawns = _starts_afresh(case) if busy else False
    yield from _handles(program) if busy else ()
    if spawns is False:
        return
    why = "this code runs on Windows or macOS" if spawns else "on Windows, macOS and Python 3.14"
    for nodes, said, fix in _unpicklable(program, busy, why):
        yield Hit(nodes[0], said, fix, "risk" if spawns else "note", evidence={"spawns": bool(spawns)}, further=tuple(nodes[1:]))


def _unpicklable(program: Program, busy: list[Loader], why: str) -> Iterator[tuple[list[ast.AST], str, str]]:
    """Places, message and fix of what a process that starts afresh cannot get."""
    made = {
        program.target(end) for one in busy if one.dataset for end in origins(program, one.dataset) if isinstance(end, ast.Call)
    }
    used = [owner for owner in dataset_classes(program) if program.is_own(owner) and owner in made]
    if used and program.source.is_notebook:
        said = (
            f"`{used[0].name}` is defined in a notebook, and loader processes that start afresh cannot import it ({why}): "
            "the loader hangs or fails"
        )
        yield list(used), said, f"put `{used[0].name}` into a .py file (`%%writefile data.py`) and import it"
    if lambdas := [node for node in _lambdas(program) if program.is_own(node)]:
        said = f"`{program.text(lambdas[0])}` goes to loader processes that start afresh, and a lambda cannot be pickled ({why})"
        yield list(lambdas), said, "write it as a function with a name, at module level"
    bare = [one.call for one in busy if program.is_own(one.call) and _is_unguarded(program, one.call)]
    if bare and not program.source.is_notebook:
        said = f"the script has no `if __name__ == '__main__':`, so each loader process runs it again ({why})"
        fix = "put the code that makes and uses loaders into `main()` and call it under `if __name__ == '__main__':`"
        yield list(bare), said, fix


def _starts_afresh(case: Case) -> bool | None:
    """Are processes spawned here? By what the outputs and paths show; None where nothing shows it."""
    texts = constants(case.program)
    for call in case.program.calls_to("set_start_method", "get_context"):
        if call.args and isinstance(call.args[0], ast.Constant):
            return call.args[0].value != "fork"
    if case.outputs.spawns or any(_SPAWNS.search(text) for text in texts):
        return True
    return False if case.outputs.on_linux or any(_LINUX.search(text) for text in texts) else None


def _handles(program: Program) -> Iterator[Hit]:
    """Files opened in `__init__` and kept: spawned workers cannot get them, forked ones share one file position."""
    inits = {program.method(owner, "__init__"): owner for owner in dataset_classes(program)}
    for target, held in (pair for some in program.stored.values() for pair in some):
        init = program.function(target)
        owner, name = inits.get(init) if isinstance(init, ast.FunctionDef) else None, program.text(target)
        if init is None or owner is None or not isinstance(held, ast.Call) or program.name(held) not in _HANDLES:
            continue
        closed = any(program.text(call.func) == f"{name}.close" for call in program.calls_in(init))
        if program.is_own(init) and not closed and program.method(owner, "__getstate__") is None:
            said = (
                f"`{name}` of `{owner.name}` is an open file: workers that start afresh cannot get it, "
                "forked ones share its position and read wrong bytes"
            )
            fix = f"keep the path, set `{name} = None` here and open it in `__getitem__` when `{name} is None`"
            yield Hit(target, said, fix, "risk", evidence={"opened_by": program.name(held)})


def _lambdas(program: Program) -> Iterator[ast.Lambda]:
    """Lambdas among the transforms of a `Compose`, in `transforms.Lambda`, and as `collate_fn` or `worker_init_fn`."""
    handed: list[ast.expr] = []
    for call in program.calls_to("Compose"):
        first = given(program, call, "transforms", 0)
        handed += first.elts if isinstance(first, ast.List | ast.Tuple) else []
        handed += [part for step in listed_transforms(program, call) if program.last(step) == "Lambda" for part in step.args]
    names = ("collate_fn", "worker_init_fn")
    handed += [word.value for loader in loaders(program) for word in loader.call.keywords if word.arg in names]
    yield from (end for part in handed for end in origins(program, part) if isinstance(end, ast.Lambda))


def _is_unguarded(program: Program, call: ast.Call) -> bool:
    """At module level, outside `if __name__ == "__main__"`."""
    above = list(program.above(call))
    guards = [part for part in above if isinstance(part, ast.If) and "__name__" in program.text(part.test)]
    return not guards and not any(isinstance(part, (*FUNCTIONS, ast.ClassDef)) for part in above)
