"""The notebooks as pages of the manual: `python docs/notebook_pages.py` writes `docs/notebooks/*.md`, which git ignores.

In come the notebooks with the outputs they carry, out goes Markdown: text as it is, code, what it printed, tables and pictures.
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


def main() -> None:
    folder = ROOT / "docs" / "notebooks"
    folder.mkdir(exist_ok=True)
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = page_of(json.loads(file.read_text(encoding="utf-8")))
        (folder / f"{file.stem}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
