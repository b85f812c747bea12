"""The rules: one file each, one question over a program. `CODES` has their codes, which are the codes of their causes.

A rule gets a `Case` and yields `Hit`s. Evidence decides how serious a hit is: the saved outputs first, then numbers in the code.
A rule calls something a note only if the evidence shows that it costs little here; without evidence it says what the code shows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any

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
SHORT_S = 60.0
"""Seconds of a whole training below which nothing in it is worth a change."""
FEW_STEPS = 100
"""Steps of a whole training below which the same holds."""
FEW_SAMPLES = 2_000
"""Samples times epochs below which the same holds."""


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
    def epochs(self) -> int | None:
        """The largest number of epochs of any training; None where no number is known."""
        return max((one.epochs for one in self.trainings if one.epochs), default=None)

    @cached_property
    def texts(self) -> str:
        """All code of the program as text, for words that settle a question wherever they stand."""
        return "\n".join(cell.python for module in self.program.modules for cell, _ in module.cells)

    @cached_property
    def images(self) -> int | None:
        return self.outputs.images

    def cell(self, training: Training) -> int | None:
        """The cell that runs a training: of those that hold it or call what holds it, the outermost with an output."""
        cells = _cells(self.program, training)
        return next(
            (one for one in reversed(cells) if one in self.outputs.epochs or one in self.outputs.cells), next(iter(cells), None)
        )

    def training_s(self, training: Training) -> float | None:
        """Seconds of a training by the saved outputs: what they show, or what all its epochs take at their pace.

        Of the longest training where its own cell shows nothing.
        """
        cell = self.cell(training)
        own = self.outputs.training_s(cell) if cell is not None else None
        shown, epoch = (
            own if own is not None else self.outputs.training_s(),
            self.outputs.epoch_s(cell if own is not None else None),
        )
        stops_early = "EarlyStopping" in self.texts
        if shown is None or epoch is None or training.epochs is None or stops_early:
            return shown
        return max(shown, training.epochs * epoch)

    @cached_property
    def little(self) -> str:
        """Why nothing here is worth a change: outputs or code show a short training. Empty without evidence."""
        total = self.outputs.training_s()
        if total is not None and total < SHORT_S:
            return f"the saved outputs show {format_seconds(total)} of training"
        if total is None and self.images is not None and self.epochs is not None and self.images * self.epochs < FEW_SAMPLES:
            return f"the saved outputs show {self.images:,} images, for {self.epochs} epochs"
        counts = [self._steps(one) for one in self.trainings]
        if total is None and counts and all(count is not None and count < FEW_STEPS for count in counts):
            return f"the code trains for {max(filter(None, counts))} steps"
        return ""

    def _steps(self, training: Training) -> int | None:
        """Steps of a training of Keras that says how many an epoch has."""
        call = training.node if training.kind == "keras" and isinstance(training.node, ast.Call) else None
        each = number(self.program, given(self.program, call, "steps_per_epoch")) if call is not None else None
        return int(each) * training.epochs if each and training.epochs else None

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
            "images": self.images,
            "device": self.outputs.gpu or None,
            "epochs": self.epochs,
            "why_note": self.little or None,
        }
        evidence = {key: item for key, item in (seen | figures).items() if item is not None}
        told = f"; the saved outputs show {format_seconds(epoch)} per epoch" if epoch is not None else ""
        rests_on: Basis = "outputs" if self.little or epoch is not None else "code"
        kind = "note" if self.little else kind
        first, *further = dict.fromkeys(nodes)
        return Hit(first, message + told, fix, kind, basis or rests_on, evidence, tuple(further), edits, shown)


def _cells(program: Program, training: Training) -> list[int]:
    """The cells of the loops and calls of a training, from the inside out."""
    places = [program.place(part).cell for part in (training.node, *training.chain) if program.is_own(part)]
    return [cell for cell in places if cell is not None]


def make_case(program: Program, outputs: Outputs) -> Case:
    """The program with what its outputs show of its trainings: progress bars of other cells time something else."""
    cells = {cell for one in trainings(program) for cell in _cells(program, one)}
    if cells:
        own = {cell: seconds for cell, seconds in outputs.epochs.items() if cell in cells}
        outputs = replace(outputs, epochs=own)
    return Case(program, outputs)


Check = Callable[[Case], Iterator[Hit]]


def load_rule(code: str) -> Check:
    """The question of a rule."""
    file, name = _SHARED.get(code, (code.replace("-", "_"), "check"))
    return getattr(import_module(f"unchoke_doctor.rules.{file}"), name)  # type: ignore[no-any-return]


_SHARED = {
    "no-workers": ("workers", "check"),
    "few-workers": ("workers", "check_few"),
}
"""Rules that share a file with another one."""
