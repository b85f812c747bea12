"""Pages of the manual that are made from other files: `python docs/make_pages.py`. Git ignores what it writes.

`docs/notebooks/*.md` are the notebooks with the outputs they carry. `docs/lint/*.md` are the pages of the causes that `lint` and
`profile` name, which lie in `src/unchoke_doctor/causes`, and an index of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def page_of(notebook: dict[str, Any]) -> str:
    """The cells one after the other."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            yield f'<div class="output">{_one_line(data["text/html"])}</div>'
        else:
            yield f"```text\n{''.join(output.get('text') or data.get('text/plain', ''))}\n```"


def _one_line(html: str | list[str]) -> str:
    """HTML without line ends: Markdown takes it for one block."""
    return "".join("".join(html).split("\n"))


def write_notebooks() -> None:
    folder = ROOT / "docs" / "notebooks"
    folder.mkdir(exist_ok=True)
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = page_of(json.loads(file.read_text(encoding="utf-8")))
        (folder / f"{file.stem}.md").write_text(text, encoding="utf-8")


def write_causes() -> None:
    from unchoke_doctor.causes import catalogue

    folder = ROOT / "docs" / "lint"
    folder.mkdir(exist_ok=True)
    rows = [f"| [`{one.code}`]({one.code}.md) | {one.title} | {one.stage} |" for one in catalogue().values()]
    for one in catalogue().values():
        (folder / f"{one.code}.md").write_text(one.page.replace("# ", f"# {one.code}: ", 1), encoding="utf-8")
    about = "# Causes\n\nWhat `unchoke lint` reads in code and `unchoke profile` measures."
    table = "\n".join(["| code | what happens | stage |", "|---|---|---|", *rows])
    (folder / "index.md").write_text(f"{about}\n\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    write_notebooks()
    write_causes()
