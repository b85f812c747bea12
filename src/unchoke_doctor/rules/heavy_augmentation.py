"""Is each image warped on the CPU at a cost above its decoding: heavy transforms, at full size, scaled up, or by SciPy?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke_doctor.code.data import (
    FLOWS, HEAVY, MEMORY_DATASETS, SIZING, WARPS, compositions, constants, feeds, known_size, listed_transforms, random_options, size_of, transform_steps,
)  # fmt: skip
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import argument_values, given, number, origins
from unchoke_doctor.rules import Case, Hit, one_hit

_DEAR_MS = 15.0
"""Milliseconds per sample, by the table in `code/data.py`, from which a pipeline costs more than decoding a photograph."""
_BEFORE_MS = 3.0
_LARGER = 3
"""Times by which an edge grows before that is worth a word."""
_ELSEWHERE = ("kornia", "keras", "tensorflow", "torch.nn", "keras_cv", "nvidia")


def check(case: Case) -> Iterator[Hit]:
    yield from _pipelines(case)
    yield from _scaled_up(case)
    yield from _generators(case)


def _pipelines(case: Case) -> Iterator[Hit]:
    program = case.program
    for call in compositions(program):
        if not program.is_own(call) or program.name(call).startswith(_ELSEWHERE):
            continue
        steps = list(listed_transforms(program, call))
        sizing = next((at for at, step in enumerate(steps) if _last(program, step) in SIZING), None)
        early = [step for step in steps[: sizing or 0] if _cost_ms(program, step)]
        dear = [step for step in steps if _cost_ms(program, step)]
        edge = size_of(program, steps[sizing]) if sizing is not None else None
        scale = _scale(case, edge, early=bool(early))
        if sum(_cost_ms(program, step) for step in early) >= _BEFORE_MS and sizing is not None:
            names = " and ".join(dict.fromkeys(f"`{_last(program, step)}`" for step in early))
            resize = program.text(steps[sizing], 40)
            kind, basis, evidence = case.weigh()
            yield Hit(
                early[0], f"{names} {'works' if len(early) == 1 else 'work'} on the full image, before `{resize}` makes it small{case.told()}",
                f"move `{resize}` to the front: the same augmentation then touches only the pixels the network sees", kind, basis,
                {**evidence, "before_resize": [_last(program, step) for step in early], "edge_px": edge},
            )  # fmt: skip
        elif dear and sum(_cost_ms(program, step) for step in dear) * scale >= _DEAR_MS:
            names = ", ".join(dict.fromkeys(f"`{_last(program, step)}`" for step in sorted(dear, key=lambda one: -_cost_ms(program, one))[:4]))
            kind, basis, evidence = case.weigh()
            yield Hit(
                dear[0], f"{names} run on the CPU for each sample: together they cost more than decoding the image{case.told()}",
                "apply them to the batch on the GPU (kornia, torchvision v2), lower their `p`, or keep those that the validation score asks for",
                kind, basis, {**evidence, "transforms": [_last(program, step) for step in dear], "edge_px": edge},
            )  # fmt: skip


def _last(program: Program, call: ast.AST) -> str:
    return program.name(call).rpartition(".")[2]


def _cost_ms(program: Program, step: ast.Call) -> float:
    """Expected cost for a photograph of 500 px: its share in a `OneOf` and its probability counted in."""
    cost = float(HEAVY.get(_last(program, step), 0))
    if not cost or program.name(step).startswith(_ELSEWHERE):
        return 0.0
    chance = number(program, given(program, step, "p")) if given(program, step, "p") is not None else None
    share = chance if chance is not None else 0.5 if "albumentations" in program.name(step) else 1.0
    for above in program.above(step):
        if isinstance(above, ast.Call) and _last(program, above) in ("OneOf", "RandomChoice", "SomeOf"):
            first = given(program, above, "transforms", 0)
            share /= max(1, len(first.elts)) if isinstance(first, ast.List | ast.Tuple) else 2
            break
    return cost * min(1.0, max(share, 0.0))


def _scale(case: Case, edge: int | None, *, early: bool) -> float:
    """How the pixels that are touched compare with a photograph of 500 px; 1 where neither size is known."""
    if edge is not None and not early:
        return min(1.0, (edge / 500) ** 2) if edge < 500 else 1.0
    size = known_size(constants(case.program))
    return size[0] * size[1] / 250_000 if size else 1.0


def _scaled_up(case: Case) -> Iterator[Hit]:
    """Small images of a known set that are resized to the network's input, one by one."""
    program, places, told = case.program, [], ""
    for call in program.own_calls(*(name for name, edge in MEMORY_DATASETS.items() if edge)):
        edge = MEMORY_DATASETS[_last(program, call)]
        for part in (*call.args, *(word.value for word in call.keywords)):
            for step in transform_steps(program, part):
                size = size_of(program, step)
                if size is not None and size >= _LARGER * edge and step not in places:
                    places.append(step)
                    told = f"images of {edge} px are scaled up to {size} px, {(size / edge) ** 2:.0f} times the pixels, for each sample in every epoch"
    if places:
        kind, basis, evidence = case.weigh()
        yield one_hit(places, message=f"{told}{case.told()}", kind=kind, basis=basis, evidence=evidence,
                      fix="scale the batch up on the GPU (`torch.nn.functional.interpolate(images, size=…)` before the network), or train at the "
                      "images' own size with a smaller first stride")  # fmt: skip


def _generators(case: Case) -> Iterator[Hit]:
    """A Keras `ImageDataGenerator` that warps: SciPy, one image at a time, in Python."""
    program = case.program
    for training in case.trainings:
        if training.kind != "keras" or not isinstance(training.node, ast.Call):
            continue
        shared = any(isinstance(n, int) and n > 1 for n in argument_values(program, training.node, "workers", None, 1))
        for feed in feeds(program, training.data):
            makers = origins(program, feed.call.func.value) if _last(program, feed.call) in FLOWS and isinstance(feed.call.func, ast.Attribute) else []
            for maker in makers:
                warps = [name for name in random_options(program, maker) if name in WARPS] if isinstance(maker, ast.Call) else []
                if not warps or not program.is_own(maker):
                    continue
                kind, basis, evidence = case.weigh("note" if shared else "choke")
                layers = "`RandomRotation`, `RandomZoom`, `RandomTranslation`, `RandomFlip`"
                yield Hit(
                    maker, f"`ImageDataGenerator` with `{'`, `'.join(warps)}` warps each image with SciPy in one Python thread{_rate(case)}",
                    f"put layers ({layers}) in front of the model, which run on the batch, and give `fit` the arrays or a `tf.data` pipeline",
                    kind, basis, {**evidence, "options": warps}, further=(training.node,) if program.is_own(training.node) else (),
                )  # fmt: skip
                return


def _rate(case: Case) -> str:
    """Images per second by the saved outputs."""
    epoch, images = case.epoch_s(), case.images
    return f"; the saved outputs show {images / epoch:.0f} images per second" if epoch and images else case.told()
