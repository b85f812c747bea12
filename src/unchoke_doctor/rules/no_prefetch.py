"""Does a tf.data pipeline make its batches only when the model asks for them, or decode one image after another?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import feeds, is_decode, is_random, pipeline
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import MISSING, argument, origins
from unchoke_doctor.fixes import add_keyword, append
from unchoke_doctor.rules import Case, Edit, Hit

_PYTHON = ("py_function", "numpy_function", "py_func")


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    yield from _python_generators(case)
    maps: dict[ast.Call, str] = {}
    ends: dict[ast.Call, bool] = {}
    cached = any(program.last(call) == "cache" for call in program.calls)
    for training in case.trainings:
        if training.data is None or not any(feed.kind == "tf.data" for feed in feeds(program, training.data)):
            continue
        steps = [step for step in pipeline(program, training.data) if program.is_own(step)]
        works = {step: _work(program, step) for step in steps if program.last(step) == "map"}
        maps |= {step: why for step, why in works.items() if why and argument(program, step, "num_parallel_calls", 1) == MISSING}
        if steps and not {"prefetch", "apply"} & {program.last(step) for step in steps}:
            ends[steps[0]] = any(works.values())
    tf = next((name for name, full in program.own.imports.items() if full == "tensorflow"), "")
    added = [append(program, end, f".prefetch({tf}.data.AUTOTUNE)") for end in ends] if tf else []
    for step in program.own_calls("map"):
        mapped = isinstance(step.func, ast.Attribute) and bool(step.args) and _is_tensorflow(program, step)
        serial = mapped and argument(program, step, "num_parallel_calls", 1) == MISSING
        if serial and step not in maps and (why := _work(program, step)):
            maps[step] = why
    if maps:
        made = [add_keyword(program, step, "num_parallel_calls", f"{tf}.data.AUTOTUNE") for step in maps] if tf else []
        edits: tuple[Edit, ...] = (*(edit for edit in made if edit is not None), *added)
        proven = not any(_is_stateful(program, step) for step in maps)
        said = f"`{program.text(next(iter(maps)), 50)}` works on one image at a time: {next(iter(maps.values()))}"
        fix = "`map(…, num_parallel_calls=tf.data.AUTOTUNE)`, and `.prefetch(tf.data.AUTOTUNE)` at the end"
        yield case.hit(maps, said, fix, edits=edits if proven else (), shown=edits)
    elif ends:
        kind = case.loading_kind("choke" if any(ends.values()) else "note")
        end = program.text(next(iter(ends)).func, 40)
        said = f"the pipeline that ends with `{end}` has no `prefetch`: the model waits while the next batch is made"
        if kind == "choke" and not cached:
            said += "; and no `cache`: the images are decoded anew in every epoch"
        fix = (
            "end it with `.prefetch(tf.data.AUTOTUNE)`; put `.cache()` before random steps if the decoded images fit into memory"
        )
        proven = not re.search(r"class_names|file_paths", case.texts)  # attributes that only the first dataset has
        yield case.hit(ends, said, fix, kind, edits=tuple(added) if proven else (), shown=tuple(added))


def _python_generators(case: Case) -> Iterator[Hit]:
    """`from_generator` over a generator that decodes: Python makes one image after another, whatever follows in the pipeline."""
    program = case.program
    for call in program.own_calls("from_generator"):
        named = [end for end in origins(program, call.args[0]) if isinstance(end, ast.Name | ast.Lambda)] if call.args else []
        makers = [made for end in named if (made := program.definition(end)) is not None]
        works = [one for made in makers for one in program.reached(made) if is_decode(program, one)]
        if works:
            said = f"`from_generator` calls `{program.text(works[0].func)}` in Python: one image at a time, on one core"
            fix = (
                "make the pipeline of paths, `from_tensor_slices(paths)`, read and decode in `map(…, num_parallel_calls="
                "tf.data.AUTOTUNE)` with `tf.io`, and end it with `.prefetch(tf.data.AUTOTUNE)`"
            )
            yield case.hit([call], said, fix)


def _is_tensorflow(program: Program, step: ast.Call) -> bool:
    """A map of tf.data, known by what the mapped function calls."""
    mapped = program.definition(step.args[0])
    return mapped is not None and any(program.name(call).startswith("tensorflow.") for call in program.reached(mapped))


def _work(program: Program, step: ast.Call) -> str:
    """What a mapped function does that is worth sharing out."""
    mapped = program.definition(step.args[0]) if step.args else None
    for call in program.reached(mapped) if mapped is not None else ():
        if program.last(call) in _PYTHON:
            return "it runs Python, on one core"
        works = is_decode(program, call) or program.last(call).startswith(("decode_", "resize")) or is_random(program, call)
        if works:
            return f"it calls `{program.text(call.func)}`, on one core"
    return ""


def _is_stateful(program: Program, step: ast.Call) -> bool:
    """Random numbers and Python code may come out in another order when several images are made at once."""
    mapped = program.definition(step.args[0])
    calls = program.reached(mapped) if mapped is not None else []
    return any(program.last(call) in _PYTHON or is_random(program, call) for call in calls)
