"""Lines as people write them, each with what it does said in the right words; ordinary lines say nothing."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from unchoke.chokes.diagnose.line_kinds import LOOP_KINDS, MAKING_KINDS, LineFacts, kind_of, reads_back, shrinks
from unchoke.chokes.diagnose.source_lines import SourceLine, call_in, changed_call, removed_line, source_line
from unchoke.core.findings import CodeLine

PYTHON, NATIVE = LineFacts(python_share=0.9), LineFacts()


def line(tmp_path: Path, source: str, marked: str = "# here") -> SourceLine:
    """The line of a script that ends in the mark."""
    text = textwrap.dedent(source)
    file = tmp_path / "train.py"
    file.write_text(text)
    number = next(number for number, one in enumerate(text.splitlines(), start=1) if one.endswith(marked))
    found = source_line(str(file), number)
    assert found is not None
    return found


MAKING = [
    (
        "reopened-file",
        NATIVE,
        """
        import zipfile
        def __getitem__(self, i):
            with zipfile.ZipFile(self.archive) as z:  # here
                return z.read(self.names[i])
        """,
    ),
    (
        "reopened-file",
        NATIVE,
        """
        from h5py import File
        def __getitem__(self, i):
            f = File(self.path, "r")  # here
            return f["x"][i]
        """,
    ),
    (
        "query-per-sample",
        NATIVE,
        """
        def __getitem__(self, i):
            rows = self.db.execute("select a from t where k = ?", (i,)).fetchall()  # here
            return rows
        """,
    ),
    (
        "table-row-per-sample",
        LineFacts(library="pandas.core.indexing:_LocIndexer.__getitem__", python_share=0.9),
        """
        def __getitem__(self, i):
            row = self.df.loc[i]  # here
            return row
        """,
    ),
    (
        "library-call-per-sample",
        LineFacts(library="sklearn.preprocessing._data:StandardScaler.transform", python_share=0.5),
        """
        def __getitem__(self, i):
            return self.scaler.transform(self.x[i : i + 1])[0]  # here
        """,
    ),
    (
        "inference-per-sample",
        LineFacts(library="torch.nn.modules.module:Module._wrapped_call_impl"),
        """
        def __getitem__(self, i):
            return self.encoder(self.x[i])  # here
        """,
    ),
    (
        "parsed-per-sample",
        PYTHON,
        """
        def read(self):
            for line in open(self.path):
                label, *values = line.split(",")
                yield torch.tensor([float(v) for v in values])  # here
        """,
    ),
    (
        "rebuilt-per-sample",
        PYTHON,
        """
        import random
        def __getitem__(self, i):
            return random.choice(list(self.all - self.seen[i]))  # here
        """,
    ),
    (
        "python-transform",
        NATIVE,
        """
        import numpy as np
        def encode(mask):
            for number, colour in enumerate(COLOURS):
                out[np.all(mask == colour, axis=-1)] = number  # here
            return out
        """,
    ),
    (
        "python-transform",
        PYTHON,
        """
        def stretch(image):
            for y in range(image.height):
                for x in range(image.width):
                    image.putpixel((x, y), 255 - image.getpixel((x, y)))  # here
        """,
    ),
    (
        "lock-wait",
        LineFacts(library="multiprocessing.synchronize:SemLock.__enter__", lock_share=0.9),
        """
        def __getitem__(self, i):
            with self.guard:  # here
                return self.read(i)
        """,
    ),
]
BESIDE = [
    (
        "growing-copy",
        NATIVE,
        """
        import numpy as np
        def add(self, row):
            self.rows = np.concatenate([self.rows, row[None]])  # here
        """,
    ),
    (
        "growing-copy",
        NATIVE,
        """
        import torch
        def add(self, row):
            self.bank = torch.cat((self.bank, row))  # here
        """,
    ),
    (
        "loader-per-step",
        PYTHON,
        """
        from torch.utils.data import DataLoader
        def peek(model, val):
            x, y = next(iter(DataLoader(val, num_workers=2)))  # here
        """,
    ),
    (
        "statistics-per-step",
        NATIVE,
        """
        import numpy as np
        def watch(model):
            for name, p in model.named_parameters():
                page[name] = np.percentile(p.grad.numpy(), [1, 50, 99])  # here
        """,
    ),
    (
        "copied-per-step",
        PYTHON,
        """
        import copy
        def keep(model):
            best = copy.deepcopy(model.state_dict())  # here
        """,
    ),
    (
        "small-operations",
        NATIVE,
        """
        def forward(self, x):
            for h in range(self.heads):
                parts.append((q[:, h] @ k[:, h].T).softmax(-1) @ v[:, h])  # here
            return torch.cat(parts)
        """,
    ),
    (
        "costly-operation",
        NATIVE,
        """
        def forward(self, x):
            near = self.distances(x).argsort(dim=-1)[..., :8]  # here
            return near
        """,
    ),
    (
        "sampler-work",
        PYTHON,
        """
        class Balanced(Sampler):
            def __iter__(self):
                weights = [1.0 / self.labels.count(label) for label in self.labels]  # here
        """,
    ),
]


@pytest.mark.parametrize(("code", "facts", "source"), MAKING)
def test_what_a_line_of_making_samples_does_is_known(tmp_path: Path, code: str, facts: LineFacts, source: str) -> None:
    kind = kind_of(line(tmp_path, source), facts, MAKING_KINDS)

    assert kind is not None
    assert kind.code == code
    assert kind.fix
    assert 0 <= kind.left_share < 0.2


@pytest.mark.parametrize(("code", "facts", "source"), BESIDE)
def test_what_a_line_beside_the_network_does_is_known(tmp_path: Path, code: str, facts: LineFacts, source: str) -> None:
    kind = kind_of(line(tmp_path, source), facts, LOOP_KINDS)

    assert kind is not None
    assert kind.code == code


@pytest.mark.parametrize(
    "source",
    [
        """
        def __getitem__(self, i):
            return self.transform(Image.open(self.paths[i]).convert("RGB"))  # here
        """,
        """
        def __getitem__(self, i):
            return self.x[i], self.y[i]  # here
        """,
    ],
)
def test_a_line_that_does_only_what_it_must_is_left_alone(tmp_path: Path, source: str) -> None:
    assert kind_of(line(tmp_path, source), NATIVE, MAKING_KINDS) is None


@pytest.mark.parametrize(
    "source",
    [
        """
        def forward(self, x):
            for layer in self.layers:
                x = layer(x)  # here
            return x
        """,
        """
        def forward(self, x):
            for i in range(4):
                x = self.blocks[i](x)  # here
            return x
        """,
        """
        for x, y in loader:
            loss = criterion(model(x), y)  # here
            loss.backward()
            optimizer.step()
        """,
    ],
)
def test_networks_and_training_loop_are_no_small_operations(tmp_path: Path, source: str) -> None:
    assert kind_of(line(tmp_path, source), NATIVE, LOOP_KINDS) is None


def test_unreadable_line_is_only_running_python() -> None:
    assert source_line("/nowhere/train.py", 3) is None
    kind = kind_of(None, PYTHON, MAKING_KINDS)
    assert kind is not None
    assert kind.code == "python-transform"
    assert kind_of(None, NATIVE, MAKING_KINDS) is None


def test_loop_met_at_its_head_is_the_end_of_its_body(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def read(f):\n    for line in f:\n        a = line.split()\n        yield [float(v) for v in a]\n")

    met = source_line(str(file), 2, (2, 4, 4, 35))

    assert met is not None
    assert met.statement.lineno == 4


def test_the_piece_of_a_line_that_ran_decides(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    text = "x = scale(resize(image)).item()\n"
    file.write_text(text)
    span = (1, 1, text.index("resize"), text.index("))") + 1)

    met = source_line(str(file), 1, span)

    assert met is not None
    assert met.names == ["resize"]
    assert shrinks(met)
    assert reads_back(met)


def test_a_call_is_found_by_the_name_it_was_imported_by(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch as t\n\nt.set_default_dtype(t.float64)\n")

    found = call_in(str(file), "torch.set_default_dtype")

    assert found is not None
    assert found.line == 3
    assert call_in(str(file), "torch.manual_seed") is None


def test_safe_edit_is_shown_in_the_users_line(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def go(ds, kw):\n    loader = DataLoader(ds, 8, num_workers=0)\n    DataLoader(ds, **kw)\n    gc.collect()\n"
    )

    changed = changed_call(CodeLine(str(file), 2), "DataLoader", num_workers="2", persistent_workers="True")

    assert changed == (
        "loader = DataLoader(ds, 8, num_workers=0)",
        "loader = DataLoader(ds, 8, num_workers=2, persistent_workers=True)",
    )
    assert changed_call(CodeLine(str(file), 3), "DataLoader", num_workers="2") == ()
    assert removed_line(CodeLine(str(file), 4)) == ("gc.collect()",)
    assert removed_line(CodeLine(str(file), 2)) == ()


def test_joining_other_things_is_no_growth(tmp_path: Path) -> None:
    source = """
    import numpy as np
    def deform(image):
        image = np.concatenate([warp(image[..., c]) for c in range(3)])  # here
    """

    kind = kind_of(line(tmp_path, source), NATIVE, LOOP_KINDS)

    assert kind is None or kind.code != "growing-copy"


def test_a_loop_that_only_asks_is_told_from_one_that_waits(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("while q.full():\n    pass\nwhile q.full():\n    time.sleep(0.01)\nwhile True:\n    pass\n")

    asking, waiting, forever = (source_line(str(file), number) for number in (2, 4, 6))

    assert asking is not None and waiting is not None and forever is not None
    assert (asking.spins, waiting.spins, forever.spins) == (True, False, False)
