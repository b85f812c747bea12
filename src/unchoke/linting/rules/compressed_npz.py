"""Compressed arrays read for each sample.

An `.npz` file is a zip archive: it cannot be memory-mapped, each array is unpacked in full even if one slice of it is needed,
and one written with `np.savez_compressed` costs zlib decompression for every sample in every epoch. A plain `.npy` is mapped and
costs the pages that are touched.

**Write instead.** One plain array for all samples, mapped, or one `.npy` for each:

    store = np.lib.format.open_memmap("images.npy", mode="w+", dtype=np.uint8, shape=(n, h, w, c))     # once
    self.images = np.load("images.npy", mmap_mode="r")                                                 # in __init__

**When this is fine.** Statistics or labels read once in `__init__`; an archive for keeping or sending; a disk or network so slow
that fewer bytes win (measure it). `np.savez` does not compress, but cannot be mapped either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.epochs import few
from unchoke.code.facts.flow import follow
from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.loops import count_of, is_over_settings
from unchoke.code.facts.origins import grounds, is_of_sample, runs_for_each_sample, sources
from unchoke.code.facts.vocabulary import words
from unchoke.code.node_index import arguments
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decompress",
    title="compressed arrays read for each sample",
    kind="nit",
    gain="4.6 s to 1.3 s with four-band arrays, one to a file",
    claim="Planted chokes",
)
_FEW = frozenset({"epoch", "epochs", "ep", "fold", "folds", "seed", "split", "part", "run", "phase", "subset", "mode", "stage"})
_MAPS = frozenset(
    {"map", "imap", "imap_unordered", "starmap", "submit", "apply_async", "apply", "progress_apply", "Parallel", "delayed"}
)
_FEWEST = 24


def check(program: Program) -> Iterator[Hit]:
    for call in program.calls_named(["numpy.load"]):
        yield from _read(program, call)
    for call in program.calls_named(["numpy.savez_compressed"]):
        yield from _written(program, call) if call.args else ()


def _read(program: Program, call: ast.Call) -> Iterator[Hit]:
    if not runs_for_each_sample(program, call) or is_kept(program, call):
        return
    keys = sorted(set(_keys(program, call)))
    if _is_archive(program, call, keys):
        stated = f" for {', '.join(f'`{key}`' for key in keys)}" if keys else ""
        yield Hit(
            call,
            f"`{program.text(call.func)}` unpacks an `.npz` archive{stated} for every sample",
            evidence={"keys": keys},
            fix="store the arrays once as plain `.npy` (one `open_memmap` for all samples, or a file each) and read them with "
            '`np.load(…, mmap_mode="r")`',
        )


def _is_archive(program: Program, call: ast.Call, keys: list[str]) -> bool:
    """Its name ends in `.npz`, or the result is asked for arrays by name and nothing says `.npy`."""
    parts = (part for item in arguments(call)[:1] for part in sources(program, item) if isinstance(part, ast.Constant))
    stated = {str(part.value).lower()[-4:] for part in parts} & {".npz", ".npy"}
    return stated == {".npz"} or (bool(keys) and stated != {".npy"})


def _keys(program: Program, call: ast.Call) -> Iterator[str]:
    for value in follow(program, call, same=True):
        parent = program.parent(value)
        if isinstance(parent, ast.Subscript) and parent.value is value:
            key = program.value(parent.slice)
            if isinstance(key, str):
                yield key


def _written(program: Program, call: ast.Call) -> Iterator[Hit]:
    """A file for each sample: in per-sample code, or once for each round of a loop over the data."""
    path = call.args[0]
    sampled = runs_for_each_sample(program, call) is not None and is_of_sample(program, path)
    if not sampled and (program.facts.in_evaluation(call) is not None or not _is_for_each(program, path)):
        return
    yield Hit(
        call,
        f"`{program.text(call.func)}` compresses a file for each sample, to be unpacked for each sample again",
        evidence={"path": program.text(path)},
        fix="write plain `.npy` files with `np.save`, or one `np.lib.format.open_memmap` for all samples",
    )


def _is_for_each(program: Program, path: ast.expr) -> bool:
    """Does its path change with a loop over data, or is its function mapped over data: `pool.map`, `submit`, `delayed`?"""
    mapped = [program.callable_of(item) for use in program.calls_to(*_MAPS) for item in use.args]
    for ground in grounds(program, path, everywhere=True):
        if ground.kind == "loop" and _is_over_data(program, ground.node):
            return True
        if ground.kind == "parameter" and ground.node in mapped:
            return True
    return False


def _is_over_data(program: Program, loop: ast.AST) -> bool:
    """More rounds than a few, as far as can be told, and not over epochs, folds or settings."""
    if not isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension) or _FEW & set(words(program.text(loop.target))):
        return False
    counted = isinstance(loop, ast.For) and (is_over_settings(program, loop) or few(count_of(program, loop), below=_FEWEST))
    return not counted
