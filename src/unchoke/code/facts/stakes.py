"""What hangs on a line of a program: is it reached, how much data goes through it, is it a demonstration, is data read beside it?

In comes a program, out go plain answers, each as far as the files say. Rules ask what a line does; whether acting on that pays is
asked here, once for all of them.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

from unchoke.code.constant_values import is_number
from unchoke.code.facts.epochs import is_long
from unchoke.code.facts.loaders import DIRECTORY_SETS, FLOWS
from unchoke.code.facts.loops import Fit
from unchoke.code.facts.vocabulary import DECODING_DATASETS
from unchoke.code.node_index import FunctionNode, remembered
from unchoke.code.nodes import is_main_test
from unchoke.code.program import Program
from unchoke.core import listing

Definition = FunctionNode | ast.ClassDef
_SMALL_SETS = re.compile(
    r"(?:^|\.)(?:E|K|Q|USPS|Fashion|fashion_|Moving)?_?(?:MNIST|mnist|digits|CIFAR100?|cifar100?|SVHN|svhn|STL10|USPS|imdb|reuters|boston_housing)"
    r"(?:\.load_data)?$|(?:^|\.)load_(?:digits|iris|wine|breast_cancer|mnist)$"
)
_TOYS = re.compile(
    r"\b(?:balloon|coco(?:8|128)|hymenoptera|penn_?fudan\w*|cats_and_dogs_small|tf_flowers|"
    r"flower_photos|beans|horse2zebra|shepp[-_ ]?logan)\b",
    re.IGNORECASE,
)
_FEW_PASSES = 40_000  # decoding or moving so many samples takes minutes in all
_FEW_STEPS = 5000  # minutes
_TAKES = frozenset({"take", "sample", "choices", "head"})
_GALLERY = re.compile(r"^#\s?%%|^#{20,}\s*$|sphinx_gallery", re.MULTILINE)
_BESIDE = 200
_LONGEST = 2_000_000


@remembered
def trains_on_small_set(program: Program) -> bool:
    """MNIST, CIFAR and their like: an epoch takes seconds to a minute."""
    return any(map(_SMALL_SETS.search, program.calls_by_name))


@remembered
def is_little(program: Program) -> bool:
    """A toy set of lessons, or a subset: so few samples and epochs, as far as the file says, that all of it takes minutes."""
    texts = (node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str) and len(node.value) < 200)
    if any(map(_TOYS.search, (*program.calls_by_name, *texts))):
        return True
    few = _subset(program)
    counts = [fit.num_epochs for fit in program.facts.fits] + [loop.num_epochs for loop in program.facts.training_loops]
    known = [int(count) for count in counts if is_number(count)]
    return few is not None and len(known) == len(counts) and few * max(known, default=1) < _FEW_PASSES


def _subset(program: Program) -> int | None:
    """How many samples are left by `Subset(data, range(n))`, `data.take(n)`, `sorted(glob(…))[:n]`: the most of them."""
    found = []
    for call in program.calls_to("Subset", "select", *_TAKES):
        given = call.args[-1] if call.args else None
        counted = isinstance(given, ast.Call) and program.method(given) in ("range", "arange") and bool(given.args)
        if (program.method(call) in _TAKES) is not counted:
            found.append(program.value(given.args[-1] if isinstance(given, ast.Call) and counted else given))
    for part in program.nodes(ast.Subscript):
        window = part.slice
        if isinstance(window, ast.Slice) and window.upper is not None and _lists_files(program, part.value):
            first = program.value(window.lower) if window.lower is not None else 0
            last = program.value(window.upper)
            found.append(last - first if isinstance(last, int) and isinstance(first, int) and 0 <= first < last else None)
    counts = [count for count in found if isinstance(count, int) and count > 0]
    return max(counts) if counts and len(counts) == len(found) else None


def _lists_files(program: Program, node: ast.expr) -> bool:
    calls = [part for made in (node, program.latest(node)) if made is not None for part in program.within(made, ast.Call)]
    return any(program.method(call) in ("glob", "listdir", "rglob", "iterdir") for call in calls)


@remembered
def known_steps(program: Program, fit: Fit) -> float | None:
    """Epochs times `steps_per_epoch` of a fit, where the file gives both."""
    steps = program.value(program.argument(fit.call, "steps_per_epoch"))
    return fit.num_epochs * steps if is_number(steps) and is_number(fit.num_epochs) else None


@remembered
def is_gallery(program: Program) -> bool:
    """A script in cells for a gallery of examples: read from top to bottom, run once, with nothing put into functions."""
    text = "\n".join(cell.text for cell in program.source.cells) if not program.is_notebook else ""
    return len(_GALLERY.findall(text)) > 1


@remembered
def reads_ahead(program: Program) -> bool:
    """Does tf.data fetch batches beside the step?"""
    return bool(program.calls_to("prefetch", "prefetch_to_device"))


@remembered
def reads_pictures(program: Program) -> bool:
    """Does a training here decode pictures from files?"""
    folders = bool(program.calls_to(*DIRECTORY_SETS, *(FLOWS - {"flow"}), *DECODING_DATASETS))
    decodes = folders or any(loader.decodes for loader in program.facts.loaders)
    return decodes or any(program.facts.decodes(record.function) for record in program.facts.per_sample)


@remembered
def trains_on_photos(program: Program) -> bool:
    """A notebook whose training decodes pictures from files, for five epochs and more or as many as it does not say."""
    known = [known_steps(program, fit) for fit in program.facts.fits]
    if known and not program.facts.training_loops and all(steps is not None and steps < _FEW_STEPS for steps in known):
        return False
    counts = [fit.num_epochs for fit in program.facts.fits] + [loop.num_epochs for loop in program.facts.training_loops]
    long = any(is_long(count) or not is_number(count) for count in counts)
    return program.is_notebook and long and reads_pictures(program) and not trains_on_small_set(program)


def is_benchmark(program: Program) -> bool:
    """A file that is there to measure how long something takes."""
    return re.search(r"(?:^|_)bench(?:mark)?s?(?:_|$)", Path(program.source.path).stem) is not None


def is_reached(program: Program, node: ast.AST) -> bool:
    """Does anything run it? Not so: a function that its program, or whoever imports its module beside it, never names."""
    around = [above for above in (node, *program.ancestors(node)) if isinstance(above, Definition)]
    return not around or _is_named(program, around[-1], around[-2] if len(around) > 1 else None)


@remembered
def _is_named(program: Program, top: Definition, inner: Definition | None) -> bool:
    if top.decorator_list or top.name in ("main", "forward") or program.is_notebook:
        return True
    own = isinstance(top, ast.ClassDef) and isinstance(inner, FunctionNode) and not top.bases and not inner.name.startswith("__")
    method = inner.name if own and inner is not None else ""  # of a class that no framework knows
    uses = (use for use in program.names(top.name) if isinstance(use.ctx, ast.Load) and not program.index.holds(top, use))
    here = any(uses) or any(part.value == top.name for part in program.nodes(ast.Constant))
    called = not method or any(part.attr == method for part in program.nodes(ast.Attribute))
    if here and called:
        return True
    path, name = Path(program.source.path), method if here else top.name
    beside = _texts_beside(path.parent.absolute(), path.stem)
    return any(re.search(rf"\b{re.escape(name)}\b", text) for text in beside) or not (runs_itself(program) or beside)


def runs_itself(program: Program) -> bool:
    """A notebook or a script, not a file of nothing but definitions."""
    return program.is_notebook or any(
        _runs(item) for cell in program.source.cells if cell.tree is not None for item in cell.tree.body
    )


@remembered
def looks_beside(program: Program) -> bool | None:
    """Does a file beside it look whether there is CUDA? None if none of them speaks of it."""
    path = Path(program.source.path)
    texts = [text for text in texts_of(path.parent.absolute(), path.stem) if re.search(r"\.cuda\(|cuda\b[\\\"':]", text)]
    return any("is_available" in text for text in texts) if texts else None


def _runs(item: ast.stmt) -> bool:
    """A statement that does something when the file is run: a call, a loop, the main guard."""
    if isinstance(item, ast.If):
        return is_main_test(item.test)
    return isinstance(item, ast.For | ast.While | ast.With) or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Call))


def _texts_beside(folder: Path, stem: str) -> tuple[str, ...]:
    """The files of this folder and of the one above that name the module."""
    texts = (*texts_of(folder, stem), *texts_of(folder.parent))
    return tuple(text for text in texts if re.search(rf"\b{re.escape(stem)}\b", text))


@lru_cache(maxsize=64)
def texts_of(folder: Path, but: str = "") -> tuple[str, ...]:
    """What the scripts and notebooks of a folder say."""
    try:
        names = [name for name in listing.names(folder) if name.endswith((".py", ".ipynb"))]
    except OSError:
        return ()
    return tuple(text_of(folder / name) for name in names[:_BESIDE] if Path(name).stem != but)


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")[:_LONGEST]
    except OSError:
        return ""
