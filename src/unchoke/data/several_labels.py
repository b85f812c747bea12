"""Photos with several labels each: how a cell names them, and the 0 and 1 that are learnt.

In a table of samples a cell holds the labels of a photo, sorted and joined by `|`, and `none` where it has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from unchoke.data.sample_set import TaskSpec
from unchoke.data.table import SEVERAL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MULTI_LABEL: Final = "multi_label"
NO_LABEL = "none"


def join_labels(labels: Iterable[str]) -> str:
    """The cell of a photo with these labels."""
    return SEVERAL.join(sorted({label.strip() for label in labels} - {"", NO_LABEL})) or NO_LABEL


def split_cell(cell: str) -> tuple[str, ...]:
    """The labels that a cell names."""
    return tuple(label for label in cell.split(SEVERAL) if label not in ("", NO_LABEL))


def task_of(kind: Any, cells: Iterable[str]) -> TaskSpec:
    """What is learnt from cells of labels: classes, or several labels of each photo."""
    distinct = set(cells)
    return TaskSpec(
        kind, tuple(sorted({label for cell in distinct for label in split_cell(cell)} if kind == MULTI_LABEL else distinct))
    )


def label_matrix(cells: Sequence[str], names: Sequence[str]) -> NDArray[np.float32]:
    """(n, labels): 1 where a cell names a label; labels that are not among `names` are passed over."""
    import numpy as np

    place = {name: number for number, name in enumerate(names)}
    found = np.zeros((len(cells), len(names)), np.float32)
    for row, cell in enumerate(cells):
        found[row, [place[label] for label in split_cell(cell) if label in place]] = 1
    return found


def label_cells(matrix: NDArray[Any], names: Sequence[str]) -> list[str]:
    """A cell for each row of a matrix of 0 and 1."""
    return [join_labels(name for name, one in zip(names, row, strict=True) if one) for row in matrix.tolist()]
