"""Labels that the features contradict, and classes that they cannot tell apart.

In: features, labels, and what must stay in one fold. Out: findings. Every photo is judged by linear heads that saw neither it nor
its group nor its copies. It is suspicious as far as they give its own label little probability; that ranks flips between any two
classes and between similar ones alike. How many labels are wrong altogether is estimated as confident learning does it: a label
counts as wrong where another class has at least the probability that this class has, on average, on its own photos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding
from unchoke.curation.fold_ridge import answer_held_out, choose_temperature, class_loss, one_hot
from unchoke.data.corrections import LABEL, Correction
from unchoke.data.several_labels import MULTI_LABEL, label_cells
from unchoke.features.nearest import NearestRows
from unchoke.training.heads.linear_path import cross_validate
from unchoke.training.scoring.figures import probabilities, softmax

_FEWEST_OF_TWO = 20
_ALIKE = 0.7
"""Below this share of right answers between two classes, even after chance, they count as alike."""
_SURELY_NOT = 0.05
"""From here down a given label is doubted; heads miss more of several labels than people add."""
_Z = 1.645
Probabilities = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class HeldOutClasses:
    """Probabilities (n, classes), each by heads not trained on the photo's fold; `thresholds` are the classes' own averages."""

    probs: Probabilities
    targets: NDArray[np.int64]
    names: tuple[str, ...]
    strength: float
    temperature: float

    @property
    def own(self) -> NDArray[np.float32]:
        """The probability of each photo's own label."""
        found: NDArray[np.float32] = self.probs[np.arange(len(self.targets)), self.targets]
        return found

    @property
    def thresholds(self) -> NDArray[np.float64]:
        sums = np.bincount(self.targets, weights=self.own, minlength=len(self.names))
        counts = np.bincount(self.targets, minlength=len(self.names))
        found: NDArray[np.float64] = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)
        return found

    def confident(self) -> NDArray[np.int64]:
        """For each photo the class that confident learning takes it for; -1 for none."""
        above = np.where(self.probs >= self.thresholds, self.probs, -1.0)
        return np.where(above.max(axis=1) >= 0, above.argmax(axis=1), -1).astype(np.int64)


def hold_out_classes(
    feats_nd: NDArray[np.float16], targets: NDArray[np.int64], names: Sequence[str], folds_n: NDArray[np.int64]
) -> HeldOutClasses:
    """What heads say of photos in folds they did not see."""
    answers = answer_held_out(feats_nd, one_hot(targets, len(names)), folds_n, loss=class_loss(targets))
    temperature = choose_temperature(answers.outputs, targets)
    return HeldOutClasses(softmax(answers.outputs * temperature), targets, tuple(names), answers.strength, temperature)


def find_wrong_labels(ids: Sequence[str], held: HeldOutClasses, nearest: NearestRows) -> list[DataFinding]:
    """A finding for each photo that is taken for another class; nothing of classes that no head could learn without the photo."""
    guesses = held.probs.argmax(axis=1)
    num_alike = np.bincount(held.targets, minlength=len(held.names))[held.targets]
    suspects = np.flatnonzero((guesses != held.targets) & (num_alike > 1))
    confident, own = held.confident(), held.own
    found = []
    for row in suspects.tolist():
        given, guess = held.names[held.targets[row]], held.names[guesses[row]]
        probability = float(held.probs[row, guesses[row]])
        neighbours = held.targets[nearest.rows[row]]
        evidence = {
            "label": given,
            "likelier": guess,
            "probability": round(float(own[row]), 4),
            "likelier_probability": round(probability, 4),
            "confident": bool(confident[row] not in (-1, held.targets[row])),
            "neighbours": len(neighbours),
            "neighbours_of_label": int((neighbours == held.targets[row]).sum()),
            "neighbours_of_likelier": int((neighbours == guesses[row]).sum()),
        }
        message = f"{ids[row]!r} is labelled {given!r}; models not trained on it say {guess!r} ({100 * probability:.0f} %); "
        message += f"of the {len(neighbours)} photos most like it, {evidence['neighbours_of_likelier']} are {guess!r} "
        message += f"and {evidence['neighbours_of_label']} {given!r}"
        suggested = (Correction(ids[row], LABEL, guess),)
        found.append(DataFinding("label", message, (ids[row],), round(float(1 - own[row]), 4), evidence, suggested))
    return found


def find_wrong_marks(
    ids: Sequence[str],
    names: Sequence[str],
    marks_nl: NDArray[np.float32],
    feats_nd: NDArray[np.float16],
    folds_n: NDArray[np.int64],
) -> list[DataFinding]:
    """A finding for each photo that lacks a label or has one too many: heads not trained on it are as sure of that as they are
    on average of photos with the label, or without it.
    """
    marks = marks_nl > 0
    probs = probabilities(MULTI_LABEL, cross_validate(feats_nd, MULTI_LABEL, names, marks_nl, folds_n).outputs)
    counts = np.maximum(marks.sum(axis=0), 1), np.maximum((~marks).sum(axis=0), 1)
    usual_with = np.maximum(np.where(marks, probs, 0).sum(axis=0) / counts[0], 0.5)
    usual_without = np.minimum(np.where(marks, 0, probs).sum(axis=0) / counts[1], _SURELY_NOT)
    missing, extra = ~marks & (probs >= usual_with), marks & (probs <= usual_without) & (marks.sum(axis=0) > 1)
    found = []
    for row in np.flatnonzero((missing | extra).any(axis=1)).tolist():
        lacks, has = ([names[place] for place in np.flatnonzero(one[row]).tolist()] for one in (missing, extra))
        given, likelier = label_cells(np.stack([marks[row], marks[row] ^ missing[row] ^ extra[row]]), names)
        chances = {name: round(float(probs[row, names.index(name)]), 4) for name in (*lacks, *has)}
        evidence = {"label": given, "likelier": likelier, "missing": lacks, "extra": has, "probabilities": chances}
        words = [f"seems to lack {name!r} ({100 * chances[name]:.0f} %)" for name in lacks]
        words += [f"seems not to be {name!r} ({100 * chances[name]:.0f} %)" for name in has]
        message = f"{ids[row]!r} is labelled {given!r}; by models not trained on it, it {' and '.join(words)}"
        score = float(np.abs(marks[row] - probs[row])[missing[row] | extra[row]].max())
        suggested = (Correction(ids[row], LABEL, likelier),)
        found.append(DataFinding("label", message, (ids[row],), round(score, 4), evidence, suggested))
    return found


def count_wrong(held: HeldOutClasses) -> int:
    """How many labels are wrong, by confident learning."""
    taken = held.confident()
    num_alike = np.bincount(held.targets, minlength=len(held.names))[held.targets]
    return int(((taken != -1) & (taken != held.targets) & (num_alike > 1)).sum())


def find_twin_classes(held: HeldOutClasses) -> list[DataFinding]:
    """Pairs of classes whose photos, asked which of the two they are, get it right hardly more often than by chance."""
    found = []
    members = [np.flatnonzero(held.targets == number) for number in range(len(held.names))]
    for first in range(len(held.names)):
        for second in range(first + 1, len(held.names)):
            if min(len(members[first]), len(members[second])) < _FEWEST_OF_TWO:
                continue
            shares = _shares_right(held, members, first, second)
            share, error = float(np.mean([one for one, _ in shares])), float(np.hypot(shares[0][1], shares[1][1]) / 2)
            if share + _Z * error >= _ALIKE:
                continue
            names = (held.names[first], held.names[second])
            evidence = {
                "right": round(share, 4),
                "error": round(error, 4),
                "photos": [len(members[one]) for one in (first, second)],
            }
            message = f"{names[0]!r} and {names[1]!r} cannot be told apart: asked which of the two a photo is, "
            message += (
                f"heads are right for {100 * share:.0f} % of {format_count(len(members[first]) + len(members[second]), 'photo')}"
            )
            found.append(DataFinding("classes", message, (), round(0.9 - share / 2, 4), evidence, about=names))
    return found


def _shares_right(held: HeldOutClasses, members: list[NDArray[np.int64]], first: int, second: int) -> list[tuple[float, float]]:
    """Of each of two classes the share taken for itself rather than the other, and its standard error."""
    shares = []
    for own, other in ((first, second), (second, first)):
        probs = held.probs[members[own]]
        right = (probs[:, own] > probs[:, other]).mean()
        shares.append((float(right), float(np.sqrt(max(right * (1 - right), 0.01) / len(probs)))))
    return shares
