"""A folder listed for each sample.

`glob`, `os.listdir`, `iterdir` and `walk` read a whole folder to find the few files of one sample. The cost grows with the number
of files in it and is far higher on a network share or a cloud mount; it is paid for every sample in every epoch, and the answer
is always the same.

**Write instead.** List once, when the data set is made, and keep the names by sample:

    frames = defaultdict(list)
    for path in sorted(Path(root).rglob("*.jpg")):     # one walk
        frames[path.parent.name].append(path)
    self.frames = frames

In `__getitem__` take `self.frames[clip]`.

**When this is fine.** In `__init__`, in a generator before its loop (once an epoch), where the answer is kept, and in a script
that runs once. `unchoke check` lists once and writes down what it found.

Holds on every device and for every version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.keeping import is_kept
from unchoke.code.facts.origins import is_of_sample, runs_for_each_sample
from unchoke.code.facts.vocabulary import LIST_METHODS, LISTERS
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="list-per-sample",
    group="input",
    stage="list",
    title="folder listed for each sample",
    gain="4.2 s to 0.4 s with a folder of 4,000 files on a local disk",
    claim="Planted chokes",
    command="unchoke check",
)
_MORE = frozenset({"imutils.paths.list_images", "imutils.paths.list_files", "fastai.vision.all.get_image_files", "os.fwalk"})
_NO_LISTING = frozenset({"fnmatch.filter"})


def check(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        if not _lists(program, call) or not runs_for_each_sample(program, call) or is_kept(program, call, by_sample=False):
            continue
        name, function = program.text(call.func), program.enclosing_function(call)
        what = call.args[0] if call.args and isinstance(call.func, ast.Name | ast.Attribute) else program.receiver(call)
        yield Hit(
            call,
            f"`{name}` lists a folder once for every sample",
            evidence={"call": name, "in": function.name if function is not None else "lambda"},
            fix=_fix(program, call, what),
        )


def _lists(program: Program, call: ast.Call) -> bool:
    name = program.name(call)
    if name in LISTERS or name in _MORE:
        return name not in _NO_LISTING
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in LIST_METHODS:
        return False
    return name.startswith("?.") and program.function_of(call) is None


def _fix(program: Program, call: ast.Call, what: ast.expr | None) -> str:
    owner = program.enclosing_class(call)
    where = f"`{owner.name}.__init__`" if owner is not None else "the code that makes the data set"
    each = what is None or is_of_sample(program, what)
    return f"list once in {where} and keep the names" + (" by sample, in a dict" if each else "") + "; take them from there here"
