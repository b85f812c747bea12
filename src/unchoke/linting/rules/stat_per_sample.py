"""A file-system check for each sample.

`os.path.exists`, `is_file`, `stat` and their like ask the file system once for every sample in every epoch. On a local disk with
a warm cache one question is cheap; on a network share, a cloud mount or a cold disk it is a round trip, and it is paid again each
epoch although the answer does not change during a run.

**Write instead.** Look once, when the data set is made, and keep only what is there:

    present = set(os.listdir(folder))                  # one listing
    self.items = [row for row in rows if row.name in present]

In `__getitem__` open the file without asking; a missing one raises an error that names it.

**When this is fine.** In `__init__` or in a preparation script that runs once, where the answer is kept (`if path not in
self.known`), in an `except` that only explains an error, and where another process really does create the files during the run.
Always a nit: on which disk it asks, the file does not tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.vocabulary import STAT_METHODS, STATS
from unchoke.code.program import Program
from unchoke.linting.questions import function_around, is_done_anew, is_path_call
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="stat",
    title="file-system check for each sample",
    kind="nit",
    gain="4.6 s to 0.5 s where every sample was looked for in 400 folders on a local disk",
    claim="Planted chokes",
    command="unchoke check",
)


def check(program: Program) -> Iterator[Hit]:
    asked = [call for call in program.nodes(ast.Call) if is_path_call(program, call, STATS, STAT_METHODS)]
    asked = [call for call in asked if not call.args or not program.name(call).startswith("?.")]  # a path's own takes nothing
    found = [call for call in asked if is_done_anew(program, call, by_sample=False)]
    for call in found:
        name, (function, where) = program.text(call.func), function_around(program, call)
        same = sum(program.enclosing_function(other) is program.enclosing_function(call) for other in found)
        yield Hit(
            call,
            f"`{name}` asks the file system once for every sample" + (f"; {same} checks in {where}" if same > 1 else ""),
            evidence={"call": name, "in": function, "checks there": same},
            fix=_fix(program, call),
        )


def _path(program: Program, call: ast.Call) -> str:
    asked = call.args[0] if call.args else program.receiver(call)
    return program.text(asked) if asked is not None else ""


def _fix(program: Program, call: ast.Call) -> str:
    owner = program.enclosing_class(call)
    where = f"in `{owner.name}.__init__`" if owner is not None else "before the data set is made"
    path = f"`{asked}`" if (asked := _path(program, call)) else "the file"
    return f"list the folder once {where} and keep the answer for {path} with the sample, or leave out what is missing there"
