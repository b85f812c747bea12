"""CUDA taken for granted.

`.cuda()`, `.to("cuda")`, `torch.device("cuda")`, `accelerator="gpu"` or `tf.device("/GPU:0")` in a file that never looks
whether there is such a device. It runs where it was written and stops with an error, often after minutes of loading, on a
laptop, a Mac, a machine whose card is taken, or a session that was given no GPU. The code cannot be tried anywhere else either,
so mistakes are found on the expensive machine.

**Write instead.** Decide once, and hand the decision on:

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    x = x.to(device, non_blocking=True)

Lightning: `accelerator="auto"`. TensorFlow uses the GPU by itself: leave `tf.device` out, or write `"/GPU:0" if
tf.config.list_physical_devices("GPU") else "/CPU:0"`.

**When this is fine.** In a benchmark or a job that is only ever started on one kind of machine and must stop where there is no
such device; `assert torch.cuda.is_available()` at the top says so, at once, and silences this rule. One look anywhere in the
file is enough, and so is a test that is skipped where there is no card. An
option whose default is "cuda" is a choice left to the user and is not reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.facts.devices import asks_for_cuda, looks_for_cuda
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule, shortened

RULE = Rule(
    code="hard-coded-cuda",
    group="device",
    stage="device",
    title="CUDA taken for granted",
    kind="risk",
    gain="runs on machines without CUDA instead of stopping with an error",
    command="unchoke doctor",
    devices=("cuda",),
)
_TORCH = 'decide once, `device = torch.device("cuda" if torch.cuda.is_available() else "cpu")`, and write `.to(device)`'
_LIGHTNING = 'write `accelerator="auto"`: Lightning then takes the best device there is'
_TF = 'leave `tf.device` out, TensorFlow takes a GPU by itself; or ask `tf.config.list_physical_devices("GPU")` first'


def check(program: Program) -> Iterator[Hit]:
    places = asks_for_cuda(program)
    if not places or looks_for_cuda(program):
        return
    first, parent = places[0], program.parent(places[0])
    lines = sorted({(program.place(node).cell or 0, program.line(node)) for node in places})
    more = f", here and in {len(lines) - 1} more line{'s' if len(lines) > 2 else ''}" if len(lines) > 1 else ""
    if isinstance(parent, ast.keyword) and parent.arg in ("accelerator", "gpus"):
        fix = _LIGHTNING
    else:
        fix = (_TF if program.name(parent).startswith("tf.") else _TORCH) + (" at all of them" if more else "")
    yield Hit(
        first,
        f"`{_shown(program, first)}` takes CUDA for granted: nothing in this file looks whether there is any{more}",
        evidence={"places": len(places), "lines": [line for _, line in lines]},
        fix=fix,
    )


def _shown(program: Program, node: ast.AST) -> str:
    """The call or assignment that names the device, short."""
    parent = program.parent(node)
    if isinstance(parent, ast.keyword):
        return program.text(parent)
    named = not isinstance(node, ast.Call) and isinstance(parent, ast.Call | ast.Assign | ast.AnnAssign)
    return shortened(program, parent if named and parent is not None else node)
