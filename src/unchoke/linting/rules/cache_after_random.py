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
from collections.abc import Iterable, Iterator

from unchoke.code.facts.flow import NONE, Flow, Marks
from unchoke.code.facts.keeping import is_remembered
from unchoke.code.facts.per_sample import SampleFunction, is_random_number, is_random_transform, is_tf_dataset, reached_functions
from unchoke.code.facts.vocabulary import DECODERS, words
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
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
_TRANSFORM_WORDS = frozenset({"transform", "transforms", "tfm", "tfms", "preprocess", "normalize", "tensor"})
_FILLING = ("__init__", "setup", "_load", "preload", "_preload", "load", "_cache", "cache_all", "_build")


def check(program: Program) -> Iterator[Hit]:
    if any(_draws(program, call) for call in program.nodes(ast.Call)):
        flow = _Chance(program)
        yield from _tf_caches(program, flow)
        yield from _kept_on_self(program, flow)
        yield from _remembered(program, flow)


def _draws(program: Program, call: ast.Call) -> bool:
    return is_random_transform(program, call) or is_random_number(program, call)


def _tf_caches(program: Program, flow: Flow) -> Iterator[Hit]:
    for call in program.calls_to("cache"):
        receiver = program.receiver(call)
        maps = program.in_order(node for kind, node in flow.ask(receiver) if kind == _CHANGED and isinstance(node, ast.Call))
        if maps and is_tf_dataset(program, receiver):
            first = program.text(maps[0].args[0]) if maps[0].args else "a random function"
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
            if name and _is_cache(program, node, name) and _is_frozen(flow.ask(value)):
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
    """Does it outlast the sample: on `self` of a data set, or a variable of the module that per-sample code fills?"""
    function = program.enclosing_function(node)
    per_sample = program.facts.in_per_sample(node) is not None
    if function is not None and name.startswith("self."):
        return program.enclosing_class(node) in program.facts.datasets and (per_sample or function.name in _FILLING)
    scopes = [given.scope for given in program.given(name)]
    return per_sample and None in scopes and function not in scopes


def _remembered(program: Program, flow: Flow) -> Iterator[Hit]:
    for function in program.nodes(ast.FunctionDef):
        if is_remembered(program, function) and _is_frozen(flow.returned(function)):
            name = function.name
            yield Hit(
                function,
                f"`{name}` draws at random and its results are kept: the first draw comes back each time",
                evidence={"function": name},
                fix=f"keep only the loading part of `{name}`, and apply the random transform to what it returns",
            )


def _kinds(marks: Marks) -> set[str]:
    return {kind for kind, _ in marks}


def _is_frozen(marks: Marks) -> bool:
    """After a random transform, or a loaded picture mixed with numbers that were drawn."""
    kinds = _kinds(marks)
    return _CHANGED in kinds or {_LOADED, _DRAWN} <= kinds


class _Chance(Flow):
    """Which calls draw, load and transform."""

    asks_conditions = True

    def judged(self, call: ast.Call, /) -> Marks | None:
        program = self.program
        name, method = program.name(call), program.method(call)
        if method == "map" and isinstance(call.func, ast.Attribute) and call.args:
            return self._mapped(call)
        if is_random_transform(program, call) and (isinstance(call.func, ast.Name) or not name.startswith("?.")):
            return frozenset({(_CHANCE, call)})
        if is_random_number(program, call):
            return frozenset({(_DRAWN, call)})
        owner = program.classes.get(program.written(call.func))
        if owner is not None:
            return self._instance(owner)
        if (call.args or call.keywords) and _CHANCE in _kinds(self.ask(call.func)):
            return self.given(call) | {(_CHANGED, call)}
        if method in _HOLDERS and _CHANCE in _kinds(self.given(call)):
            return frozenset(mark for mark in self.given(call) if mark[0] == _CHANCE)
        return self._loaded(call, name, method)

    def _loaded(self, call: ast.Call, name: str, method: str) -> Marks | None:
        own = self.program.function_of(call) is not None
        named = not own and _LOADS & set(words(method)) and not self.receiver(call) and not self.given(call)
        if named or name in DECODERS or name in ("numpy.load", "torch.load"):
            return frozenset({(_LOADED, call)})
        transforms = _TRANSFORM_WORDS & set(words(self.program.written(call.func).rpartition(".")[2]))
        return (self.given(call) or None) if transforms and not own else None

    def _instance(self, owner: ast.ClassDef) -> Marks:
        """An own transform that draws, or a data set whose items are drawn."""
        methods = self.program.methods(owner)
        applied = [methods[name] for name in ("__call__", "forward", "apply") if name in methods]
        draws = any(self.program.facts.draws_at_random(function) for function in applied)
        return frozenset({(_CHANCE, owner)}) if draws or _is_frozen(self.returned(methods.get("__getitem__"))) else NONE

    def _mapped(self, call: ast.Call) -> Marks:
        """`data.map(f)` of tf.data: random if `f` draws, by itself or through layers it calls."""
        function = self.program.callable_of(call.args[0])
        reached = reached_functions(self.program, [SampleFunction(function, "map")]) if function is not None else ()
        calls = self.program.calls_in(reached)
        draws = any(_draws(self.program, inner) or _CHANCE in _kinds(self.ask(inner.func)) for inner in calls)
        changed = draws or _CHANCE in _kinds(self.ask(call.args[0]))
        return self.receiver(call) | ({(_CHANGED, call)} if changed else NONE)

    def subscript(self, node: ast.Subscript, /) -> Marks:
        """An item of a data set that draws; a crop whose corner was drawn."""
        base = self.ask(node.value)
        if _CHANCE in _kinds(base) and not isinstance(node.slice, ast.Constant):
            return base | {(_CHANGED, node)}
        return base | self.condition([node.slice]) if isinstance(node.slice, ast.Slice | ast.Tuple) else base

    def condition(self, tests: Iterable[ast.expr], /) -> Marks:
        return frozenset(mark for mark in self.any_of(tests) if mark[0] == _DRAWN)
