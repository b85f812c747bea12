"""Where values come from: marks put on expressions at their source, carried through assignments, calls, containers and classes.

In come a program and a `Judge` that says which calls make, change or drop marks; asked for an expression, out comes the set of
its marks. It is a question like others (`asking`), joined over branches. Marks are carried only through code that is known to
hand the same picture on; an unknown call drops them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unchoke.code.answers import remembered
from unchoke.code.bindings import Binding
from unchoke.code.facts.asking import Question
from unchoke.code.node_index import FunctionNode, parameters
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


@dataclass(frozen=True)
class CallMarks:
    """The marks of what a call is made on and given, worked out when asked."""

    flow: Flow
    node: ast.Call

    @property
    def callee(self) -> Marks:
        return self.flow.at(self.node.func)

    @property
    def receiver(self) -> Marks:
        return self.flow.at(self.flow.program.receiver(self.node))

    @property
    def args(self) -> tuple[Marks, ...]:
        return tuple(self.flow.at(item) for item in self.node.args)

    @property
    def keywords(self) -> tuple[tuple[str | None, Marks], ...]:
        return tuple((item.arg, self.flow.at(item.value)) for item in self.node.keywords)

    @property
    def given(self) -> Marks:
        return NONE.union(*self.args, *(marks for _, marks in self.keywords))

    @property
    def all(self) -> Marks:
        return self.receiver | self.given


class Judge:
    """Says what a call and a subscript do to marks (None leaves it to the flow), and which marks of a condition go on."""

    def __init__(self, program: Program, *sources: ast.AST) -> None:
        self.program = program
        self.sources = frozenset(sources)  # expressions that are marked themselves

    def call(self, _flow: Flow, _call: ast.Call, _handed: CallMarks, /) -> Marks | None:
        return None

    def subscript(self, _flow: Flow, _node: ast.Subscript, _base: Marks, /) -> Marks | None:
        return None

    def attribute(self, _node: ast.Attribute, _base: Marks, /) -> Marks | None:
        return None

    def condition(self, _test: Marks, /) -> Marks:
        return NONE


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

    def __init__(self, program: Program, judge: Judge) -> None:
        super().__init__(program)
        self._judge = judge
        self._asks_conditions = type(judge).condition is not Judge.condition

    def at(self, node: ast.AST | None) -> Marks:
        """The marks that an expression carries."""
        return self.ask(node) if node is not None else NONE

    def returned(self, function: ast.AST | None) -> Marks:
        """The marks of what a function returns or yields."""
        if isinstance(function, ast.Lambda):
            return self.ask(function.body)
        leaves = self.program.within(function, ast.Return, ast.Yield, ast.YieldFrom) if function is not None else ()
        return self.any_of(item.value for item in leaves if item.value is not None and self.program.index.scope(item) is function)

    def join(self, answers: Iterable[Marks]) -> Marks:
        return NONE.union(*answers)

    # Names

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
        if bound.how not in ("given", "added") or not self._asks_conditions:
            return None
        scope = self.program.index.scope(bound.node)
        tests = [above.test for above in self.program.ancestors(bound.node) if isinstance(above, ast.If)]
        mine = [test for test in tests if self.program.index.scope(test) is scope and not self.program.index.holds(test, node)]
        return self.any_of(self._given(bound)) | self._judge.condition(self.any_of(mine))

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

    # Expressions

    def _answer(self, node: ast.AST) -> Marks:
        own = {("source", node)} if node in self._judge.sources else NONE
        return self._marks(node) | own

    def _marks(self, node: ast.AST) -> Marks:
        if isinstance(node, ast.Subscript):
            base = self.ask(node.value)
            judged = self._judge.subscript(self, node, base)
            return base | self._judge.condition(self.ask(node.slice)) if judged is None else judged
        if isinstance(node, ast.IfExp):
            return self._judge.condition(self.ask(node.test)) | self.any_of([node.body, node.orelse])
        return super()._answer(node)

    def compared(self, node: ast.Compare) -> Marks:
        return self._judge.condition(self.any_of([node.left, *node.comparators]))

    def attribute(self, node: ast.Attribute) -> Marks:
        name = self.program.written(node)
        if name.startswith("self.") or (name and self.program.reaching(node)):
            return self.named(node) | self._of_bases(node, name)
        base = self.ask(node.value)
        judged = self._judge.attribute(node, base)
        return judged if judged is not None else base if node.attr in _SAME_ATTRIBUTES else NONE

    def _of_bases(self, node: ast.Attribute, name: str) -> Marks:
        owner = self.program.enclosing_class(node) if name.startswith("self.") else None
        bases = [self.program.classes.get(self.program.written(base)) for base in owner.bases] if owner is not None else []
        given = [item for base in bases if base is not owner for item in self.program.bindings.within(name, base)]
        return self.any_of(item.value for item in given if item.how == "given")

    def call(self, call: ast.Call) -> Marks:
        program = self.program
        handed = CallMarks(self, call)
        judged = self._judge.call(self, call, handed)
        if judged is not None:
            return judged
        function = program.function_of(call)
        if function is not None:
            return NONE if function.name == "__init__" else self.returned(function)
        method = program.method(call)
        if method in _MAPPING and call.args:
            return self.returned(program.callable_of(call.args[0]))
        if isinstance(call.func, ast.Call):
            made = program.method(call.func)
            if made == "delayed" and call.func.args:
                return self.returned(program.callable_of(call.func.args[0]))
            return handed.all if made == "Parallel" else NONE
        return handed.all if method in SAME_PICTURE else NONE


def _asks_if_there(test: ast.expr) -> bool:
    """`if image is None`, `if not ok`: what follows is a stand-in, not a change."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)
