"""The rules: one file each, one question over a program. `CODES` has their codes, which are the codes of their causes.

A rule gets a `Case` and yields `Hit`s. Evidence decides how serious a hit is: the saved outputs first, then numbers in the code.
A rule calls something a note only if the evidence shows that it costs little here; without evidence it says what the code shows.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any

from unchoke_doctor.code.data import feeds
from unchoke_doctor.code.outputs import Outputs
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.source import CodePlace
from unchoke_doctor.code.trace import given, number
from unchoke_doctor.code.training import Training, trainings
from unchoke_doctor.finding import Basis, Kind
from unchoke_doctor.units import format_seconds

CODES = (
    "no-workers", "few-workers", "network-mount", "heavy-augmentation", "frozen-recomputed", "no-checkpoint", "never-on-gpu",
    "no-mixed-precision", "no-inference-mode", "per-sample-scan", "oversized-decode", "one-at-a-time", "images-in-list",
    "no-prefetch", "unpicklable-dataset", "host-sync",
)  # fmt: skip
_SLOW_IMAGES_S = 60.0
"""Images per second of a training that a usual network on a GPU exceeds: below it waits for them."""
_MANY_PIXELS = re.compile(r"unet|segment|deeplab|detect|rcnn|yolo|mask|gan\b|diffusion", re.IGNORECASE)
_SHORT_S, _FEW_STEPS, _FEW_SAMPLES = 60.0, 100, 2_000
"""Seconds, steps and samples of a whole training below which nothing in it is worth a change."""
_CPU_STEP_S = 1.5
"""Seconds of a step that no GPU needs for a usual batch."""

_LARGE_NETWORK = re.compile(
    r"vit_?(?:large|huge|l_|h_)\w*|vit-(?:large|huge)[\w-]*|swin_(?:b|l|large|base)\w*|resnet(?:101|152)\w*|convnext_(?:b|l|x)\w*|"
    r"efficientnet[-_]?(?:v2_)?[bB]?[4-7lm]\b\w*|wide_resnet\w*|resnext101\w*|se_?resnext\w*",
    re.IGNORECASE,
)
_USUAL_NETWORK = re.compile(  # from a tenth of a second an image on a CPU
    r"\bvit[-_]?b|vit-base|ViTFor|VisionTransformer|swin|resnet50|densenet(?:1[26]|20)|vgg1[69]|inception|xception|convnext|efficientnet|unet|deeplab|"
    r"segformer|yolo|faster_?rcnn|maskrcnn|mobilenet",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Edit:
    """A piece of the source and what stands there instead."""

    place: CodePlace
    text: str


@dataclass(frozen=True, eq=False)
class Hit:
    """One fact, at the node a reviewer would point to; `further` are the other places of the same fact."""

    node: ast.AST
    message: str
    fix: str
    kind: Kind = "choke"
    basis: Basis = "code"
    evidence: dict[str, Any] = field(default_factory=dict)
    further: tuple[ast.AST, ...] = ()
    edits: tuple[Edit, ...] = ()
    """Changes that are proven to alter nothing but the speed: `--fix` makes them."""
    shown: tuple[Edit, ...] = ()
    """Changes that are shown and not made: the author has to choose."""


@dataclass(frozen=True, eq=False)
class Case:
    """A program and what its outputs show."""

    program: Program
    outputs: Outputs

    @cached_property
    def trainings(self) -> list[Training]:
        return trainings(self.program)

    @cached_property
    def fed(self) -> set[ast.Call]:
        """The calls that make what trainings read."""
        return {feed.call for one in self.trainings for feed in feeds(self.program, one.data)}

    @cached_property
    def epochs(self) -> int | None:
        """The largest number of epochs of any training; None where no number is known."""
        return max((one.epochs for one in self.trainings if one.epochs), default=None)

    @cached_property
    def texts(self) -> str:
        """All code of the program as text, for words that settle a question wherever they stand."""
        return "\n".join(cell.python for module in self.program.modules for cell, _ in module.cells)

    @cached_property
    def words(self) -> Counter[str]:
        """How often each name stands in the code."""
        return Counter(re.findall(r"\w+", self.texts))

    def cell(self, training: Training) -> int | None:
        """The cell that runs a training: of those that hold it or call what holds it, the outermost with an output."""
        cells = _cells(self.program, training)
        timed = (one for one in reversed(cells) if one in self.outputs.epochs or one in self.outputs.cells)
        return next(timed, cells[0] if cells else None)

    def training_s(self, training: Training) -> float | None:
        """Seconds of a training by the saved outputs: what they show, or what all its epochs take at their pace."""
        cell = self.cell(training)
        if cell is not None and self.outputs.training_s(cell) is None:
            cell = None  # its own cell shows nothing: the longest training counts
        shown, epoch = self.outputs.training_s(cell), self.outputs.epoch_s(cell)
        if shown is None or epoch is None or training.epochs is None or "EarlyStopping" in self.texts or self.is_older(training):
            return shown
        return max(shown, training.epochs * epoch)

    def steps_per_epoch(self, training: Training) -> int | None:
        """Of Keras, where the code gives it."""
        call = training.node if training.kind == "keras" and isinstance(training.node, ast.Call) else None
        each = number(self.program, given(self.program, call, "steps_per_epoch")) if call is not None else None
        return int(each) if each else None

    def is_older(self, training: Training) -> bool:
        """Are the saved outputs of an older run, with more steps an epoch than the code has now?"""
        return self.outputs.steps.get(self.cell(training) or 0, 0) > (self.steps_per_epoch(training) or math.inf)

    def stopped_at(self, training: Training) -> int | None:
        """The last epoch that the saved outputs of a training show, where it is not the last of the code."""
        number, epochs = self.cell(training), training.epochs or 0
        cell = next((one for one in self.program.source.cells if one.number == number and number is not None), None)
        if cell is None or epochs < 2 or "EarlyStopping" in self.texts or "patience" in self.texts:
            return None
        shown = [int(found) for found in re.findall(rf"^\W*[^\W\d]+\W{{1,3}}(\d+)\s*/\s*{epochs}\b", cell.outputs, re.MULTILINE)]
        return max(shown) if shown and max(shown) < epochs else None

    @cached_property
    def has_older(self) -> bool:
        return any(map(self.is_older, self.trainings))

    @cached_property
    def large_network(self) -> str:
        """The name of a large network in the code."""
        found = _LARGE_NETWORK.search(self.texts)
        return found[0] if found else ""

    @cached_property
    def has_known_network(self) -> bool:
        return bool(self.large_network or _USUAL_NETWORK.search(self.texts))

    @cached_property
    def computes_on_cpu(self) -> bool:
        """The outputs show no GPU, and the network is one that takes longer there than an image takes to decode."""
        shown = self.outputs.on_cpu or any(self.has_cpu_pace(*one) for one in self.outputs.passes.values())
        for one in self.trainings if not shown else ():
            cell = self.cell(one) or 0
            paced = one.kind in ("keras", "tape") and cell in self.outputs.steps
            shown = shown or (paced and self.has_cpu_pace(self.outputs.epoch_s(cell) or 0.0, self.outputs.steps[cell]))
        return shown and not self.outputs.gpu and self.has_known_network

    def has_cpu_pace(self, seconds: float, steps: int) -> bool:
        """Do steps take as long as only a CPU takes for a network like this?"""
        return self.has_known_network and seconds >= _CPU_STEP_S * steps > 0

    @cached_property
    def waits_for_data(self) -> bool:
        """Is loading with no worker or too few what holds the training back?"""
        return any(hit.kind == "choke" for code in ("no-workers", "few-workers") for hit in load_rule(code)(self))

    def loading_kind(self, kind: Kind) -> Kind:
        """How serious slow loading is by the saved outputs: a note where a network on the CPU takes the time, a choke where an
        epoch drags on though its network does not.
        """
        epoch = self.outputs.epoch_s()
        if self.computes_on_cpu:
            return "note"
        if not epoch or epoch < _SHORT_S or not 0 < (self.outputs.images or 0) / epoch < _SLOW_IMAGES_S:
            return kind
        return kind if self.large_network or _MANY_PIXELS.search(self.texts) else "choke"

    @cached_property
    def little(self) -> str:
        """Why nothing here is worth a change: outputs or code show a short training. Empty without evidence."""
        images, shown = self.outputs.images, [self.training_s(one) for one in self.trainings] or [self.outputs.training_s()]
        total = max((one for one in shown if one is not None), default=None)
        if total is not None:
            return f"the saved outputs show {format_seconds(total)} of training" if total < _SHORT_S else ""
        if images is not None and self.epochs is not None and images * self.epochs < _FEW_SAMPLES:
            return f"the saved outputs show {images:,} images, for {self.epochs} epochs"
        each = [(self.steps_per_epoch(one), one.epochs) for one in self.trainings]
        steps = [count * epochs if count and epochs else _FEW_STEPS for count, epochs in each]
        return f"the code trains for {max(steps)} steps" if steps and max(steps) < _FEW_STEPS else ""

    def hit(
        self,
        nodes: Iterable[ast.AST],
        message: str,
        fix: str,
        kind: Kind = "choke",
        *,
        basis: Basis | None = None,
        edits: tuple[Edit, ...] = (),
        shown: tuple[Edit, ...] = (),
        **figures: object,
    ) -> Hit:
        """A fact that costs time in training, at the first of its places, weighed by what the outputs show."""
        epoch, total = self.outputs.epoch_s(), self.outputs.training_s()
        seen = {
            "epoch_s": round(epoch, 1) if epoch is not None else None,
            "training_s": round(total, 1) if total is not None else None,
            "images": self.outputs.images,
            "device": self.outputs.gpu or None,
            "epochs": self.epochs,
            "why_note": self.little or None,
        }
        evidence = {key: item for key, item in (seen | figures).items() if item is not None}
        told = f"; the saved outputs show {format_seconds(epoch)} per epoch" if epoch is not None and not self.has_older else ""
        rests_on: Basis = basis or ("outputs" if self.little or epoch is not None else "code")
        first, *further = dict.fromkeys(nodes)
        return Hit(
            first, message + told, fix, "note" if self.little else kind, rests_on, evidence, tuple(further), edits, shown
        )  # fmt: skip


def _cells(program: Program, training: Training) -> list[int]:
    """The cells of the loops and calls of a training, from the inside out."""
    places = [program.place(part).cell for part in (training.node, *training.chain) if program.is_own(part)]
    return [cell for cell in places if cell is not None]


def make_case(program: Program, outputs: Outputs) -> Case:
    """The program with what its outputs show of its trainings: progress bars of other cells time something else."""
    cells = {cell for one in trainings(program) for cell in _cells(program, one)}
    own = {cell: seconds for cell, seconds in outputs.epochs.items() if cell in cells or not cells}
    return Case(program, replace(outputs, epochs=own))


Check = Callable[[Case], Iterator[Hit]]


def load_rule(code: str) -> Check:
    """The question of a rule; `no-workers` and `few-workers` share a file."""
    module = import_module(f"unchoke_doctor.rules.{'workers' if code.endswith('-workers') else code.replace('-', '_')}")
    return getattr(module, "check_few" if code == "few-workers" else "check")  # type: ignore[no-any-return]
