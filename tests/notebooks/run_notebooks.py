"""Runs the notebooks and keeps what they give: `python tests/notebooks/run_notebooks.py [NAME …]`.

They run one after the other in a folder that is removed again, on the demos' photos and scenes. Kept are results and what was
printed; progress (stderr), numbers of processes and what names this machine's folders are not.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
CELL_TIMEOUT_S = 1200


def tidied(notebook: Any, folder: Path) -> Any:
    """The notebook without what is of this machine or this minute."""
    notebook.metadata.pop("language_info", None)
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.metadata.pop("execution", None)
        cell.execution_count = number + 1
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = cell.execution_count
        cell.outputs = nbformat.from_dict(json.loads(_neutral(json.dumps(cell.outputs), folder)))
    return notebook


def _neutral(text: str, folder: Path) -> str:
    return re.sub(r"process \d+", "process 12345", text.replace(f"{folder}/", ""))


def main() -> None:
    wanted = sys.argv[1:] or [file.name for file in sorted(NOTEBOOKS.glob("*.ipynb"))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        spec = folder / "jupyter" / "kernels" / "python3"
        spec.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
        os.environ |= {"JUPYTER_PATH": str(folder / "jupyter"), "IPYTHONDIR": str(folder / "ipython")}
        for file in (NOTEBOOKS / one for one in wanted):
            notebook = nbformat.read(file, as_version=4)
            resources = {"metadata": {"path": str(folder)}}
            client = nbclient.NotebookClient(notebook, timeout=CELL_TIMEOUT_S, record_timing=False, resources=resources)
            nbformat.write(tidied(client.execute(), folder), file)


if __name__ == "__main__":
    main()
