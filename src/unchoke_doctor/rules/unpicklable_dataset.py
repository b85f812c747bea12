"""Can loader processes that are started afresh (Windows, macOS) get the dataset, and do forked ones share an open file?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import constants, dataset_classes, listed_transforms, loaders
from unchoke_doctor.code.program import FUNCTIONS, Program
from unchoke_doctor.code.trace import given, origins
from unchoke_doctor.finding import Kind
from unchoke_doctor.rules import Case, Hit, one_hit

_HANDLES = frozenset({
    "open", "io.open", "gzip.open", "h5py.File", "rasterio.open", "lmdb.open", "sqlite3.connect", "zipfile.ZipFile", "tarfile.open", "osgeo.gdal.Open",
    "gdal.Open", "openslide.OpenSlide", "netCDF4.Dataset", "tifffile.TiffFile", "cv2.VideoCapture", "tables.open_file",
})  # fmt: skip
_SPAWNS = re.compile(r"^[A-Za-z]:[\\/](?![\\/]?/)|^/Users/\w")
_LINUX = re.compile(r"^/(?:kaggle|content|home|root|mnt|data|scratch|workspace)/|^\.\./input/")


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    busy = [loader for loader in loaders(program) if any(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in loader.workers)]
    if not busy:
        return
    yield from _handles(program)
    spawns = _starts_afresh(case)
    if spawns is False:
        return
    kind: Kind = "risk" if spawns else "note"
    why = "this code runs on Windows or macOS" if spawns else "on Windows, macOS and Python 3.14"
    shown = {"spawns": bool(spawns)}
    if program.source.is_notebook:
        classes = [owner for owner in dataset_classes(program) if program.is_own(owner)]
        used = [owner for owner in classes if any(_is_made(program, loader.dataset, owner) for loader in busy)]
        if used:
            said = f"`{used[0].name}` is defined in a notebook, and loader processes that start afresh cannot import it ({why}): the loader hangs or fails"
            yield one_hit(used, message=said, fix=f"put `{used[0].name}` into a .py file (`%%writefile data.py`) and import it", kind=kind, evidence=shown)
    lambdas = [node for node in _lambdas(program) if program.is_own(node)]
    if lambdas:
        said = f"`{program.text(lambdas[0])}` goes to loader processes that start afresh, and a lambda cannot be pickled ({why})"
        yield one_hit(lambdas, message=said, fix="write it as a function with a name, at module level", kind=kind, evidence=shown)
    if not program.source.is_notebook:
        bare = [loader.call for loader in busy if program.is_own(loader.call) and _is_unguarded(program, loader.call)]
        if bare:
            said = f"the script has no `if __name__ == '__main__':`, so each loader process runs it again ({why})"
            yield one_hit(bare, message=said, fix="put the code that makes and uses loaders into `main()` and call it under `if __name__ == '__main__':`", kind=kind, evidence=shown)


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
    for owner in dataset_classes(program):
        init = program.method(owner, "__init__")
        if init is None or not program.is_own(init) or program.method(owner, "__getstate__") or program.class_of(init) is not owner:
            continue
        for some in program.stored.values():
            for target, held in some:
                if program.function(target) is not init or not isinstance(held, ast.Call) or program.name(held) not in _HANDLES:
                    continue
                name = program.text(target)
                closed = any(program.text(call.func) == f"{name}.close" for call in program.calls_in(init))
                if not closed:
                    said = f"`{name}` of `{owner.name}` is an open file: workers that start afresh cannot get it, forked ones share its position and read wrong bytes"
                    fix = f"keep the path, set `{name} = None` here and open it in `__getitem__` when `{name} is None`"
                    yield Hit(target, said, fix, "risk", evidence={"opened_by": program.name(held)})


def _lambdas(program: Program) -> Iterator[ast.Lambda]:
    """Lambdas among the transforms of a `Compose`, in `transforms.Lambda`, and as `collate_fn` or `worker_init_fn`."""
    for call in program.calls_to("Compose"):
        first = given(program, call, "transforms", 0)
        for part in first.elts if isinstance(first, ast.List | ast.Tuple) else ():
            yield from (end for end in origins(program, part) if isinstance(end, ast.Lambda))
        for step in listed_transforms(program, call):
            if program.name(step).rpartition(".")[2] == "Lambda":
                yield from (part for part in step.args if isinstance(part, ast.Lambda))
    for loader in loaders(program):
        handed = [word.value for word in loader.call.keywords if word.arg in ("collate_fn", "worker_init_fn")]
        yield from (end for part in handed for end in origins(program, part) if isinstance(end, ast.Lambda))


def _is_made(program: Program, dataset: ast.expr | None, owner: ast.ClassDef) -> bool:
    ends = origins(program, dataset) if dataset is not None else []
    return any(isinstance(end, ast.Call) and program.target(end) is owner for end in ends)


def _is_unguarded(program: Program, call: ast.Call) -> bool:
    """At module level, outside `if __name__ == "__main__"`."""
    tests = [program.text(part.test) for part in program.above(call) if isinstance(part, ast.If)]
    inside = any(isinstance(part, (*FUNCTIONS, ast.ClassDef)) for part in program.above(call))
    return not inside and not any("__name__" in test for test in tests)
