"""Where values come from: marks put on expressions at their source, carried through assignments, calls, containers and classes.

In comes a program; asked for an expression, out comes the set of its marks. A subclass says which calls make, change or drop
marks. It is a question like others (`asking`), joined over branches. Marks are carried only through code that is known to hand
the same picture on; an unknown call drops them. `follow` asks it backwards: where does what was opened or decoded here go?
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from unchoke.code.bindings import Binding
from unchoke.code.facts.asking import Question
from unchoke.code.facts.vocabulary import DECODERS, RASTER_OPENERS
from unchoke.code.node_index import FunctionNode, arguments, parameters, remembered
from unchoke.code.program import Program

Mark = tuple[str, ast.AST]
Marks = frozenset[Mark]
NONE: Marks = frozenset()
AnyFunction = FunctionNode | ast.Lambda
_MAPPING = frozenset(
    {"map", "imap", "imap_unordered", "starmap", "map_async", "flat_map", "apply", "progress_map", "thread_map", "process_map"}
)
_SAME_ATTRIBUTES = frozenset({"T", "data", "pixel_array", "real", "mT", "array", "flat"})
# Calls whose result is the same picture, or a container of it.
SAME_PICTURE = frozenset(
    {"array", "asarray", "ascontiguousarray", "asanyarray", "stack", "vstack", "hstack", "dstack", "concatenate", "concat",
     "cat", "expand_dims", "squeeze", "transpose", "moveaxis", "swapaxes", "float32", "uint8", "float64", "float16", "clip",
     "pad", "rot90", "fliplr", "flipud", "flip", "roll", "copy", "deepcopy", "astype", "permute", "unsqueeze", "float", "half",
     "to", "numpy", "div", "div_", "mul", "add", "sub", "from_numpy", "tensor", "as_tensor", "FloatTensor", "Tensor",
     "convert_to_tensor", "constant", "cast", "convert_image_dtype", "resize", "resize_with_pad", "copyMakeBorder", "rotate",
     "warpAffine", "warpPerspective", "GaussianBlur", "medianBlur", "blur", "bilateralFilter", "addWeighted", "bitwise_and",
     "rectangle", "circle", "putText", "line", "drawContours", "undistort", "remap", "LUT", "normalize", "filter2D",
     "convertScaleAbs", "fastNlMeansDenoisingColored", "img_to_array", "array_to_img", "img_as_float", "img_as_float32",
     "img_as_ubyte", "rescale", "reshape", "flatten", "ravel", "crop", "convert", "list", "tuple", "dict", "zip", "enumerate",
     "reversed", "tqdm", "track", "progress_bar", "iter", "next", "get", "pop", "items", "values", "contiguous", "clone",
     "detach", "view", "train_test_split", "divide", "multiply", "subtract", "maximum", "minimum", "fromarray", "asfarray",
     "center_crop", "crop_to_bounding_box", "central_crop", "equalizeHist", "exif_transpose", "fit", "get_fdata",
     "GetArrayFromImage", "per_image_standardization", "to_numpy", "tolist", "pyrDown", "getRectSubPix", "merge", "shuffle",
     "permutation", "append"}
)  # fmt: skip

_OPENERS = DECODERS | RASTER_OPENERS | {"numpy.load", "tiffslide.TiffSlide", "cucim.CuImage"}
_READS = ("read", "ReadAsArray")
_FACTS_OF = frozenset(
    {"shape", "size", "width", "height", "ndim", "dtype", "mode", "count", "meta", "profile", "crs", "bounds", "transform",
     "nbytes", "info", "format", "attrs", "keys", "close", "mean", "std", "min", "max", "sum", "any", "all", "item", "tolist",
     "argmax", "getbbox"}
)  # fmt: skip
_NO_COPY = frozenset(
    {"len", "print", "isinstance", "range", "int", "float", "str", "bool", "type", "hasattr", "id", "repr", "max", "min"}
)


@remembered
def _mapped_over(program: Program) -> dict[ast.AST, list[ast.expr]]:
    """The items that `map(f, items)`, `data.map(f)` and `delayed(f)(item)` give to a function of this file."""
    found: dict[ast.AST, list[ast.expr]] = {}
    for call in program.nodes(ast.Call):
        maker = call.func
        if program.method(call) in _MAPPING and call.args:
            function = program.callable_of(call.args[0])
            items = [*call.args[1:], *([maker.value] if isinstance(maker, ast.Attribute) else [])]
        elif isinstance(maker, ast.Call) and program.method(maker) == "delayed" and maker.args:
            function, items = program.callable_of(maker.args[0]), call.args
        else:
            continue
        if function is not None:
            found.setdefault(function, []).extend(items)
    return found


class Flow(Question[Marks]):
    """The marks of every expression that is asked for, worked out when asked."""

    open = NONE
    plain = NONE
    deepest = 60
    asks_conditions = False  # does what a condition carries go on to what is given under it?

    def judged(self, _call: ast.Call, /) -> Marks | None:
        """What a call gives back; None leaves it to what is known of it."""
        return None

    def subscript(self, node: ast.Subscript, /) -> Marks:
        return self.ask(node.value)

    def part(self, node: ast.Attribute, /) -> Marks:
        """An attribute of something that has marks."""
        return self.ask(node.value) if node.attr in _SAME_ATTRIBUTES else NONE

    def condition(self, _tests: Iterable[ast.expr], /) -> Marks:
        """The marks of tests that go on to what hangs on them."""
        return NONE

    def receiver(self, call: ast.Call) -> Marks:
        """The marks of what a method is called on."""
        return self.ask(self.program.receiver(call))

    def given(self, call: ast.Call) -> Marks:
        """The marks of all that a call is given."""
        return self.any_of(arguments(call))

    def returned(self, function: ast.AST | None) -> Marks:
        """The marks of what a function returns or yields."""
        if isinstance(function, ast.Lambda):
            return self.ask(function.body)
        leaves = self.program.within(function, ast.Return, ast.Yield, ast.YieldFrom) if function is not None else ()
        return self.any_of(item.value for item in leaves if item.value is not None and self.program.index.scope(item) is function)

    def join(self, answers: Iterable[Marks]) -> Marks:
        return NONE.union(*answers)

    def named(self, node: ast.Name | ast.Attribute) -> Marks:
        found = self._in_force(node)
        return self.join([*(self._of_binding(item, node) for item in found), self.any_of(self._put_into(node))])

    def _in_force(self, node: ast.expr) -> list[Binding]:
        """A lone `if` that changes a name is taken to have done so, unless it only asks whether there is anything."""
        found = self.program.reaching(node)
        number = self.program.index.number[node]
        for place in range(len(found) - 1, 0, -1):
            item = found[place]
            test = self.program.parent(item.node)
            if not isinstance(test, ast.If) or test.orelse or _asks_if_there(test.test) or item.how != "given":
                continue
            if item.order < number and not self.program.index.holds(test, node):
                return found[place:]
        return found

    def bound(self, bound: Binding, node: ast.expr, /) -> Marks | None:
        """What is given under a condition that carries marks has them as well."""
        if not self.asks_conditions or bound.how not in ("given", "added"):
            return None
        scope = self.program.index.scope(bound.node)
        tests = [above.test for above in self.program.ancestors(bound.node) if isinstance(above, ast.If)]
        mine = [test for test in tests if self.program.index.scope(test) is scope and not self.program.index.holds(test, node)]
        return self.any_of(self._given(bound)) | self.condition(mine)

    def _put_into(self, node: ast.expr) -> Iterator[ast.expr]:
        """What is added to a list or a dict of this name, here or, for `self.x`, anywhere in its class."""
        name = self.program.written(node)
        own = self.program.enclosing_class(node) if name.startswith("self.") else self.program.index.scope(node)
        for at, value in self.program.added_to(name):
            home = self.program.enclosing_class(at) if name.startswith("self.") else self.program.index.scope(at)
            if home is own and not self.program.index.holds(value, node):
                yield value

    def handed(self, node: ast.Name) -> Marks:
        """A parameter: what callers give, and what is mapped over."""
        function: ast.AST | None = self.program.index.scope(node)
        while isinstance(function, AnyFunction) and node.id not in parameters(function):
            function = self.program.index.scope(function)
        if not isinstance(function, AnyFunction):
            return NONE
        calls = self.program.callers(function) if isinstance(function, FunctionNode) else []
        given = [self.program.argument_for(call, function, node.id) for call in calls if isinstance(function, FunctionNode)]
        return self.any_of([*given, *_mapped_over(self.program).get(function, ())])

    def round(self, over: ast.expr, _target: ast.expr, _name: str) -> Marks:
        return self.ask(over)

    def _answer(self, node: ast.AST) -> Marks:
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, ast.IfExp):
            return self.condition([node.test]) | self.any_of([node.body, node.orelse])
        return super()._answer(node)

    def compared(self, node: ast.Compare) -> Marks:
        return self.condition([node.left, *node.comparators])

    def attribute(self, node: ast.Attribute) -> Marks:
        name = self.program.written(node)
        if name.startswith("self.") or (name and self.program.reaching(node)):
            return self.named(node) | self._of_bases(node, name)
        return self.part(node)

    def _of_bases(self, node: ast.Attribute, name: str) -> Marks:
        owner = self.program.enclosing_class(node) if name.startswith("self.") else None
        bases = [self.program.classes.get(self.program.written(base)) for base in owner.bases] if owner is not None else []
        given = [item for base in bases if base is not owner for item in self.program.bindings.within(name, base)]
        return self.any_of(item.value for item in given if item.how == "given")

    def call(self, call: ast.Call) -> Marks:
        judged = self.judged(call)
        if judged is not None:
            return judged
        program, maker = self.program, call.func
        function = program.function_of(call)
        if function is not None:
            return NONE if function.name == "__init__" else self.returned(function)
        if program.method(call) in _MAPPING and call.args:
            return self.returned(program.callable_of(call.args[0]))
        if isinstance(maker, ast.Call):
            if program.method(maker) == "delayed" and maker.args:
                return self.returned(program.callable_of(maker.args[0]))
            return self.given(call) if program.method(maker) == "Parallel" else NONE
        return self.receiver(call) | self.given(call) if program.method(call) in SAME_PICTURE else NONE


def _asks_if_there(test: ast.expr) -> bool:
    """`if image is None`, `if not ok`: what follows is a stand-in, not a change."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)


@remembered
def follow(program: Program, call: ast.Call, *, same: bool = False) -> list[ast.expr]:
    """Every expression that holds what a call opened or decoded, itself first. With `same`, not what is made of that."""
    flow = _holding(program, same)
    kinds = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp)
    nodes = (node for part in _places(program, call) for node in program.within(part, *kinds))
    read = (node for node in nodes if not isinstance(getattr(node, "ctx", None), ast.Store))
    return list(dict.fromkeys([call, *(node for node in read if ("opened", call) in flow.ask(node))]))


def _places(program: Program, call: ast.Call) -> list[ast.AST]:
    """The function that makes the value, those it calls, and those that call it; a whole cell where there is none."""
    function = program.enclosing_function(call)
    if function is None:
        return [*program.nodes(ast.Module)]
    above = [program.enclosing_function(use) or use for use in program.callers(function)]
    return list(dict.fromkeys([function, *program.reach(function), *above]))


class _Holding(Flow):
    """All that is opened or decoded in the program is followed at once: each expression is asked only once."""

    def __init__(self, program: Program, same: bool) -> None:
        super().__init__(program)
        self._same = same

    def judged(self, call: ast.Call, /) -> Marks:
        name, method, function = self.program.name(call), self.program.method(call), self.program.function_of(call)
        found: Marks = frozenset({("opened", call)} if name in _OPENERS or method in _READS else ())
        if function is not None and function.name != "__init__":
            found |= self.returned(function)
        if self._same or name in _NO_COPY or method in _FACTS_OF:
            return found
        return found | self.receiver(call) | self.given(call)

    def part(self, node: ast.Attribute, /) -> Marks:
        return NONE if self._same or node.attr in _FACTS_OF else self.ask(node.value)

    def subscript(self, node: ast.Subscript, /) -> Marks:
        return NONE if self._same else self.ask(node.value)


_holding = remembered(_Holding)
