"""A cache filled after chance had its say.

What is random must come after what is kept. A `.cache()` behind an augmenting `.map`, or a dictionary, `lru_cache` or file that
keeps a sample once a random transform was applied to it, shows the network the very same flipped, cropped and jittered picture
in every epoch. Nothing fails and the loss looks better than ever; the augmentation is simply gone.

**Write instead.** Keep what is the same each time, then draw:

    data = data.map(load).cache().map(augment).batch(32)                # tf.data

    if index not in self.cache:                                         # a data set of your own
        self.cache[index] = self.load(index)                            # decoded and resized, no chance in it
    return self.transform(self.cache[index])

**When this is fine.** Where only what is deterministic comes before the cache: decode, resize, normalise. MONAI's
`CacheDataset` looks for the first random transform by itself. A fixed set of augmented copies that is meant to be fixed is
better written out once, by a script.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.flow import NONE, CallMarks, Flow, Judge, Marks
from unchoke.code.facts.per_sample import is_random_number, is_random_transform, is_tf_dataset
from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.node_index import FunctionNode
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="cache-after-random",
    group="input",
    stage="transform",
    title="cache filled after random augmentation",
    kind="risk",
    gain="no speed: the augmentation that the cache freezes",
)

# A transform that draws; a picture that was loaded; a number that was drawn; a picture after a transform that draws.
_CHANCE, _LOADED, _DRAWN, _CHANGED = "chance", "loaded", "drawn", "changed"
_HOLDERS = frozenset(
    {"Compose", "Sequential", "OneOf", "SomeOf", "RandomApply", "RandomOrder", "ReplayCompose", "Sometimes", "ImageFolder",
     "DatasetFolder", "Subset", "ConcatDataset", "list"}
)  # fmt: skip
_LOADS = frozenset({"load", "read", "open", "imread", "fetch", "decode"})
_SAVES = {
    "numpy.save": 1,
    "numpy.savez": 1,
    "numpy.savez_compressed": 1,
    "torch.save": 0,
    "pickle.dump": 0,
    "joblib.dump": 0,
    "cv2.imwrite": 1,
}
_DECORATORS = frozenset({"functools.lru_cache", "functools.cache", "cachetools.cached", "cachetools.cachedmethod"})
_MEMORIES = frozenset({"joblib.Memory", "diskcache.Cache", "joblib.memory.Memory"})
_TRANSFORM_WORDS = frozenset({"transform", "transforms", "tfm", "tfms", "preprocess", "normalize", "tensor"})


def check(program: Program) -> Iterator[Hit]:
    if not _may_cache(program):
        return
    flow = Flow(program, _Chance(program))
    yield from _tf_caches(program, flow)
    yield from _kept_on_self(program, flow)
    yield from _decorated(program, flow)
    yield from _saved(program, flow)


def _may_cache(program: Program) -> bool:
    """Is there chance in the file, and something that keeps? Most files end here."""
    if not any(_may_keep(program, node) for node in program.nodes(ast.FunctionDef, ast.Assign, ast.Call)):
        return False
    return any(is_random_transform(program, call) or is_random_number(program, call) for call in program.nodes(ast.Call))


def _may_keep(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any(_is_caching(program, mark) for mark in node.decorator_list)
    if isinstance(node, ast.Call):
        if program.method(node) == "cache" or _is_caching(program, node):
            return True
        if program.facts.in_per_sample(node) is not None and _saved_value(program, node) is not None:
            return True
    return isinstance(node, ast.Assign | ast.Call) and any(
        _is_cache(program, node, program.written(store)) for store, _ in _stores(program, node)
    )


# Where it is kept


def _tf_caches(program: Program, flow: Flow) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        receiver = program.receiver(call)
        if program.method(call) != "cache" or receiver is None or not _kinds(flow.at(receiver)) & {_CHANGED}:
            continue
        calls = [(kind, node) for kind, node in flow.at(receiver) if isinstance(node, ast.Call)]
        parallel = (node for _, node in calls if program.method(node) == "map" and program.keyword(node, "num_parallel_calls"))
        if is_tf_dataset(program, receiver) or any(parallel):
            maps = program.in_order(node for kind, node in calls if kind == _CHANGED)
            first = program.text(maps[0].args[0]) if maps and maps[0].args else "a random function"
            yield Hit(
                call,
                f"`.cache()` comes after the random `.map({first})`: every epoch sees the same draws",
                evidence={"random": first},
                fix=f"put `.cache()` before `.map({first})`",
            )


def _kept_on_self(program: Program, flow: Flow) -> Iterator[Hit]:
    """`self.cache[i] = x`, `self.items.append(x)`, `self.items = [… for …]` of a data set; a dict of the module."""
    for node in program.nodes(ast.Assign, ast.Call):
        for store, value in _stores(program, node):
            name = program.written(store)
            if name and _is_frozen(flow.at(value)) and _is_cache(program, node, name):
                yield Hit(
                    node,
                    f"`{name}` keeps the sample after its random transform: every epoch gets the same draw",
                    evidence={"kept in": name, "what": program.text(value)},
                    fix=f"keep what is loaded in `{name}`, and apply the random transform to it after it is taken out",
                )


def _stores(program: Program, node: ast.Assign | ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                yield target.value, node.value
            elif isinstance(target, ast.Attribute) and isinstance(node.value, ast.ListComp | ast.DictComp):
                yield target, node.value
    elif program.method(node) in ("append", "setdefault") and isinstance(node.func, ast.Attribute) and node.args:
        yield node.func.value, node.args[-1]


def _is_cache(program: Program, node: ast.AST, name: str) -> bool:
    """Does it outlast the sample, and is it looked into for samples?"""
    function = program.enclosing_function(node)
    if function is None:
        return False
    owner = program.enclosing_class(node) if name.startswith("self.") else None
    if name.startswith("self."):
        filled = function.name in ("__init__", "setup", "_load", "preload", "_preload", "load", "_cache", "cache_all", "_build")
        if owner not in program.facts.datasets or not (filled or program.facts.in_per_sample(node)):
            return False
    elif program.facts.in_per_sample(node) is None or not _is_global(program, function, name):
        return False
    parts = program.within(owner, ast.Attribute) if owner is not None else program.nodes(ast.Name)
    return any(_is_read(program, node, part, name) for part in parts)


def _is_global(program: Program, function: FunctionNode, name: str) -> bool:
    scopes = [given.scope for given in program.given(name)]
    return None in scopes and function not in scopes


def _is_read(program: Program, store: ast.AST, part: ast.AST, name: str) -> bool:
    """Is it used for samples, elsewhere than where it is filled?"""
    if program.written(part) != name or program.index.holds(store, part) or program.facts.in_per_sample(part) is None:
        return False
    parent = program.parent(part)
    looked = isinstance(parent, ast.Subscript | ast.Compare) and not (
        isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
    )
    return looked or (isinstance(parent, ast.Attribute) and parent.attr in ("get", "setdefault", "pop"))


def _decorated(program: Program, flow: Flow) -> Iterator[Hit]:
    for function in program.nodes(ast.FunctionDef):
        if _is_frozen(flow.returned(function)) and any(_is_caching(program, mark) for mark in function.decorator_list):
            yield _caching_hit(function, function.name)
    for call in program.nodes(ast.Call):
        made_by_call = isinstance(call.func, ast.Call) and _is_caching(program, call.func)
        if (made_by_call or _is_caching(program, call)) and call.args:
            function_given = program.callable_of(call.args[0])
            if function_given is not None and _is_frozen(flow.returned(function_given)):
                yield _caching_hit(call, program.text(call.args[0]))


def _caching_hit(node: ast.AST, name: str) -> Hit:
    return Hit(
        node,
        f"`{name}` draws at random and its results are kept: the first draw comes back each time",
        evidence={"function": name},
        fix=f"keep only the loading part of `{name}`, and apply the random transform to what it returns",
    )


def _is_caching(program: Program, mark: ast.expr) -> bool:
    """`@lru_cache`, `@cache`, `@memory.cache`."""
    if program.name(mark) in _DECORATORS:
        return True
    func = mark.func if isinstance(mark, ast.Call) else mark
    return isinstance(func, ast.Attribute) and func.attr in ("cache", "memoize") and program.made_by(func.value) in _MEMORIES


def _saved(program: Program, flow: Flow) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        value = _saved_value(program, call)
        if value is None or not _is_frozen(flow.at(value)) or program.facts.in_per_sample(call) is None:
            continue
        if program.facts.is_conditional(call) or _path_is_constant(program, call):
            continue
        yield Hit(
            call,
            f"`{program.text(call.func)}` keeps the sample after its random transform: later epochs read that one draw",
            evidence={"saved": program.text(value)},
            fix="save it before the random transform, and apply that to what is read back",
        )


def _saved_value(program: Program, call: ast.Call) -> ast.expr | None:
    name = program.name(call)
    if name in _SAVES:
        return call.args[_SAVES[name]] if len(call.args) > _SAVES[name] else None
    return program.receiver(call) if program.method(call) == "save" and name.startswith("?.") else None


def _path_is_constant(program: Program, call: ast.Call) -> bool:
    """A picture for looking at, written over each time."""
    return any(isinstance(program.value(item), str) for item in call.args)


# Chance on its way


def _kinds(marks: Marks) -> set[str]:
    return {kind for kind, _ in marks}


def _is_frozen(marks: Marks) -> bool:
    """After a random transform, or a loaded picture mixed with numbers that were drawn."""
    kinds = _kinds(marks)
    return _CHANGED in kinds or {_LOADED, _DRAWN} <= kinds


class _Chance(Judge):
    """Which calls draw, load and transform."""

    def call(self, flow: Flow, call: ast.Call, handed: CallMarks, /) -> Marks | None:
        program = self.program
        name, method = program.name(call), program.method(call)
        if method == "map" and isinstance(call.func, ast.Attribute) and call.args:
            return self._mapped(flow, call, handed)
        if name.startswith("tf.image.") and is_random_transform(program, call):
            return handed.all | {(_CHANGED, call)}
        if is_random_transform(program, call) and (isinstance(call.func, ast.Name) or not name.startswith("?.")):
            return frozenset({(_CHANCE, call)})
        if is_random_number(program, call):
            return frozenset({(_DRAWN, call)})
        owner = program.classes.get(program.written(call.func))
        if owner is not None:
            return self._instance(flow, owner)
        if _CHANCE in _kinds(handed.callee) and (call.args or call.keywords):
            return handed.given | {(_CHANGED, call)}
        if method in _HOLDERS and _CHANCE in _kinds(handed.given):
            return frozenset(mark for mark in handed.given if mark[0] == _CHANCE)
        return self._loaded(call, name, method, handed)

    def _loaded(self, call: ast.Call, name: str, method: str, handed: CallMarks) -> Marks | None:
        program = self.program
        if name in DECODERS or name in ("numpy.load", "torch.load") or (name.startswith("?.") and method == "__getitem__"):
            return frozenset({(_LOADED, call)})
        if program.function_of(call) is None and not handed.all and _LOADS & set(words(method)):
            return frozenset({(_LOADED, call)})
        called = program.written(call.func).rpartition(".")[2]
        augments = any(word.startswith("aug") for word in words(called)) and program.function_of(call) is None
        if augments and call.args and _LOADED in _kinds(handed.given):
            return handed.given | {(_CHANGED, call)}
        carries = handed.given and program.function_of(call) is None and program.facts.in_per_sample(call) is not None
        return handed.given if carries and _TRANSFORM_WORDS & set(words(called)) else None

    def _instance(self, flow: Flow, owner: ast.ClassDef) -> Marks:
        """An own transform that draws, or a data set whose items are drawn."""
        methods = self.program.methods(owner)
        for name in ("__call__", "forward", "__getitem__", "apply"):
            function = methods.get(name)
            draws = function is not None and name != "__getitem__" and self.program.facts.draws_at_random(function)
            if draws or _is_frozen(flow.returned(function)):
                return frozenset({(_CHANCE, owner)})
        return NONE

    def _mapped(self, flow: Flow, call: ast.Call, handed: CallMarks) -> Marks | None:
        """`data.map(f)` of tf.data: random if `f` draws, by itself or through layers it calls."""
        program = self.program
        function = program.callable_of(call.args[0])
        draws = function is not None and _is_random(program, flow, function)
        return handed.receiver | {(_CHANGED, call)} if draws or _CHANCE in _kinds(handed.args[0]) else handed.receiver

    def subscript(self, flow: Flow, node: ast.Subscript, base: Marks, /) -> Marks | None:
        """An item of a data set that draws; a crop whose corner was drawn."""
        if _CHANCE in _kinds(base) and not isinstance(node.slice, ast.Constant):
            return base | {(_CHANGED, node)}
        drawn = frozenset(mark for mark in flow.at(node.slice) if mark[0] == _DRAWN)
        return base | drawn if isinstance(node.slice, ast.Slice | ast.Tuple) else base

    def condition(self, test: Marks, /) -> Marks:
        return frozenset(mark for mark in test if mark[0] == _DRAWN)


def _is_random(program: Program, flow: Flow, function: ast.AST) -> bool:
    """Does a mapped function draw: itself, in what it calls or wraps, or through a layer or transform that draws?"""
    parts = [function, *program.reach(function)]
    for part in list(parts):
        for call in program.within(part, ast.Call):
            if program.method(call) in ("py_function", "numpy_function", "py_func") and call.args:
                inner = program.callable_of(program.argument(call, "func", 0))
                parts += [inner, *program.reach(inner)] if inner is not None else []
    for part in parts:
        if program.facts.draws_at_random(part):
            return True
        if any(_CHANCE in _kinds(flow.at(call.func)) for call in program.within(part, ast.Call)):
            return True
    return False
