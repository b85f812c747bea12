"""Where batches come from: PyTorch DataLoaders, tf.data `.batch`, Keras generators; their batch size, workers, role and data set.

In comes a program, out go `BatchSource` records. A loader made in a helper function, such as `def loader(ds, bs)`, is reported
once for each call of the helper, with what that call gives. A role is told by names, else by use: who loops over it, who is
given it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from unchoke.code.constant_values import UNKNOWN, Values
from unchoke.code.facts.loops import Loop, unwrapped
from unchoke.code.facts.per_sample import before, chain_calls
from unchoke.code.facts.vocabulary import DECODERS, DECODING_DATASETS, RASTER_OPENERS, Role, role_of
from unchoke.code.node_index import FunctionNode, arguments, parameters

_FLOWS = frozenset({"flow_from_directory", "flow_from_dataframe", "flow"})
_ANY_COUNT = frozenset(
    {"os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count", "psutil.cpu_count", "os.sched_getaffinity"}
)
_EVALUATED_OPTIONS = ("validation_data", "val_dataloaders", "val_loader", "valid_dl")


@dataclass(frozen=True, eq=False)
class BatchSource:
    """`call` makes it, or calls the helper that does; `maker` is the DataLoader call itself. `workers` is None if not given."""

    call: ast.Call
    framework: Literal["torch", "tfdata", "keras"]
    role: Role
    batch: Any
    batch_node: ast.expr | None
    workers: Any = None
    workers_node: ast.expr | None = None
    dataset: ast.expr | None = None
    dataset_class: ast.ClassDef | None = None
    decodes: bool = False
    maker: ast.Call | None = None
    targets: tuple[str, ...] = ()
    shuffles: bool = False

    @property
    def has_workers(self) -> bool | None:
        """True with workers, False without, None where it cannot be told."""
        if self.workers is UNKNOWN:
            return None
        return bool(self.workers)


def loaders(program: Values, training: list[Loop], is_evaluated: Callable[[ast.AST], bool]) -> list[BatchSource]:
    """All loaders, in order. What its names do not tell of a loader's role, its use does, or else that it shuffles."""
    found = [*_torch(program), *_tf_data(program), *_keras(program)]
    for place, loader in enumerate(found):
        if loader.role == "unknown":
            used = role_by_use(program, loader.targets, training, is_evaluated)
            found[place] = replace(loader, role="train" if used == "unknown" and loader.shuffles else used)
    return sorted(found, key=lambda loader: program.index.number[loader.call])


def _torch(program: Values) -> Iterator[BatchSource]:
    for call in program.calls_to("DataLoader", "ThreadDataLoader"):
        if program.name(call).startswith("?."):
            continue
        helper = _helper(program, call)
        uses = program.callers(helper) if helper is not None else []
        roles = _roles_of_comprehension(program, call)
        if roles:
            yield from (replace(_loader(program, call, call, None), role=role) for role in roles)
        elif helper is None or not uses:
            yield _loader(program, call, call, None)
        else:
            yield from (_loader(program, use, call, helper) for use in uses)


def _roles_of_comprehension(program: Values, call: ast.Call) -> list[Role]:
    """`{part: DataLoader(sets[part], …) for part in ["train", "val"]}` makes one loader of each."""
    for above in program.ancestors(call):
        if isinstance(above, ast.DictComp | ast.ListComp):
            parts = program.value(above.generators[0].iter)
            roles = [role_of(part) for part in parts if isinstance(part, str)] if isinstance(parts, tuple) else []
            return [role for role in roles if role != "unknown"]
        if isinstance(above, ast.stmt):
            break
    return []


def _helper(program: Values, call: ast.Call) -> FunctionNode | None:
    """The function that only makes this loader out of its parameters."""
    function = program.enclosing_function(call)
    if function is None or function.name.endswith("dataloader") or not isinstance(program.statement(call), ast.Return):
        return None
    names = set(parameters(function)) - {"self"}
    given = [program.argument(call, "dataset", 0), program.argument(call, "batch_size", 1)]
    used = {part.id for node in given if node is not None for part in program.within(node, ast.Name)}
    return function if used & names else None


def _loader(program: Values, call: ast.Call, maker: ast.Call, helper: FunctionNode | None) -> BatchSource:
    def given(name: str, position: int | None) -> ast.expr | None:
        node = program.argument(maker, name, position)
        if helper is None or not isinstance(node, ast.Name) or node.id not in parameters(helper):
            return node if node is not None or helper is None else program.argument(call, name)
        return program.argument_for(call, helper, node.id) or node

    dataset, batch, workers = given("dataset", 0), given("batch_size", 1), given("num_workers", 5)
    owner = program.assigned_class(dataset)
    targets = tuple(program.targets(call))
    return BatchSource(
        call=call,
        framework="torch",
        role=_role(program, call, targets, dataset),
        batch=program.value(batch) if batch is not None else 1,
        batch_node=batch,
        workers=_workers(program, workers),
        workers_node=workers,
        dataset=dataset,
        dataset_class=owner,
        decodes=dataset_decodes(program, dataset, owner),
        maker=maker,
        targets=targets,
        shuffles=program.value(given("shuffle", 2)) is True,
    )


def _workers(program: Values, node: ast.expr | None) -> Any:
    """A number, UNKNOWN, or None where not given; a share of the machine's cores counts as 2, the least it can mean."""
    if node is None:
        return None
    found = program.value(node)
    if found is not UNKNOWN:
        return found
    given = node if isinstance(node, ast.Call | ast.BinOp) else program.latest(node)
    calls = program.within(given, ast.Call) if given is not None else iter(())
    return 2 if any(program.name(call) in _ANY_COUNT for call in calls) else UNKNOWN


def _role(program: Values, call: ast.Call, targets: tuple[str, ...], dataset: ast.expr | None) -> Role:
    """By the variable's name, the function it is made in, the data set's name and arguments."""
    roles = (role_of(text) for text in _telling(program, call, targets, dataset))
    return next((role for role in roles if role != "unknown"), "unknown")


def _telling(program: Values, call: ast.Call, targets: tuple[str, ...], dataset: ast.expr | None) -> Iterator[str]:
    yield from targets
    statement = program.statement(call)
    function = program.enclosing_function(call)
    if isinstance(statement, ast.Return) and function is not None:
        yield function.name
    yield program.written(dataset)
    if isinstance(dataset, ast.expr) and not isinstance(dataset, ast.Call | ast.Name | ast.Attribute):
        yield from _words_of(program, dataset)
    made = program.latest(dataset) if isinstance(dataset, ast.Name | ast.Attribute) else dataset
    if isinstance(made, ast.Call):
        for keyword in made.keywords:
            if keyword.arg in ("train", "is_train", "training"):
                yield {True: "train", False: "eval"}.get(program.value(keyword.value), "")
            elif keyword.arg in ("split", "subset", "phase", "mode", "part", "stage", "image_set"):
                yield from _words_of(program, keyword.value)
        for item in arguments(made):
            yield from _words_of(program, item)


def _words_of(program: Values, node: ast.expr) -> Iterator[str]:
    if program.written(node):
        yield program.written(node)
    for part in program.within(node, ast.Constant, ast.Name):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Name):
            yield part.id


def dataset_decodes(program: Values, dataset: ast.expr | None, owner: ast.ClassDef | None) -> bool:
    """Does each sample of this data set decode an image or read a raster?"""
    if owner is not None:
        methods = program.methods(owner)
        items = [methods[name] for name in ("__getitem__", "__iter__") if name in methods]
        if items:
            return any(decodes(program, item) for item in items)
    made = program.made_by(dataset)
    return made.rpartition(".")[2] in DECODING_DATASETS


def decodes(program: Values, function: ast.AST) -> bool:
    """Does this function, or what it calls in the file, decode an image or open a raster or container?"""
    return bool(decode_calls(program, function, DECODERS | RASTER_OPENERS))


def decode_calls(program: Values, function: ast.AST, names: frozenset[str] = DECODERS) -> list[ast.Call]:
    """The decoding calls of a function and of those it calls."""
    parts = [function, *program.in_order(program.reach(function))]
    calls = dict.fromkeys(program.calls_in(parts))
    return [call for call in calls if program.name(call) in names or _is_turbo(program, call)]


def _is_turbo(program: Values, call: ast.Call) -> bool:
    return program.method(call) == "decode" and program.made_by(program.receiver(call)).endswith("TurboJPEG")


def _tf_data(program: Values) -> Iterator[BatchSource]:
    for method in ("batch", "padded_batch"):
        for call in chain_calls(program, method):
            batch = program.argument(call, "batch_size", 0)
            targets = tuple(program.targets(call))
            earlier = before(program, call)
            source = next((item for item in reversed(earlier) if item.args), None)
            yield BatchSource(
                call=call,
                framework="tfdata",
                role=_role(program, call, targets, source),
                batch=program.value(batch),
                batch_node=batch,
                dataset=program.receiver(call),
                decodes=any(_maps_decoding(program, item) for item in earlier),
                targets=targets,
            )


def _maps_decoding(program: Values, call: ast.Call) -> bool:
    if program.method(call) not in ("map", "from_generator", "interleave"):
        return False
    function = program.callable_of(call.args[0] if call.args else None)
    return function is not None and decodes(program, function)


def _keras(program: Values) -> Iterator[BatchSource]:
    for call in program.calls_to("image_dataset_from_directory", *_FLOWS):
        method = program.method(call)
        if method in _FLOWS and not isinstance(call.func, ast.Attribute):
            continue
        batch = program.argument(call, "batch_size")
        targets = tuple(program.targets(call))
        subset = program.value(program.argument(call, "subset"))
        role = role_of(subset) if isinstance(subset, str) else _role(program, call, targets, call.args[0] if call.args else None)
        yield BatchSource(
            call=call,
            framework="keras",
            role=role,
            batch=program.value(batch) if batch is not None else 32,
            batch_node=batch,
            workers=None,
            dataset=call.args[0] if call.args else None,
            decodes=method != "flow",
            targets=targets,
        )


def role_by_use(program: Values, names: Iterable[str], training: list[Loop], is_evaluated: Callable[[ast.AST], bool]) -> Role:
    """The role of a loader kept in variables of these names."""
    for name in names:
        if any(isinstance(loop.node, ast.For) and _is_over(program, loop.node, name) for loop in training):
            return "train"
        for part in program.names(name):
            role = _told_by(program, part, is_evaluated) if isinstance(part.ctx, ast.Load) else "unknown"
            if role != "unknown":
                return role
    return "unknown"


def _is_over(program: Values, loop: ast.For, name: str) -> bool:
    looped = (loop.iter, unwrapped(program, loop.iter))
    return any(program.written(part) == name for node in looped for part in program.within(node, ast.Name, ast.Attribute))


def _told_by(program: Values, part: ast.Name, is_evaluated: Callable[[ast.AST], bool]) -> Role:
    parent = program.parent(part)
    if isinstance(parent, ast.keyword) and parent.arg in _EVALUATED_OPTIONS:
        return "eval"
    if is_evaluated(part):
        return "eval"
    return role_of(program.method(parent)) if isinstance(parent, ast.Call) else "unknown"


def has_workers(program: Values, loader: BatchSource) -> bool | None:
    """True with worker processes, False without, None where it cannot be told; `**options` are looked into."""
    if loader.workers_node is not None:
        return loader.has_workers if loader.has_workers is not None else _of_choice(program, loader.workers_node)
    makers = [call for call in (loader.maker, loader.call) if call is not None]
    spread = [keyword.value for call in makers for keyword in call.keywords if keyword.arg is None]
    if not spread:
        return loader.has_workers
    found = [_in_options(program, node) for node in spread]
    return next((answer for answer in found if answer is True), None if None in found else False)


def _of_choice(program: Values, node: ast.expr) -> bool | None:
    """`8 if gpu else 2` has workers either way."""
    chosen = node if isinstance(node, ast.IfExp) else program.latest(node)
    if not isinstance(chosen, ast.IfExp):
        return None
    first, second = program.value(chosen.body), program.value(chosen.orelse)
    known = isinstance(first, int) and isinstance(second, int)
    return bool(first) if known and bool(first) == bool(second) else None


def _in_options(program: Values, node: ast.expr) -> bool | None:
    """What a dict of options says about `num_workers`."""
    made = node if isinstance(node, ast.Dict | ast.IfExp | ast.Call) else program.latest(node)
    if isinstance(made, ast.IfExp):
        answers = {_in_options(program, made.body), _in_options(program, made.orelse)}
        return True if True in answers else None if None in answers else False
    value: ast.expr | None = None
    if isinstance(made, ast.Dict):
        if any(key is None for key in made.keys):
            return None
        value = next(
            (item for key, item in zip(made.keys, made.values, strict=True) if program.value(key) == "num_workers"), None
        )
    elif isinstance(made, ast.Call) and program.name(made) == "dict":
        value = program.argument(made, "num_workers")
    else:
        return None
    if value is None:
        return None if _is_filled_later(program, node) else False
    found = program.value(value)
    return None if found is UNKNOWN else bool(found)


def _is_filled_later(program: Values, node: ast.expr) -> bool:
    """`options.update(cuda_options)` or `options["num_workers"] = 4`."""
    name = program.written(node)
    updated = any(program.written(program.receiver(call)) == name for call in program.calls_to("update"))
    kept = (item for item in program.nodes(ast.Subscript) if isinstance(item.ctx, ast.Store))
    return updated or any(program.written(item.value) == name for item in kept)


def runs_at_import(program: Values, node: ast.AST) -> bool:
    """Is it at module level, outside `if __name__ == "__main__":`?"""
    return program.enclosing_scope(node) is None and not program.in_main_guard(node)
