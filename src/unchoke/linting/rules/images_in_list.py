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

**When this is fine.** A handful (`paths[:16]` for a figure), small icons, and a data set that fits in memory several times over
and will not grow. Labels, sizes, features and masks of a few values are small; they are not meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.flow import CallMarks, Flow, Judge, Marks
from unchoke.code.facts.origins import loop_names
from unchoke.code.facts.per_sample import is_tf_dataset
from unchoke.code.facts.sizing import is_resizing, size_of
from unchoke.code.facts.vocabulary import DECODERS, RASTER_READERS, words
from unchoke.code.node_index import FunctionNode, LoopNode, flat, names_in, parameters, targets_of
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="images-in-list",
    group="input",
    stage="decode",
    title="every image of the data set held in memory",
    gain="the memory of the whole data set, and its decoding before each start",
    command="unchoke extract",
)

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_HANDFUL = 256
_GROWING = ("append", "add", "insert", "extend")
_READERS = DECODERS | RASTER_READERS
_NOT_PICTURES = frozenset({"decord.VideoReader", "torchvision.io.read_video", "imageio.get_reader", "imageio.mimread"})
_MASKS = frozenset(
    {"mask", "masks", "label", "labels", "seg", "segs", "annotation", "annotations", "gt", "target", "targets", "size", "sizes",
     "shape", "shapes"}
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

_SMALL_PX = 64


def check(program: Program) -> Iterator[Hit]:
    if not _may_hold(program):
        return
    flow = Flow(program, _Pictures(program))
    seen: set[ast.AST] = set()
    for node in program.nodes(ast.Call, ast.Assign, ast.AugAssign, *_COMPREHENSIONS):
        if not _holds_pictures(program, flow, node) or program.facts.in_per_sample(node) is not None:
            continue
        unit = _filled_by(program, flow, node)
        if unit is None or unit in seen or any(above in seen for above in program.ancestors(node)):
            continue
        seen.add(unit)
        yield _hit(program, node, unit)


def _may_hold(program: Program) -> bool:
    """Is an image decoded in a loop, a comprehension or a map where no sample is asked for? Most files end here."""
    reads = [call for call in program.nodes(ast.Call) if program.name(call) in _READERS]
    if not reads:
        return False
    readers = {scope for call in reads if (scope := program.enclosing_scope(call)) is not None}
    if any(program.facts.in_per_sample(call) is None and _is_kept_round(program, call) for call in reads):
        return True
    return any(_is_repeated(program, scope) for scope in readers)


def _is_kept_round(program: Program, node: ast.AST) -> bool:
    """In a comprehension, or in a loop that puts something into a container."""
    for above in program.ancestors(node):
        if isinstance(above, _COMPREHENSIONS):
            return True
        if isinstance(above, ast.For | ast.AsyncFor):
            calls = program.within(above, ast.Call)
            stores = program.within(above, ast.Subscript, ast.AugAssign)
            grows = (isinstance(call.func, ast.Attribute) and call.func.attr in _GROWING for call in calls)
            if any(grows) or any(isinstance(item, ast.AugAssign) or isinstance(item.ctx, ast.Store) for item in stores):
                return True
            if any(program.method(call) in _JOINED for call in program.within(above, ast.Call)):
                return True
    return False


def _is_repeated(program: Program, scope: ast.AST) -> bool:
    """A function that decodes, called in a loop or handed to a map, outside per-sample code; or a function that calls it."""
    if isinstance(scope, ast.Lambda):
        return program.facts.in_per_sample(scope) is None
    names = {item.name for item in program.nodes(ast.FunctionDef) if item is scope or scope in program.reach(item)}
    for node in program.nodes(ast.Name, ast.Attribute):
        if (node.id if isinstance(node, ast.Name) else node.attr) in names and program.facts.in_per_sample(node) is None:
            parent = program.parent(node)
            if (isinstance(parent, ast.Call) and parent.func is not node) or _is_kept_round(program, node):
                return True
    return False


def _hit(program: Program, node: ast.AST, unit: ast.AST) -> Hit:
    held = next((name for name in _names_held(program, node) if name), "")
    iterated = _iterated(unit)
    over = program.text(iterated) if iterated is not None and not isinstance(iterated, ast.Lambda) else ""
    what = f"`{held}` holds" if held else "a list holds"
    every = f" of `{over}`" if over else ""
    return Hit(
        node,
        f"{what} every decoded image{every} in memory",
        evidence={"held in": held, "over": over},
        fix="keep the paths and decode per sample, or decode once into a memory-mapped array (`np.lib.format.open_memmap`)",
        kind="nit" if _are_small(program, unit) else None,
    )


def _are_small(program: Program, unit: ast.AST) -> bool:
    """Resized to a few kilobytes each on the way."""
    sizes = [size_of(program, call) for call in program.within(unit, ast.Call) if is_resizing(program, call)]
    return any(size is not None and size <= _SMALL_PX for size in sizes)


def _iterated(unit: ast.AST) -> ast.expr | None:
    if isinstance(unit, ast.For | ast.AsyncFor):
        return unit.iter
    if isinstance(unit, _COMPREHENSIONS):
        return unit.generators[-1].iter
    return unit.args[-1] if isinstance(unit, ast.Call) and unit.args else None


# What keeps pictures


def _kept(program: Program, node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The container that grows by this node and what is put in; (None, value) if the node makes the container."""
    if isinstance(node, _COMPREHENSIONS):
        return None, node.value if isinstance(node, ast.DictComp) else node.elt
    if isinstance(node, ast.AugAssign):
        return (node.target, node.value) if isinstance(node.value, ast.List | ast.Tuple) else (None, None)
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return target.value, node.value
        joined = isinstance(node.value, ast.Call) and program.method(node.value) in _JOINED
        again = joined and any(
            program.written(part) == program.written(target) for part in program.within(node.value, ast.Name, ast.Attribute)
        )
        return (target, node.value) if again else (None, None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWING and node.args:
        return node.func.value, node.args[-1]
    if isinstance(node, ast.Call) and ((program.method(node) in _MAPS and len(node.args) >= 2) or _is_applied(program, node)):
        return None, node
    return None, None


def _is_applied(program: Program, call: ast.Call) -> bool:
    """`table["path"].apply(read)`: a column of pictures."""
    applies = program.method(call) in ("apply", "progress_apply", "map", "progress_map") and len(call.args) == 1
    return applies and isinstance(call.func, ast.Attribute) and not is_tf_dataset(program, call.func.value)


def _holds_pictures(program: Program, flow: Flow, node: ast.AST) -> bool:
    container, value = _kept(program, node)
    if value is None or not flow.at(value):
        return False
    if container is not None and not _is_memory(program, node, container):
        return False
    if isinstance(value, ast.Tuple) and _kept(program, node)[0] is not None and not any(flow.at(item) for item in value.elts):
        return False
    texts = [*_names_held(program, node), program.text(value) if isinstance(value, ast.Name) else ""]
    return not any(_MASKS & set(words(text)) for text in texts)


def _names_held(program: Program, node: ast.AST) -> list[str]:
    container, _ = _kept(program, node)
    return [program.written(container)] if container is not None else program.targets(node)


def _is_memory(program: Program, node: ast.AST, container: ast.expr) -> bool:
    """A list, a dict or an array in memory; not a memory map, an HDF5 data set or a table's column."""
    if not isinstance(node, ast.Assign):
        return True
    made = program.latest(container)
    if isinstance(made, ast.Dict | ast.List | ast.ListComp):
        return True
    return program.made_by(container).rpartition(".")[2] in _ALLOCATED or (isinstance(made, ast.BinOp))


# Is it the whole data set?


def _filled_by(program: Program, flow: Flow, node: ast.AST) -> ast.AST | None:
    """The loop or comprehension over all files that fills it; None if it is a handful or one batch at a time."""
    container, value = _kept(program, node)
    sources = {source for _, source in flow.at(value)}
    if isinstance(node, _COMPREHENSIONS):
        once = _made_once(program, node) and not _is_called_per_item(program, node)
        whole = once and _decodes_in(program, node, sources) and _all_of(program, node.generators[-1].iter)
        return node if whole else None
    if container is None and isinstance(node, ast.Call):
        items = program.receiver(node) if len(node.args) == 1 else node.args[-1]
        return node if items is not None and _made_once(program, node) and _all_of(program, items) else None
    if container is None:
        return None
    loop = next((loop for loop in program.loops_around(node) if _decodes_in(program, loop, sources)), None)
    if not isinstance(loop, ast.For) or _is_emptied(program, container, loop) or _stops_early(program, loop):
        return None
    return loop if _all_of(program, loop.iter) and not _is_called_per_item(program, node) else None


def _is_called_per_item(program: Program, node: ast.AST) -> bool:
    """In a function that is called for one folder, scan or film after another."""
    function = program.enclosing_function(node)
    calls = program.callers(function) if function is not None and function.name != "__init__" else []
    return bool(calls) and all(_in_loop_over(program, call) for call in calls)


def _in_loop_over(program: Program, call: ast.Call) -> bool:
    given = [part.id for item in (*call.args, *call.keywords) for part in program.within(item, ast.Name)]
    loops = [name for loop in program.loops_around(call) for name in loop_names(loop)]
    return any(name in loops or _comprehended_by(program, call, name) is not None for name in given)


def _decodes_in(program: Program, block: ast.AST, sources: set[ast.AST]) -> bool:
    """Is the decoding done there, or in a function that is called there?"""
    called = {function for call in program.within(block, ast.Call) for function in _functions_of(program, call)}
    return any(program.index.holds(block, source) or program.enclosing_scope(source) in called for source in sources)


def _functions_of(program: Program, call: ast.Call) -> list[ast.AST]:
    function: ast.AST | None = program.function_of(call)
    if isinstance(call.func, ast.Call) and program.method(call.func) == "delayed" and call.func.args:
        function = program.callable_of(call.func.args[0])
    return [function, *program.reach(function)] if function is not None else []


def _made_once(program: Program, node: ast.AST) -> bool:
    """Not made anew on each round of a loop, unless it is put into something that stays."""
    statement = program.statement(node)
    loops = program.loops_around(node)
    if not loops:
        return not isinstance(statement, ast.For | ast.AsyncFor)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return True
    above = program.parent(node)
    while isinstance(above, ast.Call) and program.method(above) in ("array", "asarray", "stack", "list"):
        above = program.parent(above)
    grows = isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr in ("append", "extend")
    return grows or isinstance(statement, ast.AugAssign)


def _is_emptied(program: Program, container: ast.expr, loop: LoopNode) -> bool:
    """Made or cleared within the loop (or a loop round it): one batch, one scene at a time."""
    name = program.written(container)
    for outer in (loop, *program.loops_around(loop)):
        for statement in program.within(outer, ast.Assign, ast.AnnAssign, ast.Delete):
            targets = statement.targets if isinstance(statement, ast.Delete) else targets_of(statement)
            made = any(program.written(part) == name for target in targets for part in flat(target))
            value = statement.value if isinstance(statement, ast.Assign) else None
            if made and not (isinstance(value, ast.Call) and program.method(value) in _JOINED):
                return True
        calls = program.within(outer, ast.Call)
        if any(program.method(call) == "clear" and program.written(program.receiver(call)) == name for call in calls):
            return True
    return False


def _stops_early(program: Program, loop: ast.For) -> bool:
    """`if len(images) >= 16: break`."""
    for node in program.within(loop, ast.Break):
        above = program.parent(node)
        if isinstance(above, ast.If) and any(isinstance(part, ast.Compare) for part in program.within(above.test, ast.Compare)):
            numbers = [program.value(side) for test in program.within(above.test, ast.Compare) for side in test.comparators]
            if any(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
                return True
    return False


def _all_of(program: Program, node: ast.expr, depth: int = 0) -> bool:
    """Does this iterate over all of something, as far as can be told?"""
    if depth > 8:
        return False
    if isinstance(node, ast.Call):
        return _all_of_call(program, node, depth)
    if isinstance(node, ast.Subscript):
        return _all_of_slice(program, node, depth)
    if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        return False
    if isinstance(node, ast.Name):
        return _all_of_name(program, node, depth)
    return not isinstance(node, ast.Constant)


def _all_of_call(program: Program, call: ast.Call, depth: int) -> bool:
    method = program.method(call)
    if method in _FEW:
        return False
    if method == "range":
        end = program.value(call.args[min(1, len(call.args) - 1)]) if call.args else UNKNOWN
        return len(call.args) < 3 and not (isinstance(end, int | float) and end <= _HANDFUL)
    if method in _WRAPPERS and call.args:
        parts = call.args if method == "zip" else call.args[:1]
        return all(_all_of(program, item, depth + 1) for item in parts)
    receiver = program.receiver(call)
    if method in _ROWS and receiver is not None:
        return _all_of(program, receiver, depth + 1)
    return True


def _all_of_slice(program: Program, node: ast.Subscript, depth: int) -> bool:
    if not isinstance(node.slice, ast.Slice):
        return _all_of(program, node.value, depth + 1) if isinstance(node.slice, ast.Constant) else True
    upper = program.value(node.slice.upper) if node.slice.upper is not None else None
    if node.slice.upper is None:
        lower = program.value(node.slice.lower)
        return not (isinstance(lower, int) and lower < 0)
    if node.slice.lower is not None and program.value(node.slice.lower) != 0:
        return False
    if isinstance(upper, int | float):
        return upper < 0 or upper > _HANDFUL
    return not {"show", "n", "k", "num", "max", "limit", "samples", "batch", "bs"} & set(words(program.text(node.slice.upper)))


def _all_of_name(program: Program, node: ast.Name, depth: int) -> bool:
    function = program.enclosing_function(node)
    if function is not None and node.id in parameters(function):
        return _callers_give_all(program, function, node.id, depth)
    if any(node.id in loop_names(loop) for loop in program.loops_around(node)):
        return True
    outer = _comprehended_by(program, node, node.id)
    if outer is not None:
        return _all_of(program, outer, depth + 1)
    value = program.value(node)
    if isinstance(value, tuple):
        return len(value) > _HANDFUL
    given = program.latest(node)
    return _all_of(program, given, depth + 1) if given is not None and given is not node else True


def _comprehended_by(program: Program, node: ast.AST, name: str) -> ast.expr | None:
    """What a name of a comprehension further out runs over."""
    for above in program.ancestors(node):
        if isinstance(above, _COMPREHENSIONS):
            for generator in above.generators:
                if name in names_in(generator.target):
                    return generator.iter
    return None


def _callers_give_all(program: Program, function: FunctionNode, name: str, depth: int) -> bool:
    """Does a caller hand over a whole list, and not one batch in a loop? A data set's `__init__` is taken to get all of it."""
    calls = program.callers(function)
    if not calls:
        return function.name == "__init__" and program.enclosing_class(function) in program.facts.datasets
    for call in calls:
        given = program.argument_for(call, function, name)
        if given is None or program.facts.in_per_sample(call) is not None:
            continue
        in_loop = any(
            part.id in loop_names(loop) for loop in program.loops_around(call) for part in program.within(given, ast.Name)
        )
        if not in_loop and _all_of(program, given, depth + 1):
            return True
    return False


class _Pictures(Judge):
    """Marks decoded images."""

    def call(self, _flow: Flow, call: ast.Call, _handed: CallMarks, /) -> Marks | None:
        name, method = self.program.name(call), self.program.method(call)
        decoded = (name in DECODERS and name not in _NOT_PICTURES and not self._is_encoded_here(call)) or self._reads_raster(
            call, method
        )
        return frozenset({("image", call)}) if decoded else None

    def _is_encoded_here(self, call: ast.Call) -> bool:
        """`decode(encode(image))`: a compression that is tried out, not a file."""
        given = [self.program.latest(item) if isinstance(item, ast.Name) else item for item in call.args[:1]]
        inner = (part for item in given if item is not None for part in self.program.within(item, ast.Call))
        return any(self.program.method(part).startswith(("encode", "imencode")) for part in inner)

    def _reads_raster(self, call: ast.Call, method: str) -> bool:
        if method not in ("read", "ReadAsArray") or not isinstance(call.func, ast.Attribute):
            return False
        whole = self.program.keyword(call, "window") is None and (method == "read" or not call.args)
        return whole and self.program.made_by(call.func.value) in RASTER_READERS
