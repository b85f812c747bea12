"""Where values go: marks put on expressions at their source and carried through assignments, calls, containers and classes.

In come a program and a `Judge` that says which calls make, change or drop marks; out comes, for every expression that carries
any, the set of its marks. Statements are followed in order, functions of the file with what their callers give. It carries
marks only through code it knows to hand the same picture on; an unknown call drops them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from unchoke.code.node_index import FunctionNode, LoopNode, parameters
from unchoke.code.program import Program

Mark = tuple[str, ast.AST]
Marks = frozenset[Mark]
NONE: Marks = frozenset()
Scope = FunctionNode | ast.Lambda | None
Env = dict[str, Marks]
K = TypeVar("K")
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_ROUNDS = 4
_KEEPING = frozenset({"append", "appendleft", "add", "insert", "extend", "setdefault", "put"})
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
    """The marks of what a call is made on and given."""

    callee: Marks
    receiver: Marks
    args: tuple[Marks, ...]
    keywords: tuple[tuple[str | None, Marks], ...]

    @property
    def given(self) -> Marks:
        return NONE.union(*self.args, *(marks for _, marks in self.keywords))

    @property
    def all(self) -> Marks:
        return self.receiver | self.given


class Judge:
    """Says what a call and a subscript do to marks (None leaves it to the flow), and which marks of a condition go on."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def call(self, _flow: Flow, _call: ast.Call, _handed: CallMarks, /) -> Marks | None:
        return None

    def subscript(self, _flow: Flow, _node: ast.Subscript, _base: Marks, /) -> Marks | None:
        return None

    def condition(self, _test: Marks, /) -> Marks:
        return NONE


class Flow:
    """Runs over the whole program a few times, until nothing new is marked."""

    def __init__(self, program: Program, judge: Judge) -> None:
        self.program = program
        self._judge = judge
        self._at: dict[ast.AST, Marks] = {}
        self._final: dict[Scope, Env] = {}
        self._marked: dict[Scope, Env] = {}
        self._owned: dict[tuple[ast.ClassDef | None, str], Marks] = {}
        self._given: dict[tuple[ast.AST, str], Marks] = {}
        self._returned: dict[ast.AST, Marks] = {}
        self._parts: dict[ast.AST, list[Marks]] = {}
        self._under: list[Marks] = []
        self._grown = False
        for _ in range(_ROUNDS):
            self._grown = False
            self._round()
            if not self._grown:
                break

    # Answers

    def at(self, node: ast.AST | None) -> Marks:
        """The marks that an expression carries."""
        return self._at.get(node, NONE) if node is not None else NONE

    def returned(self, function: ast.AST | None) -> Marks:
        """The marks of what a function returns or yields."""
        return self._returned.get(function, NONE) if function is not None else NONE

    # Running

    def _round(self) -> None:
        module: Env = {}
        for cell in self.program.source.cells:
            if cell.tree is not None and cell.executed:
                self._block(cell.tree.body, module, None)
        self._ended(None, module)
        for scope in self.program.nodes(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda):
            self._function(scope)

    def _function(self, scope: FunctionNode | ast.Lambda) -> None:
        env: Env = {name: self._given.get((scope, name), NONE) for name in parameters(scope)}
        if isinstance(scope, ast.Lambda):
            self._leaves(scope, scope.body, env, scope)
        else:
            self._block(scope.body, env, scope)
        self._ended(scope, env)

    def _ended(self, scope: Scope, env: Env) -> None:
        marked = {name: marks for name, marks in env.items() if marks}
        self._grown |= marked != self._marked.get(scope, {})
        self._marked[scope], self._final[scope] = marked, env

    def _grow(self, table: dict[K, Marks], key: K, marks: Marks) -> None:
        """Something that other functions look at has new marks: another round is needed."""
        before = table.get(key, NONE) if marks else NONE
        if not marks <= before:
            table[key] = before | marks
            self._grown = True

    # Statements

    def _block(self, body: Sequence[ast.stmt], env: Env, scope: Scope) -> None:
        for statement in body:
            try:
                self._statement(statement, env, scope)
            except RecursionError:  # nested too deep to follow: no marks come out of it
                continue

    def _statement(self, node: ast.stmt, env: Env, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            value = self._expr(node.value, env, scope)
            for target in node.targets:
                self._bind(target, node.value, value, env, scope)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            value = self._expr(node.value, env, scope)
            if isinstance(node, ast.AugAssign):
                value |= self._expr(node.target, env, scope)
            self._store(node.target, value, env, scope)
        elif isinstance(node, ast.Expr):
            self._expr(node.value, env, scope)
        elif isinstance(node, ast.Return):
            self._leaves(scope, node.value, env, scope)
        elif isinstance(node, ast.ClassDef):
            self._block([item for item in node.body if not isinstance(item, FunctionNode)], env, scope)
        elif not isinstance(node, FunctionNode):
            self._compound(node, env, scope)

    def _compound(self, node: ast.stmt, env: Env, scope: Scope) -> None:
        if isinstance(node, ast.If):
            self._if(node, env, scope)
        elif isinstance(node, LoopNode):
            self._loop(node, env, scope)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                value = self._expr(item.context_expr, env, scope)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, item.context_expr, value, env, scope)
            self._block(node.body, env, scope)
        elif isinstance(node, ast.Try | ast.TryStar):
            self._try(node, env, scope)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self._block(case.body, env, scope)

    def _loop(self, node: LoopNode, env: Env, scope: Scope) -> None:
        """Twice, if the first round leaves marks for the second."""
        for _ in range(2):
            before = dict(env)
            if isinstance(node, ast.While):
                self._expr(node.test, env, scope)
            else:
                self._loop_over(node.target, node.iter, env, scope)
            self._block(node.body, env, scope)
            if all(marks == before.get(name, NONE) for name, marks in env.items()):
                break
        self._block(node.orelse, env, scope)

    def _if(self, node: ast.If, env: Env, scope: Scope) -> None:
        """A branch that leaves has no say in what follows; a lone `if` that changes a name is taken to have done so."""
        self._under.append(self._judge.condition(self._expr(node.test, env, scope)))
        body, other = dict(env), dict(env)
        self._block(node.body, body, scope)
        self._block(node.orelse, other, scope)
        self._under.pop()
        if isinstance(node.body[-1], _ENDS):
            env.update(other)
        elif (not node.orelse and not _asks_if_there(node.test)) or (node.orelse and isinstance(node.orelse[-1], _ENDS)):
            env.update(body)
        else:
            env.update({name: body.get(name, NONE) | other.get(name, NONE) for name in body.keys() | other.keys()})

    def _try(self, node: ast.Try | ast.TryStar, env: Env, scope: Scope) -> None:
        self._block(node.body, env, scope)
        for handler in node.handlers:
            other = dict(env)
            self._block(handler.body, other, scope)
            if not isinstance(handler.body[-1], _ENDS):
                env.update({name: env.get(name, NONE) | marks for name, marks in other.items()})
        self._block(node.orelse, env, scope)
        self._block(node.finalbody, env, scope)

    def _leaves(self, scope: Scope, value: ast.expr | None, env: Env, inner: Scope) -> None:
        """A value is returned or yielded from `scope`."""
        if value is None or scope is None:
            return
        self._grow(self._returned, scope, self._expr(value, env, inner))
        if isinstance(value, ast.Tuple):
            parts = [self.at(item) for item in value.elts]
            before = self._parts.setdefault(scope, parts)
            if len(before) == len(parts):
                self._parts[scope] = [old | new for old, new in zip(before, parts, strict=True)]

    # Assigning

    def _bind(self, target: ast.expr, source: ast.expr, value: Marks, env: Env, scope: Scope) -> None:
        """`target = source`, part by part where both have parts."""
        if isinstance(target, ast.Starred):
            target = target.value
        if not isinstance(target, ast.Tuple | ast.List):
            self._store(target, value, env, scope)
            return
        parts = self._parts_of(source, len(target.elts))
        for position, item in enumerate(target.elts):
            self._bind(item, source, parts[position] if parts else value, env, scope)

    def _parts_of(self, source: ast.expr, length: int) -> list[Marks] | None:
        if isinstance(source, ast.Tuple | ast.List) and len(source.elts) == length:
            return [self.at(item) for item in source.elts]
        function = self.program.function_of(source) if isinstance(source, ast.Call) else None
        parts = self._parts.get(function, []) if function is not None else []
        return parts if len(parts) == length else None

    def _store(self, target: ast.expr, value: Marks, env: Env, scope: Scope) -> None:
        value = value.union(*self._under) if value or isinstance(target, ast.Name) else value
        if isinstance(target, ast.Subscript):
            self._expr(target.slice, env, scope)
            kept = self._expr(target.value, env, scope) | value
            self._store_name(target.value, kept, env)
        else:
            self._store_name(target, value, env)

    def _store_name(self, target: ast.expr, value: Marks, env: Env) -> None:
        name = self.program.written(target)
        if isinstance(target, ast.Subscript) and not name:
            self._store_name(target.value, value, env)
        elif name.startswith("self."):
            self._grow(self._owned, (self.program.enclosing_class(target), name), value)
        elif name:
            env[name] = value

    def _loop_over(self, target: ast.expr, iterated: ast.expr, env: Env, scope: Scope) -> None:
        value = self._expr(iterated, env, scope)
        method = self.program.method(iterated) if isinstance(iterated, ast.Call) else ""
        if isinstance(iterated, ast.Call) and method in ("tqdm", "track", "list", "trange") and iterated.args:
            self._loop_over(target, iterated.args[0], env, scope)
        elif isinstance(iterated, ast.Call) and isinstance(target, ast.Tuple) and method in ("zip", "enumerate"):
            sources: list[ast.expr | None] = [None, *iterated.args[:1]] if method == "enumerate" else list(iterated.args)
            for item, source in zip(target.elts, sources, strict=False):
                if source is not None:
                    self._loop_over(item, source, env, scope)
                else:
                    self._store(item, NONE, env, scope)
        else:
            self._bind(target, iterated, value, env, scope)

    # Expressions

    def _expr(self, node: ast.expr, env: Env, scope: Scope) -> Marks:
        marks = self._marks(node, env, scope)
        if marks:
            self._at[node] = self._at.get(node, NONE) | marks
        return marks

    def _all(self, nodes: Iterable[ast.expr | None], env: Env, scope: Scope) -> Marks:
        found = NONE
        for node in nodes:
            if node is not None:
                found |= self._expr(node, env, scope)
        return found

    def _marks(self, node: ast.expr, env: Env, scope: Scope) -> Marks:
        if isinstance(node, ast.Name):
            return self._named(node.id, env, scope)
        if isinstance(node, ast.Constant):
            return NONE
        if isinstance(node, ast.Call):
            return self._call(node, env, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, env, scope)
        if isinstance(node, ast.Subscript):
            base = self._expr(node.value, env, scope)
            inner = self._expr(node.slice, env, scope)
            judged = self._judge.subscript(self, node, base)
            return base | self._judge.condition(inner) if judged is None else judged
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return self._comprehension(node, env, scope)
        if isinstance(node, ast.NamedExpr):
            value = self._expr(node.value, env, scope)
            self._bind(node.target, node.value, value, env, scope)
            return value
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            if not isinstance(node, ast.Await):
                self._leaves(scope, node.value, env, scope)
            return self._all([node.value], env, scope)
        return self._plain(node, env, scope)

    def _plain(self, node: ast.expr, env: Env, scope: Scope) -> Marks:
        if isinstance(node, ast.Compare):
            return self._judge.condition(self._all([node.left, *node.comparators], env, scope))
        if isinstance(node, ast.Lambda | ast.JoinedStr):
            return NONE
        if isinstance(node, ast.IfExp):
            test = self._judge.condition(self._expr(node.test, env, scope))
            return test | self._all([node.body, node.orelse], env, scope)
        return self._all([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)], env, scope)

    def _named(self, name: str, env: Env, scope: Scope) -> Marks:
        if name in env:
            return env[name]
        while scope is not None:
            scope = self.program.enclosing_scope(scope)
            final = self._final.get(scope, {})
            if name in final:
                return final[name]
        return self._final.get(None, {}).get(name, NONE)

    def _attribute(self, node: ast.Attribute, env: Env, scope: Scope) -> Marks:
        return self._attribute_of(node, self._expr(node.value, env, scope), env, scope)

    def _attribute_of(self, node: ast.Attribute, base: Marks, env: Env, scope: Scope) -> Marks:
        """The marks of `x.name`, those of `x` being known."""
        name = self.program.written(node)
        if name.startswith("self."):
            return self._owned_by(self.program.enclosing_class(node), name)
        if name and (name in env or name in self._final.get(None, {})):
            return self._named(name, env, scope)
        return base if base and node.attr in _SAME_ATTRIBUTES else NONE

    def _owned_by(self, owner: ast.ClassDef | None, name: str) -> Marks:
        found = self._owned.get((owner, name), NONE)
        for base in owner.bases if owner is not None else ():
            above = self.program.classes.get(self.program.written(base))
            if above is not None and above is not owner:
                found |= self._owned.get((above, name), NONE)
        return found

    def _comprehension(self, node: ast.expr, env: Env, scope: Scope) -> Marks:
        inner = dict(env)
        for generator in node.generators:  # type: ignore[attr-defined]
            self._loop_over(generator.target, generator.iter, inner, scope)
            self._all(generator.ifs, inner, scope)
        if isinstance(node, ast.DictComp):
            self._expr(node.key, inner, scope)
            return self._expr(node.value, inner, scope)
        return self._expr(node.elt, inner, scope)  # type: ignore[attr-defined]

    # Calls

    def _call(self, call: ast.Call, env: Env, scope: Scope) -> Marks:
        receiver, callee = self._callee(call.func, env, scope)
        args = tuple(self._expr(item, env, scope) for item in call.args)
        keywords = tuple((item.arg, self._expr(item.value, env, scope)) for item in call.keywords)
        handed = CallMarks(callee, receiver, args, keywords)
        function = self.program.function_of(call)
        if function is not None:
            self._hand_over(call, function, handed)
        judged = self._judge.call(self, call, handed)
        if judged is not None:
            return judged
        if function is not None:
            return NONE if function.name == "__init__" else self.returned(function)
        method = self.program.method(call)
        if method in _KEEPING and isinstance(call.func, ast.Attribute):
            self._store_name(call.func.value, receiver | handed.given.union(*(self._under if handed.given else ())), env)
        if method in _MAPPING and call.args:
            return self._mapped(handed, call.args[0])
        if isinstance(call.func, ast.Call):
            return self._called_twice(call.func, handed)
        return handed.all if method in SAME_PICTURE else NONE

    def _callee(self, func: ast.expr, env: Env, scope: Scope) -> tuple[Marks, Marks]:
        """The marks of the object a method is called on, and of what is called."""
        if not isinstance(func, ast.Attribute):
            return NONE, self._expr(func, env, scope)
        receiver = self._expr(func.value, env, scope)
        callee = self._attribute_of(func, receiver, env, scope)
        if callee:
            self._at[func] = self._at.get(func, NONE) | callee
        return receiver, callee

    def _hand_over(self, call: ast.Call, function: FunctionNode, handed: CallMarks) -> None:
        names = parameters(function)
        if names[:1] in (["self"], ["cls"]) and isinstance(self.program.parent(function), ast.ClassDef):
            names = names[1:]
        starred = [position for position, item in enumerate(call.args) if isinstance(item, ast.Starred)]
        for name, marks in zip(names, handed.args[: starred[0]] if starred else handed.args, strict=False):
            self._grow(self._given, (function, name), marks)
        for given, marks in handed.keywords:
            if given is not None:
                self._grow(self._given, (function, given), marks)

    def _called_twice(self, maker: ast.Call, handed: CallMarks) -> Marks:
        """`delayed(f)(item)` and `Parallel(…)(…)` of joblib."""
        method = self.program.method(maker)
        if method == "delayed" and maker.args:
            return self._mapped(CallMarks(NONE, NONE, (NONE, *handed.args), ()), maker.args[0])
        return handed.all if method == "Parallel" else NONE

    def _mapped(self, handed: CallMarks, given: ast.expr) -> Marks:
        """`map(f, items)`, `pool.map(f, items)`, `data.map(f)`: what `f` makes of the items."""
        function = self.program.callable_of(given)
        if function is None:
            return NONE
        names = [name for name in parameters(function) if name not in ("self", "cls")]
        items = handed.receiver.union(*handed.args[1:])
        for name in names:
            self._grow(self._given, (function, name), items)
        return self.returned(function)


def _asks_if_there(test: ast.expr) -> bool:
    """`if image is None`, `if not ok`: what follows is a stand-in, not a change."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)
