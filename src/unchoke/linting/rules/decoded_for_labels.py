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

from unchoke.code.facts.loaders import DIRECTORY_SETS, dataset_decodes
from unchoke.code.facts.loops import unwrapped
from unchoke.code.facts.vocabulary import DECODERS, DECODING_DATASETS
from unchoke.code.node_index import names_in
from unchoke.code.program import Program
from unchoke.linting.questions import Round, rounds_of, whole_round
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decode",
    title="pictures decoded only to learn labels, names or sizes",
    gain="an epoch of loading before each training",
)
_LAZY = frozenset({"PIL.Image.open", "Image.open", "nibabel.load", "pydicom.dcmread"})  # these read no pixels until asked


def check(program: Program) -> Iterator[Hit]:
    for loop in program.nodes(ast.For, ast.comprehension):
        kind = _decoding(program, loop)
        if kind and _ignores_picture(program, loop):
            over = program.text(unwrapped(program, loop.iter))
            yield Hit(
                whole_round(program, loop),
                f"going over `{over}` decodes every picture, and only what comes with it is used",
                {"over": over},
                _fix(kind, over),
                kind="nit" if kind == "tf" else None,
            )
    yield from _by_index(program)
    yield from _for_shape(program)


def _decoding(program: Program, loop: Round) -> str:
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


def _ignores_picture(program: Program, loop: Round) -> bool:
    """`for _, label in …`, or `for item in …` of which only `item[1]`, `item[2]` are used."""
    body = list(ast.iter_child_nodes(whole_round(program, loop))) if isinstance(loop, ast.comprehension) else loop.body
    used = [part for block in body if block is not loop for part in program.within(block, ast.Name)]
    target = loop.target
    if isinstance(target, ast.Tuple) and isinstance(target.elts[-1], ast.Tuple):  # behind the number that `enumerate` gives
        target = target.elts[-1]
    looked_at = any(isinstance(part, ast.Break) for part in body)  # one batch
    if looked_at or any(program.facts.is_forward(call) for call in program.calls_in(body)):
        return False  # one of the others is the picture
    if isinstance(target, ast.Tuple) and target.elts:
        names = {part.id for part in used}
        return not names & names_in(target.elts[0]) and bool(names & names_in(target))
    uses = [part for part in used if part.id in names_in(target)]
    return bool(uses) and all(_takes_later(program, use) for use in uses)


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
        held, kind = program.written(inner.value), _of_set(program, inner.value)
        mine = [head for head in rounds_of(program, node) if names_in(head.target) & names_in(inner.slice)]
        if kind and mine and f"len({held})" in program.text(mine[0].iter):
            message = f"`{program.text(node)}` decodes every picture of `{held}`, and only what comes with it is used"
            yield Hit(whole_round(program, mine[0]), message, {"over": held}, _fix(kind, held))


def _fix(kind: str, name: str) -> str:
    if kind == "library":
        return f"ask `{name}.targets` or `{name}.samples` (`.dataset` of a subset or loader), which need no pixels"
    if kind == "tf":
        return "take labels and names from the listing: `file_paths` and `class_names` of the data set, or the folder's names"
    return f"keep names and labels in a list in the data set's `__init__` and read them there, without `{name}`'s pictures"


def _for_shape(program: Program) -> Iterator[Hit]:
    """`cv2.imread(path).shape` in a loop, or a variable of which only the shape is used."""
    for call in program.nodes(ast.Call):
        parent = program.parent(call)
        shape = _is_shape(parent) or (isinstance(parent, ast.Assign) and _only_shape(program, parent))
        if shape and _decodes(program, call) and rounds_of(program, call):
            text = program.text(call.func)
            yield Hit(
                call,
                f"`{text}` decodes each picture for its `shape` alone",
                {"call": text},
                "`PIL.Image.open(path).size` reads the header and no pixels (width first)",
                kind="nit",  # once for a data set, and hardly a minute for thousands
            )


def _is_shape(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _decodes(program: Program, call: ast.Call) -> bool:
    """Itself, or as a short function of the file that gives back a decoded picture."""
    function = program.function_of(call)
    short = function is not None and len(function.body) <= 8 and program.facts.in_per_sample(call) is None
    inner = program.within(function, ast.Call) if short and function is not None else ()
    return any(program.name(item) in DECODERS - _LAZY for item in (call, *inner))


def _only_shape(program: Program, statement: ast.Assign) -> bool:
    """Is the shape all that is asked of the variable, as long as it holds this?"""
    name, scope = program.written(statement.targets[0]), program.enclosing_scope(statement)
    uses = [node for node in program.names(name) if isinstance(node.ctx, ast.Load) and program.enclosing_scope(node) is scope]
    once = len(program.assigned(name, statement)) == 1
    return once and bool(uses) and all(_is_shape(program.parent(node)) for node in uses)
