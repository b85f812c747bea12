"""Does a tf.data pipeline make its batches only when the model asks for them, or decode one image after another?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke_doctor.code.data import feeds, is_decode, is_random, pipeline
from unchoke_doctor.code.program import LOOPS, Program
from unchoke_doctor.code.trace import MISSING, argument
from unchoke_doctor.rules import Case, Hit, one_hit

_PYTHON = ("py_function", "numpy_function", "py_func")


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    maps: list[ast.Call] = []
    ends: list[ast.Call] = []
    works = ""
    for training in case.trainings:
        if training.data is None or not any(feed.kind == "tf.data" for feed in feeds(program, training.data)):
            continue
        steps = [step for step in pipeline(program, training.data) if program.is_own(step)]
        names = [program.name(step).rpartition(".")[2] for step in steps]
        for step, name in zip(steps, names, strict=True):
            if name == "map" and argument(program, step, "num_parallel_calls", 1) == MISSING and (work := _work(program, step)):
                maps.append(step)
                works = works or work
        if steps and not {"prefetch", "apply"} & set(names):
            ends.append(steps[0])
    maps, ends = list(dict.fromkeys(maps)), list(dict.fromkeys(ends))
    if maps:
        kind, basis, evidence = case.weigh()
        yield one_hit(maps, message=f"`{program.text(maps[0], 50)}` works on one image at a time: {works}{case.told()}", kind=kind, basis=basis,
                      evidence=evidence, fix="`map(…, num_parallel_calls=tf.data.AUTOTUNE)`, and `.prefetch(tf.data.AUTOTUNE)` at the end")  # fmt: skip
    elif ends:
        kind, basis, evidence = case.weigh("choke" if any(_decodes(program, end) for end in ends) else "note")
        yield one_hit(ends, message=f"the pipeline that ends with `{program.text(ends[0].func, 40)}` has no `prefetch`: the model waits while the next batch "
                      f"is made{case.told()}", kind=kind, basis=basis, evidence=evidence, fix="end it with `.prefetch(tf.data.AUTOTUNE)`; put `.cache()` in "
                      "front of random steps if the decoded images fit into memory")  # fmt: skip


def _work(program: Program, step: ast.Call) -> str:
    """What a mapped function does that is worth sharing out."""
    mapped = program.definition(step.args[0]) if step.args else None
    for call in program.reached(mapped) if mapped is not None else ():
        if is_decode(program, call) or program.name(call).rpartition(".")[2].startswith("decode_"):
            return f"it calls `{program.text(call.func)}`, on one core"
        if program.name(call).rpartition(".")[2] in _PYTHON:
            return "it runs Python, on one core"
        if is_random(program, call):
            return f"it calls `{program.text(call.func)}`, on one core"
    return ""


def _decodes(program: Program, end: ast.Call) -> bool:
    return any(_work(program, step) for step in pipeline(program, end) if isinstance(step, ast.Call) and not isinstance(step, LOOPS))
