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
that runs once. Outside the class of a data set it is a nit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.vocabulary import LIST_METHODS, LISTERS
from unchoke.code.program import Program
from unchoke.linting.questions import function_around, is_done_anew, is_path_call
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="list",
    title="folder listed for each sample",
    gain="4.2 s to 0.4 s with a folder of 4,000 files on a local disk",
    claim="Planted chokes",
    command="unchoke check",
    in_training=True,
)
_LISTERS = LISTERS - {"fnmatch.filter"} | {
    "imutils.paths.list_images", "imutils.paths.list_files", "fastai.vision.all.get_image_files", "os.fwalk"
}  # fmt: skip


def check(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        if is_path_call(program, call, _LISTERS, LIST_METHODS) and is_done_anew(program, call, by_sample=False):
            name = program.text(call.func)
            owner = program.enclosing_class(call)
            where = f"`{owner.name}.__init__`" if owner is not None else "the code that makes the data set"
            yield Hit(
                call,
                f"`{name}` lists a folder once for every sample",
                evidence={"call": name, "in": function_around(program, call)[0]},
                fix=f"list once in {where} and keep the names by sample; take them from there here",
                fact="listed",
                kind=None if owner is not None else "nit",
            )
