"""Processes started by a script without a main guard.

Where processes are started afresh (macOS, Windows, Linux from Python 3.14 on) each worker first imports the script. What
stands at module level runs again there: the workers would start workers. Python stops that with "An attempt has been made to
start a new process before the current process has finished its bootstrapping phase", or the script's set-up is done once for
each worker.

**Write instead.**

    def main() -> None:
        loader = DataLoader(data, num_workers=4)
        for batch in loader: ...

     if __name__ == "__main__":         main()

Data set classes and functions stay at module level, so that workers can import them.

**When this is fine.** A script that only ever runs on Linux before Python 3.14, where workers are forked; and notebooks, which
are not imported by their workers. `num_workers=0` and pools of threads need no guard, nor does a loader that is made at module
level and only gone through in functions that run under the guard. In the `# %%` cells of a gallery script, which a guard cannot
span, it is a nit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.loaders import runs_at_import
from unchoke.code.facts.stakes import is_gallery
from unchoke.code.node_index import names_in, targets_of
from unchoke.code.program import Program
from unchoke.code.source import is_borrowed
from unchoke.linting.questions import tests_round, torch_loaders
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="process",
    stage="load",
    title='processes are started without `if __name__ == "__main__":`',
    kind="risk",
    devices=("macOS", "Windows", "Linux from Python 3.14"),
)
_POOLS = frozenset(
    {"multiprocessing.Pool", "multiprocessing.pool.Pool", "concurrent.futures.ProcessPoolExecutor",
     "concurrent.futures.process.ProcessPoolExecutor"}
)  # fmt: skip


def check(program: Program) -> Iterator[Hit]:
    if program.is_notebook:
        return
    loaders = [loader.call for loader in torch_loaders(program) if loader.may_have_workers]
    started = program.in_order([*loaders, *(call for call in program.nodes(ast.Call) if _is_pool(program, call))])
    direct = next((call for call in started if runs_at_import(program, call) and _goes_at_import(program, call)), None)
    if direct is not None:
        yield _hit(program, direct, direct)
        return
    for call in started:
        option = is_borrowed(program.place(call)) and tests_round(program, call)  # of whoever wrote that
        outer = None if option else _run_from(program, call)
        if outer is not None and (not _is_only_returned(program, call) or _goes_at_import(program, outer)):
            yield _hit(program, outer, call)
            return


def _hit(program: Program, at: ast.Call, call: ast.Call) -> Hit:
    what = program.text(call.func)
    through = "" if at is call else f" through `{program.text(at.func)}()`"
    return Hit(
        at,
        f"`{what}` starts processes at module level{through}: each of them imports this script and would run it again",
        {"call": what},
        'put what runs (not imports, constants, functions and classes) under `if __name__ == "__main__":`'
        if at is call
        else f'put `{program.text(at.func)}()` and what runs below it under `if __name__ == "__main__":`',
        kind="nit" if is_gallery(program) or _is_by_case(program, call) else None,  # a gallery's cells stand at module level
    )


def _is_by_case(program: Program, call: ast.Call) -> bool:
    """Workers in one branch only, with a card as a rule."""
    return any(loader.call is call and loader.has_workers is not True for loader in torch_loaders(program))


def _is_pool(program: Program, call: ast.Call) -> bool:
    of_context = program.method(call) == "Pool" and program.made_by(program.receiver(call)) == "multiprocessing.get_context"
    return program.name(call) in _POOLS or of_context


def _goes_at_import(program: Program, made: ast.Call) -> bool:
    """Is what is made here used at import? A pool starts at once; a loader starts its workers when it is gone through."""
    maker, statement = program.function_of(made), program.statement(made)
    inner = program.within(maker, ast.Call) if maker is not None else iter(())
    loaders = [call for call in inner if program.method(call) == "DataLoader"]
    starts = _is_pool(program, made) and "Executor" not in program.name(made)  # an executor waits for work
    if starts or any(not _is_only_returned(program, call) for call in loaders):
        return True
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return True
    uses = [use for name in names_in(*targets_of(statement)) for use in program.names(name)]
    return not uses or any(_goes_through(program, use) for use in uses)


def _goes_through(program: Program, use: ast.Name) -> bool:
    """Is the loader of this name taken at import, itself or by a function called there? Its length and settings start nothing."""
    parent = program.parent(use)
    if not isinstance(use.ctx, ast.Load) or isinstance(parent, ast.Attribute) or program.name(parent) == "len":
        return False
    return runs_at_import(program, use) or _run_from(program, use) is not None


def _is_only_returned(program: Program, made: ast.Call) -> bool:
    """Does the function that makes the loader only hand it back?"""
    function, statement = program.enclosing_function(made), program.statement(made)
    if function is None or _is_pool(program, made) or any(isinstance(above, ast.Call) for above in program.ancestors(made)):
        return False
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return isinstance(statement, ast.Return)
    names = names_in(*targets_of(statement))
    read = [use for use in program.within(function, ast.Name) if use.id in names and isinstance(use.ctx, ast.Load)]
    return bool(read) and all(isinstance(program.statement(use), ast.Return) for use in read)


def _run_from(program: Program, node: ast.AST) -> ast.Call | None:
    """The call at module level that runs the function in which `node` stands."""
    function = program.enclosing_function(node)
    calls = (call for call in program.nodes(ast.Call) if runs_at_import(program, call))
    return next((call for call in calls if function in program.reach(call)), None)
