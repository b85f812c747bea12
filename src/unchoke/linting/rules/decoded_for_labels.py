"""Pictures decoded only to learn their labels, names or sizes.

Going over a data set runs its `__getitem__`: every picture is opened, decoded and augmented, and then only the label is kept,
to count classes, to weigh a sampler or to compare file names. That is a whole epoch of loading before training begins. The
same holds for `cv2.imread(path).shape`, which decodes all pixels to learn two numbers.

**Write instead.** Ask for what is known without the pixels:

    labels = dataset.targets                              # ImageFolder, most torchvision sets
    labels = [label for _, label in dataset.samples]
    names = [path.name for path in dataset.paths]         # your own: a list kept in __init__
    width, height = Image.open(path).size                 # reads the header only

**When this is fine.** A data set that holds everything in memory, and a handful of samples that is looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.loaders import dataset_decodes
from unchoke.code.facts.loops import unwrapped
from unchoke.code.facts.training_feeds import DIRECTORY_SETS
from unchoke.code.facts.vocabulary import DECODERS, DECODING_DATASETS
from unchoke.code.node_index import names_in
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="decoded-for-labels",
    group="input",
    stage="decode",
    title="pictures decoded only to learn labels, names or sizes",
    gain="an epoch of loading before each training",
)
_LAZY = frozenset({"PIL.Image.open", "Image.open", "nibabel.load", "pydicom.dcmread"})  # these read no pixels until asked
Looped = ast.For | ast.comprehension


def check(program: Program) -> Iterator[Hit]:
    for loop in program.nodes(ast.For, ast.comprehension):
        kind = _decoding(program, loop)
        if kind and _ignores_picture(program, loop):
            over = program.text(unwrapped(program, loop.iter))
            at = program.parent(loop) if isinstance(loop, ast.comprehension) else loop
            yield Hit(
                at or loop,
                f"going over `{over}` decodes every picture, and only what comes with it is used",
                {"over": over},
                _fix(program, loop, kind),
                kind="nit" if kind == "tf" else None,
            )
    yield from _by_index(program)
    yield from _for_shape(program)


def _decoding(program: Program, loop: Looped) -> str:
    """`own`, `library` or `tf`, if what is gone over decodes a picture for each item; empty otherwise."""
    over = unwrapped(program, loop.iter)
    if not isinstance(over, ast.Name | ast.Attribute):
        return ""
    loader = next((item for item in program.facts.loaders if program.written(over) in item.targets), None)
    if loader is not None and loader.framework == "torch":
        return _of_set(program, loader.dataset) if loader.decodes else ""
    if any(program.method(call) in DIRECTORY_SETS for call in program.made_of(over)):
        return "tf"
    return _of_set(program, over)


def _of_set(program: Program, node: ast.expr | None) -> str:
    owner = program.assigned_class(node)
    if owner is not None:
        return "own" if owner in program.facts.datasets and dataset_decodes(program, node, owner) else ""
    return "library" if program.made_by(node).rpartition(".")[2] in DECODING_DATASETS else ""


def _ignores_picture(program: Program, loop: Looped) -> bool:
    """`for _, label in …`, or `for item in …` of which only `item[1]`, `item[2]` are used."""
    body: list[ast.AST] = list(loop.body) if isinstance(loop, ast.For) else _elements(program, loop)
    target = loop.target
    if isinstance(target, ast.Tuple) and program.method(loop.iter) == "enumerate" and len(target.elts) == 2:
        target = target.elts[1]
    if isinstance(target, ast.Tuple):
        first, rest = target.elts[0], target.elts[1:]
        used = {part.id for block in body for part in program.within(block, ast.Name)}
        takes_rest = any(names_in(item) & used for item in rest)
        return isinstance(first, ast.Name) and (first.id not in used) and takes_rest
    if not isinstance(target, ast.Name):
        return False
    uses = [part for block in body for part in program.within(block, ast.Name) if part.id == target.id]
    return bool(uses) and all(_takes_later(program, use) for use in uses)


def _elements(program: Program, loop: ast.comprehension) -> list[ast.AST]:
    owner = program.parent(loop)
    if isinstance(owner, ast.DictComp):
        return [owner.key, owner.value, *loop.ifs]
    return [owner.elt, *loop.ifs] if isinstance(owner, ast.ListComp | ast.SetComp | ast.GeneratorExp) else []


def _takes_later(program: Program, use: ast.Name) -> bool:
    """`item[1]`, `item["label"]`; not `item[0]`, which is the picture, nor the whole."""
    parent = program.parent(use)
    if not isinstance(parent, ast.Subscript) or parent.value is not use:
        return False
    key = program.value(parent.slice)
    if isinstance(key, str):
        return key.lower() in ("label", "labels", "target", "y", "class", "name", "path", "filename", "file", "id")
    return isinstance(key, int) and (key >= 1 or key == -1)


def _by_index(program: Program) -> Iterator[Hit]:
    """`[dataset[i][1] for i in range(len(dataset))]`."""
    for node in program.nodes(ast.Subscript):
        inner = node.value
        if not isinstance(inner, ast.Subscript) or program.value(node.slice) not in (1, 2, -1):
            continue
        rounds = [above for above in program.ancestors(node) if isinstance(above, ast.ListComp | ast.For | ast.GeneratorExp)]
        heads = [part for above in rounds for part in ([above] if isinstance(above, ast.For) else above.generators)]
        held = program.written(inner.value)
        counted = any(
            names_in(head.target) & names_in(inner.slice) and f"len({held})" in program.text(head.iter) for head in heads
        )
        if held and counted and _of_set(program, inner.value):
            kind = _of_set(program, inner.value)
            message = f"`{program.text(node)}` decodes every picture of `{held}`, and only what comes with it is used"
            yield Hit(rounds[0], message, {"over": held}, _fix_of(kind, held))


def _fix(program: Program, loop: Looped, kind: str) -> str:
    return _fix_of(kind, program.text(unwrapped(program, loop.iter)))


def _fix_of(kind: str, name: str) -> str:
    if kind == "library":
        return f"ask `{name}.targets` or `{name}.samples` (`.dataset` of a subset or loader), which need no pixels"
    if kind == "tf":
        return "take labels and names from the listing: `file_paths` and `class_names` of the data set, or the folder's names"
    return f"keep names and labels in a list in the data set's `__init__` and read them there, without `{name}`'s pictures"


def _for_shape(program: Program) -> Iterator[Hit]:
    """`cv2.imread(path).shape` in a loop, or a variable of which only the shape is used."""
    for call in program.nodes(ast.Call):
        name = program.name(call)
        if not (name in DECODERS - _LAZY or _is_decoding_helper(program, call)) or not _is_repeated(program, call):
            continue
        parent, statement = program.parent(call), program.statement(call)
        shape = isinstance(parent, ast.Attribute) and parent.attr == "shape"
        if not shape and isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
            shape = _only_shape(program, statement)
        if shape:
            text = program.text(call.func)
            yield Hit(
                call,
                f"`{text}` decodes each picture for its `shape` alone",
                {"call": text},
                "`PIL.Image.open(path).size` reads the header and no pixels (width first)",
            )


def _is_decoding_helper(program: Program, call: ast.Call) -> bool:
    """A short function of the file that gives back a decoded picture."""
    function = program.function_of(call)
    if function is None or len(function.body) > 8 or program.facts.in_per_sample(call) is not None:
        return False
    return any(program.name(inner) in DECODERS - _LAZY for inner in program.within(function, ast.Call))


def _is_repeated(program: Program, call: ast.Call) -> bool:
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    return bool(program.loops_around(call)) or any(isinstance(above, comprehensions) for above in program.ancestors(call))


def _only_shape(program: Program, statement: ast.Assign) -> bool:
    """Is the shape all that is asked of the variable, as long as it holds this?"""
    name = program.written(statement.targets[0])
    scope = program.enclosing_scope(statement)
    if not isinstance(statement.targets[0], ast.Name) or len(program.assigned(name, statement)) != 1:
        return False
    uses = [node for node in program.names(name) if isinstance(node.ctx, ast.Load) and program.enclosing_scope(node) is scope]
    parents = [program.parent(node) for node in uses]
    return bool(uses) and all(isinstance(parent, ast.Attribute) and parent.attr == "shape" for parent in parents)
