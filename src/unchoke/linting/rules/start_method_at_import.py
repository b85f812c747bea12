"""The start method of processes set while the file is imported.

`set_start_method` at module level runs on every import: in each worker that is started afresh, in a test, in another script
that wants one function of this file. The second call raises "context has already been set", and with `force=True` it changes
the method for code that has nothing to do with it. In a notebook the second run of the cell fails.

**Write instead.** Set it where the program starts:

    if __name__ == "__main__":
        multiprocessing.set_start_method("spawn")
        main()

or set nothing and say what one loader or pool needs: `multiprocessing.get_context("spawn").Pool(4)`,
`DataLoader(…, multiprocessing_context="spawn")`. The latter is also the way in a notebook.

**When this is fine.** Under the main guard, or in a function that only the program's start calls. Always a nit: who imports the
file is not told by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from unchoke.code.facts.loaders import runs_at_import
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(group="process", stage="load", title="`set_start_method` runs on import", kind="nit")


def check(program: Program) -> Iterator[Hit]:
    for call in program.calls_to("set_start_method"):
        if not runs_at_import(program, call) or program.function_of(call) is not None:
            continue
        method = program.value(program.argument(call, "method", 0))
        said = f'"{method}"' if isinstance(method, str) else "…"
        yield Hit(
            call,
            f"`{program.text(call.func)}({said})` runs whenever this {'cell' if program.is_notebook else 'file'} is "
            f"{'run again' if program.is_notebook else 'imported, in each worker too'}",
            {"call": program.text(call.func), "method": method if isinstance(method, str) else None},
            f"give it where it is needed: `DataLoader(…, multiprocessing_context={said})`, `mp.get_context({said}).Pool(…)`"
            if program.is_notebook
            else f'move it under `if __name__ == "__main__":`, or use `multiprocessing.get_context({said})`',
        )
