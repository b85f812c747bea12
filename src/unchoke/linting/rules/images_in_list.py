"""Every image of the data set decoded into memory.

A list of decoded pictures holds height x width x 3 bytes for each (four times that as float32): ten thousand photographs of 512
px are 8 GB, of 12 megapixels 360 GB. Making an array of the list holds everything twice for a moment. Decoding happens before
the first step, in one process, and again at every start; the day the data set grows, the machine swaps or the kernel is killed
without a message.

**Write instead.** Keep the paths, and decode in `__getitem__` or in `tf.data`'s `map` with workers:

    paths = sorted(folder.glob("*.jpg"))
    def __getitem__(self, index): return self.transform(Image.open(self.paths[index]).convert("RGB"))

Where decoding is what holds you back, decode once into a file that is mapped, not read: `np.lib.format.open_memmap(name, "w+",
np.uint8, (len(paths), 224, 224, 3))`, then `np.load(name, mmap_mode="r")`. `unchoke extract` keeps what a frozen network makes
of each picture.

**When this is fine.** A handful (`paths[:16]` for a figure), a test set, and a data set that fits in memory several times over
and will not grow: how much there is, the file does not tell, and it is a nit. Labels, sizes, features and masks of a few values
are small; they are not meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.flow import Flow, Marks
from unchoke.code.facts.origins import loop_names
from unchoke.code.facts.per_sample import is_tf_dataset
from unchoke.code.facts.vocabulary import DECODERS, RASTER_READERS, words
from unchoke.code.node_index import FunctionNode, LoopNode, flat, names_in, parameters, targets_of
from unchoke.code.program import Program
from unchoke.linting.questions import COMPREHENSIONS
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decode",
    title="every image of the data set held in memory",
    kind="nit",
    gain="the memory of the whole data set, and its decoding before each start",
    command="unchoke extract",
    in_training=True,
)

_HANDFUL = 256
_GROWING = ("append", "add", "insert", "extend")
_PICTURES = DECODERS - {"decord.VideoReader", "torchvision.io.read_video", "imageio.get_reader", "imageio.mimread"}
_MASKS = frozenset(
    {"mask", "masks", "label", "labels", "seg", "segs", "annotation", "annotations", "gt", "gts", "target", "targets",
     "size", "sizes", "shape", "shapes"}
)  # fmt: skip
_WRAPPERS = frozenset(
    {"tqdm", "enumerate", "zip", "sorted", "list", "reversed", "tuple", "track", "progress_bar", "trange", "set", "iter"}
)
_ROWS = frozenset({"itertuples", "iterrows", "items", "values", "tolist", "to_list", "to_numpy", "keys", "unique"})
_FEW = frozenset({"head", "sample", "islice", "choice", "choices", "nlargest", "tail", "take", "first", "batched"})
_ALLOCATED = frozenset(
    {"zeros", "empty", "ones", "full", "zeros_like", "empty_like", "ndarray", "dict", "defaultdict", "OrderedDict", "list"}
)
_JOINED = frozenset({"concatenate", "vstack", "append", "cat", "concat", "row_stack"})
_MAPS = frozenset({"map", "imap", "imap_unordered", "thread_map", "process_map"})
_APPLIED = frozenset({"apply", "progress_apply", "map", "progress_map"})


def check(program: Program) -> Iterator[Hit]:
    if not any(program.name(call) in DECODERS | RASTER_READERS for call in program.nodes(ast.Call)):
        return
    flow = _DecodedPictures(program)
    seen: set[ast.AST] = set()
    for node in program.nodes(ast.Call, ast.Assign, ast.AugAssign, *COMPREHENSIONS):
        container, value = _kept(program, node)
        if value is None or program.facts.in_per_sample(node) is not None or not _is_memory(program, node, container):
            continue
        unit = _filled_by(program, flow, node, container, value)
        names = [program.written(container)] if container is not None else program.targets(node)
        told = {word for name in (*names, program.written(value)) for word in words(name)}
        if unit is not None and not told & _MASKS and not {unit, *program.ancestors(node)} & seen:
            seen.add(unit)
            yield _hit(program, node, unit, next(filter(None, names), ""))


def _hit(program: Program, node: ast.AST, unit: ast.AST, held: str) -> Hit:
    items = _items(program, unit)
    over = program.text(items) if items is not None else ""
    return Hit(
        node,
        f"{f'`{held}`' if held else 'a list'} holds every decoded image{f' of `{over}`' if over else ''} in memory",
        evidence={"held in": held, "over": over},
        fix="keep the paths and decode per sample, or decode once into a memory-mapped array (`np.lib.format.open_memmap`)",
    )


# What keeps pictures


def _kept(program: Program, node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The container that grows by this node and what is put in; (None, value) if the node makes the container."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING and node.args:
            return node.func.value, node.args[-1]
        maps = program.method(node) in _MAPS and len(node.args) >= 2
        applied = program.method(node) in _APPLIED and len(node.args) == 1  # table["path"].apply(read): a column of pictures
        return None, node if maps or (applied and not is_tf_dataset(program, program.receiver(node))) else None
    if isinstance(node, ast.AugAssign):
        return node.target, node.value if isinstance(node.value, ast.List | ast.Tuple) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return target.value, node.value
        return target, node.value if _is_joined(program, node.value) and names_in(target) & names_in(node.value) else None
    if isinstance(node, ast.DictComp):
        return None, node.value
    return None, node.elt if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp) else None


def _is_joined(program: Program, node: ast.expr | None) -> bool:
    """`all = np.concatenate([all, picture])`."""
    return isinstance(node, ast.Call) and program.method(node) in _JOINED


def _is_memory(program: Program, node: ast.AST, container: ast.expr | None) -> bool:
    """A list, a dict or an array in memory; not a memory map, an HDF5 data set or a table's column."""
    made = isinstance(program.latest(container), ast.Dict | ast.List | ast.ListComp | ast.BinOp)
    return not isinstance(node, ast.Assign) or made or program.made_by(container).rpartition(".")[2] in _ALLOCATED


# Is it the whole data set?


def _filled_by(program: Program, flow: Flow, node: ast.AST, container: ast.expr | None, value: ast.expr) -> ast.AST | None:
    """The loop, comprehension or map over all files that fills it; None if it is a handful or one batch at a time."""
    sources = {source for _, source in flow.ask(value)}
    loops = program.loops_around(node)
    unit = next((loop for loop in loops if _decodes_in(program, loop, sources)), None) if container is not None else node
    if unit is None or (container is None and loops) or not _decodes_in(program, unit, sources):
        return None
    if isinstance(unit, LoopNode) and (_is_emptied(program, container, unit) or _stops_early(program, unit)):
        return None
    items = _items(program, unit)
    return unit if items is not None and _all_of(program, items) and not _is_called_per_item(program, node) else None


def _items(program: Program, unit: ast.AST) -> ast.expr | None:
    """What is gone over."""
    if isinstance(unit, ast.For):
        return unit.iter
    if isinstance(unit, COMPREHENSIONS):
        return unit.generators[-1].iter
    if isinstance(unit, ast.Call):
        return program.receiver(unit) if len(unit.args) == 1 else unit.args[-1]
    return None


def _is_called_per_item(program: Program, node: ast.AST) -> bool:
    """In a function that is called for one folder, scan or film after another."""
    function = program.enclosing_function(node)
    calls = program.callers(function) if function is not None and function.name != "__init__" else []
    return bool(calls) and all(_is_of_round(program, call, call) for call in calls)


def _is_of_round(program: Program, node: ast.AST, call: ast.Call) -> bool:
    """Does the variable of a loop round this call stand in it?"""
    return any(loop_names(loop) & names_in(node) for loop in program.loops_around(call))


def _decodes_in(program: Program, block: ast.AST, sources: set[ast.AST]) -> bool:
    """Is the decoding done there, or in a function that is called or mapped there?"""
    handed = (program.callable_of(item) for call in program.within(block, ast.Call) for item in call.args[:1])
    called = [block, *program.reach(block)]
    called += [part for function in handed if function is not None for part in (function, *program.reach(function))]
    return any(program.index.holds(part, source) for part in called for source in sources)


def _is_emptied(program: Program, container: ast.expr | None, loop: LoopNode) -> bool:
    """Made or cleared within the loop (or a loop round it): one batch, one scene at a time."""
    name = program.written(container)
    for outer in (loop, *program.loops_around(loop)):
        for statement in program.within(outer, ast.Assign, ast.AnnAssign):
            made = any(program.written(part) == name for target in targets_of(statement) for part in flat(target))
            if made and not _is_joined(program, statement.value):
                return True
        cleared = (program.receiver(call) for call in program.within(outer, ast.Call) if program.method(call) == "clear")
        if name in map(program.written, cleared):
            return True
    return False


def _stops_early(program: Program, loop: LoopNode) -> bool:
    """`if len(images) >= 16: break`."""
    above = (program.parent(node) for node in program.within(loop, ast.Break))
    tests = (test for item in above if isinstance(item, ast.If) for test in program.within(item.test, ast.Compare))
    return any(type(program.value(side)) is int for test in tests for side in test.comparators)


def _all_of(program: Program, node: ast.expr, depth: int = 0) -> bool:
    """Does this iterate over all of something, as far as can be told?"""
    if depth > 8:
        return False
    if isinstance(node, ast.Call):
        return _all_of_call(program, node, depth)
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Slice) or _is_long(program, node.slice)
    if not isinstance(node, ast.Name):
        return not isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Constant)
    function, given = program.enclosing_function(node), program.latest(node)
    if function is not None and node.id in parameters(function):
        return _callers_give_all(program, function, node.id, depth)
    return given is None or given is node or _all_of(program, given, depth + 1)


def _all_of_call(program: Program, call: ast.Call, depth: int) -> bool:
    method, receiver = program.method(call), program.receiver(call)
    if method == "range":
        end = program.value(call.args[:2][-1]) if call.args else UNKNOWN
        return len(call.args) < 3 and not (isinstance(end, int | float) and end <= _HANDFUL)
    inner = [receiver] if method in _ROWS else call.args if method == "zip" else call.args[:1] if method in _WRAPPERS else []
    return method not in _FEW and all(_all_of(program, item, depth + 1) for item in inner if item is not None)


def _is_long(program: Program, part: ast.Slice) -> bool:
    lower, upper = program.value(part.lower), program.value(part.upper)
    if part.upper is None or (part.lower is not None and lower != 0):
        return part.upper is None and not (isinstance(lower, int) and lower < 0)
    if isinstance(upper, int | float):
        return upper < 0 or upper > _HANDFUL
    return not {"show", "n", "k", "num", "max", "limit", "samples", "batch", "bs"} & set(words(program.text(part.upper)))


def _callers_give_all(program: Program, function: FunctionNode, name: str, depth: int) -> bool:
    """Does a caller hand over a whole list, and not one batch in a loop? A data set's `__init__` is taken to get all of it."""
    calls = program.callers(function)
    if not calls:
        return function.name == "__init__" and program.enclosing_class(function) in program.facts.datasets
    given = [(call, program.argument_for(call, function, name)) for call in calls]
    whole = [item for call, item in given if item is not None and not _is_of_round(program, item, call)]
    return any(_all_of(program, item, depth + 1) for item in whole)


class _DecodedPictures(Flow):
    """Marks decoded images."""

    def judged(self, call: ast.Call, /) -> Marks | None:
        method = self.program.method(call)
        whole = self.program.keyword(call, "window") is None and (method == "read" or (method == "ReadAsArray" and not call.args))
        raster = whole and self.program.made_by(self.program.receiver(call)) in RASTER_READERS
        decoded = self.program.name(call) in _PICTURES and not self._is_encoded_here(call)
        return frozenset({("image", call)}) if raster or decoded else None

    def _is_encoded_here(self, call: ast.Call) -> bool:
        """`decode(encode(image))`: a compression that is tried out, not a file."""
        given = (self.program.latest(item) if isinstance(item, ast.Name) else item for item in call.args[:1])
        inner = self.program.calls_in(item for item in given if item is not None)
        return any(self.program.method(part).startswith(("encode", "imencode")) for part in inner)
