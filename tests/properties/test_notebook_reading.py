"""Any notebook is read to its end: whatever its cells hold, there is a line for each of them in every form."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import books
from unchoke.commands.notebook import notebook
from unchoke.notebooks.notebook_html import render_notebook_html

PIECES = [
    "import torch\n", "from torch import *\n", "!pip install x\n", "%%bash\n", "%%time\n", "def f(x):\n    return f(x)\n",
    "f(1)\n", "class D(Dataset):\n    def __getitem__(self, i):\n        return Image.open(self.p[i])\n", "loss.backward()\n",
    "for epoch in range(9):\n    ", "model.fit(x, epochs=N)\n", "x = (", "'''", "\t", "\x00", "|", "<script>", "\u202e",
    "\ud800", "files = !ls\n", "df.plot.bar();\n", "lambda: (yield)\n", "\r\n",
    "if not os.path.exists('a'):\n    os.system('unzip a')\n",
]  # fmt: skip
cells = st.lists(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=6).map("".join)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(cells)
def test_every_cell_is_told_in_every_form(sources: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = books.write_book(Path(folder, "any.ipynb"), sources)
        report = notebook(path, html=Path(folder, "any.html"))
    code = [number for number, source in enumerate(sources, start=1) if not source.startswith("#:")]
    assert [cell.reading.number for cell in report.cells] == code
    assert report.to_text()
    rows = [line for line in report.to_markdown().splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows}) <= 1
    assert "<script" not in render_notebook_html(report.to_dict())
