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

from unchoke.code.constant_values import UNKNOWN, Values, one_of
from unchoke.code.facts.loops import Loop, unwrapped
from unchoke.code.facts.per_sample import chain_calls
from unchoke.code.facts.vocabulary import DECODERS, DECODING_DATASETS, RASTER_OPENERS, Role, role_of
from unchoke.code.node_index import FunctionNode, arguments, default_of, parameters
from unchoke.code.tracing import Choices

FLOWS = frozenset({"flow_from_directory", "flow_from_dataframe", "flow"})
DIRECTORY_SETS = frozenset({"image_dataset_from_directory"})
_ANY_COUNT = frozenset(
    {"os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count", "psutil.cpu_count", "os.sched_getaffinity"}
)
_EVALUATED_OPTIONS = ("validation_data", "val_dataloaders", "val_loader", "valid_dl")


@dataclass(frozen=True, eq=False)
class BatchSource:
    """`call` makes it, or calls the helper that does; `maker` is the DataLoader call itself. `workers` is None if not given;
    `all_workers` are all numbers it may have, in whichever branch."""

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
    all_workers: tuple[Any, ...] = (None,)

    @property
    def has_workers(self) -> bool | None:
        """True with workers, False without, None where it cannot be told."""
        answers: set[bool | None] = {None if number is UNKNOWN else bool(number) for number in self.all_workers}
        return answers.pop() if len(answers) == 1 else None

    @property
    def may_have_workers(self) -> bool:
        """In one branch at least."""
        return any(number is not UNKNOWN and bool(number) for number in self.all_workers)


def loaders(program: Values, training: list[Loop], is_evaluated: Callable[[ast.AST], bool]) -> list[BatchSource]:
    """All loaders, in order. What its names do not tell of a loader's role, its use does, or else that it shuffles."""
    found = [*_torch(program), *_tf_data(program), *_keras(program), *_sequences(program)]
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
    def given(name: str, position: int | None) -> Choices:
        found = program.option(maker, name, position)
        if helper is None:
            return found
        own = parameters(helper)
        nodes = [
            program.argument_for(call, helper, node.id) or node if isinstance(node, ast.Name) and node.id in own else node
            for node in found.nodes
        ]
        return Choices(tuple(nodes), found.absent, found.unknown) if nodes else program.option(call, name)

    dataset, batch, workers = given("dataset", 0).last, given("batch_size", 1), given("num_workers", 5)
    counts = _workers(program, workers)
    owner = program.assigned_class(dataset)
    targets = tuple(program.targets(call))
    return BatchSource(
        call=call,
        framework="torch",
        role=_role(program, call, targets, dataset),
        batch=one_of(program.values_of(batch, 1)),
        batch_node=batch.last,
        workers=one_of(counts),
        workers_node=workers.last,
        dataset=dataset,
        dataset_class=owner,
        decodes=dataset_decodes(program, dataset, owner),
        maker=maker,
        targets=targets,
        shuffles=program.values_of(given("shuffle", 2), False) == (True,),
        all_workers=counts,
    )


def _workers(program: Values, given: Choices) -> tuple[Any, ...]:
    """The numbers it may be, None where not given; a share of the machine's cores counts as 2, the least it can mean."""
    found = program.values_of(given, None)
    if UNKNOWN not in found or given.unknown:
        return found
    made = [node for item in given.nodes for node in program.choices(item).nodes]
    counted = [any(program.name(call) in _ANY_COUNT for call in program.within(node, ast.Call)) for node in made]
    return (*(2 if item is UNKNOWN else item for item in found),) if counted and all(counted) else found


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
    if isinstance(dataset, ast.Subscript):  # sets[part], of {part: ImageFolder(…) for part in parts}
        held = program.latest(dataset.value)
        if isinstance(held, ast.DictComp):
            return dataset_decodes(program, held.value, program.assigned_class(held.value))
    made = program.made_by(dataset)
    return made.rpartition(".")[2] in DECODING_DATASETS


def decodes(program: Values, function: ast.AST) -> bool:
    """Does this function, or what it calls in the file, decode an image or open a raster or container?"""
    return bool(decode_calls(program, function, DECODERS | RASTER_OPENERS))


def decode_calls(program: Values, function: ast.AST, names: frozenset[str] = DECODERS) -> list[ast.Call]:
    """The decoding calls of a function and of those it calls."""
    parts = [function, *program.in_order(program.reach(function))]
    calls = dict.fromkeys(program.calls_in(parts))
    turbo = {call for call in program.calls_to("decode") if program.made_by(program.receiver(call)).endswith("TurboJPEG")}
    return [call for call in calls if program.name(call) in names or call in turbo]


def _source(
    program: Values,
    call: ast.Call,
    framework: Literal["tfdata", "keras"],
    batch: ast.expr | None,
    data: ast.expr | None,
    *,
    decodes: bool,
    told_by: ast.expr | None = None,
    owner: ast.ClassDef | None = None,
) -> BatchSource:
    """A source that is no DataLoader; its role is told by its names and by `told_by`, or else by its data."""
    targets = tuple(program.targets(call))
    role, size = _role(program, call, targets, told_by or data), program.value(batch)
    return BatchSource(call, framework, role, size, batch, dataset=data, dataset_class=owner, decodes=decodes, targets=targets)


def _tf_data(program: Values) -> Iterator[BatchSource]:
    for call in (*chain_calls(program, "batch"), *chain_calls(program, "padded_batch")):
        earlier = list(program.made_of(program.receiver(call)))
        source = next((item for item in reversed(earlier) if item.args), None)
        decoding = any(_maps_decoding(program, item) for item in earlier)
        batch, data = program.argument(call, "batch_size", 0), program.receiver(call)
        yield _source(program, call, "tfdata", batch, data, decodes=decoding, told_by=source)


def _maps_decoding(program: Values, call: ast.Call) -> bool:
    if program.method(call) not in ("map", "from_generator", "interleave"):
        return False
    function = program.callable_of(call.args[0] if call.args else None)
    return function is not None and decodes(program, function)


def _keras(program: Values) -> Iterator[BatchSource]:
    for call in program.calls_to(*DIRECTORY_SETS, *FLOWS):
        method = program.method(call)
        batch, subset = program.argument(call, "batch_size"), program.value(program.argument(call, "subset"))
        data = call.args[0] if call.args else None
        source = _source(program, call, "keras", batch, data, decodes=method != "flow")
        source = replace(source, role=role_of(subset)) if isinstance(subset, str) else source
        yield source if batch is not None else replace(source, batch=32)


def _sequences(program: Values) -> Iterator[BatchSource]:
    """Objects of the author's own Keras `Sequence` that are told a batch size: `Batches(valid_set, batch_size=1)`."""
    for owner in program.nodes(ast.ClassDef):
        init = program.methods(owner).get("__init__")
        is_sequence = any(base.rpartition(".")[2] in ("Sequence", "PyDataset") for base in program.bases(owner))
        size = next((name for name in ("batch_size", "bs", "batch", "batchsize") if init and name in parameters(init)), "")
        if not is_sequence or init is None or not size:
            continue
        for call in program.callers(init):
            batch = program.argument_for(call, init, size) or default_of(init, size)
            data = call.args[0] if call.args else None
            decoding = dataset_decodes(program, data, owner)
            yield _source(program, call, "keras", batch, data, decodes=decoding, owner=owner)


def role_by_use(program: Values, names: Iterable[str], training: list[Loop], is_evaluated: Callable[[ast.AST], bool]) -> Role:
    """The role of a loader kept in variables of these names."""
    for name in names:
        over = [loop.node.iter for loop in training if isinstance(loop.node, ast.For)]
        over += [unwrapped(program, node) for node in over]
        if any(program.written(part) == name for node in over for part in program.within(node, ast.Name, ast.Attribute)):
            return "train"
        for part in program.names(name):
            role = _told_by(program, part, is_evaluated) if isinstance(part.ctx, ast.Load) else "unknown"
            if role != "unknown":
                return role
    return "unknown"


def _told_by(program: Values, part: ast.Name, is_evaluated: Callable[[ast.AST], bool]) -> Role:
    parent = program.parent(part)
    if isinstance(parent, ast.keyword) and parent.arg in _EVALUATED_OPTIONS:
        return "eval"
    if is_evaluated(part):
        return "eval"
    return role_of(program.method(parent)) if isinstance(parent, ast.Call) else "unknown"


def runs_at_import(program: Values, node: ast.AST) -> bool:
    """Is it at module level, outside `if __name__ == "__main__":`?"""
    return program.enclosing_scope(node) is None and not program.in_main_guard(node)
