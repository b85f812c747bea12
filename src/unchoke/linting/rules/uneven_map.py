"""`Pool.map` over work of unequal length.

`multiprocessing.Pool.map` and `starmap` cut the items into about four chunks for each process before anything runs. Where one
scene takes seconds and another a minute, the process that got the long chunk works alone at the end while the others wait;
nothing comes back until the last chunk is done.

**Write instead.** Hand the items out one at a time:

    with Pool(jobs) as pool:
        for result in pool.imap_unordered(cut_scene, scenes):
            ...

or keep the call and its order and add `chunksize=1`. `ProcessPoolExecutor.submit` does it by itself. Longest first helps too:
sort by file size, largest at the front. `unchoke tile` cuts scenes so.

**When this is fine.** Items that take equally long, items of microseconds (a larger `chunksize` is better there), and fewer
items than about four for each process: those chunks hold one item anyway. Photos take about as long as each other, and so does
opening a film for its length. Always a nit: how long each item takes, the file does not tell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.facts.vocabulary import DECODERS, RASTER_OPENERS
from unchoke.code.program import Program
from unchoke.linting.questions import calls_run_by, num_items, words_in
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decode",
    title="uneven work handed out in fixed chunks",
    kind="nit",
    gain="the time in which others wait for the longest chunk: 5 % with 16 processes and many windows, nothing with two",
    claim="Commonly reported gains, measured",
    command="unchoke tile",
)

_MAPS = frozenset({"map", "starmap", "map_async", "starmap_async"})
_POOLS = frozenset({"multiprocessing.Pool", "multiprocessing.pool.ThreadPool", "multiprocessing.dummy.Pool"})
_FEW = 16
_ITEM_WORDS = frozenset(
    {"file", "path", "filename", "scene", "video", "row", "record", "image", "img", "photo", "slide", "clip", "movie", "doc",
     "document", "folder", "dir", "tif", "tiff", "raster", "case", "patient", "volume", "job", "task", "item", "todo", "tile",
     "frame", "id", "name", "url", "sample", "work", "arg", "df", "plot", "field", "ortho", "granule", "plate", "scan", "study",
     "studies", "specimen", "stem", "csv", "png", "jpg", "jpeg"}
)  # fmt: skip
_CHUNKS = frozenset({"chunk", "shard", "fold", "seed", "batches"})
_LISTINGS = frozenset({"glob", "iglob", "rglob", "listdir", "scandir", "iterdir", "walk", "itertuples", "iterrows"})
_READS = re.compile(
    r"^(?:imread|open|load|read|loadtxt|VideoCapture|imwrite|save|decode|run|check_call|check_output|call)(?:_|$)"
)


def check(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        method, pool = program.method(call), program.receiver(call)
        if method not in _MAPS or pool is None or not _is_pool(program, pool):
            continue
        function, items = program.argument(call, "func", 0), program.argument(call, "iterable", 1)
        if items is None or program.argument(call, "chunksize", 2) is not None or not _differs(program, function, items):
            continue
        written, work = program.text(call.func), program.text(function) if function is not None else "the work"
        better = "imap_unordered" if method.startswith("map") else "starmap"
        keep = f"`{program.text(call)[:-1]}, chunksize=1)` keeps the order"
        yield Hit(
            call,
            f"`{written}` cuts `{program.text(items)}` into fixed chunks beforehand; `{work}` takes longer for some",
            evidence={"call": written, "function": work},
            fix=f"{keep}; `{better}` hands results over as they come" if better == "imap_unordered" else keep,
        )


def _differs(program: Program, function: ast.expr | None, items: ast.expr) -> bool:
    """Are these files, scenes, rows, or is the function one that reads them; and are there more than a few, not cut by hand?"""
    made, said = program.latest(items) or items, words_in(items)
    if (num_items(program, items) or _FEW + 1) <= _FEW or said & _CHUNKS or "array_split" in program.text(made):
        return False
    inner = program.callable_of(function)
    for call in calls_run_by(program, inner) if inner is not None else ():
        if program.name(call) in DECODERS | RASTER_OPENERS or _READS.match(program.method(call)):
            return True
    listed = _LISTINGS & words_in(made)
    return bool(listed) or (inner is None and bool(_ITEM_WORDS & said))


def _is_pool(program: Program, node: ast.expr) -> bool:
    made = program.made_by(node)
    of_context = made == "?.Pool" and any("multiprocessing" in module for module in program.modules)
    given = program.given_by_callers(node.id, node) if isinstance(node, ast.Name) and not made else []
    return made in _POOLS or of_context or any(program.made_by(item) in _POOLS for item in given)
