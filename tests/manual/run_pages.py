"""The commands of the manual, run as they stand there: `python tests/manual/run_pages.py [PAGE …]` puts in what they print now,
with `--check` it only says where that differs.

A block marked `console` holds commands after `$ ` and, below each, lines of what it printed. A block with `title="NAME"` is a
file, and a comment `<!-- run: LINE -->` a line that is run unseen. Pages of one group share a folder that is empty at first, and
are gone through in order. A command must exit with 0, or as a comment `# exit code 1` behind it says. Every line that is shown
must stand in what was printed, in that order, numbers, units and the width of tables aside; `…` stands for lines that are left
out and, at the end of a line, for the rest of it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from unchoke.cli.main import app, join_expect, name_script
from unchoke.core.brief_waits import wait_briefly

DOCS = Path(__file__).resolve().parents[2] / "docs"
GROUPS = {
    "leaves": ["tutorials/leaves.md"],
    "skin": ["tutorials/skin.md"],
    "pasture": ["tutorials/pasture.md"],
    "scenes": ["tutorials/scenes.md", "how-to/scenes.md"],
    "photo-masks": ["tutorials/photo-masks.md"],
    "script": ["tutorials/script.md", "how-to/lint.md"],
    "photos": [
        *("how-to/train-on-your-photos.md", "how-to/encoders.md", "how-to/correct-labels.md", "how-to/export.md"),
        *("how-to/presets.md", "how-to/notebook.md", "how-to/folds.md"),
    ],
}
"""Pages that share a folder, in the order in which a reader might take them."""
FENCE = re.compile(
    r"^```(?P<kind>\w+)(?P<more>[^\n]*)\n(?P<body>.*?)^```$|^<!-- run: (?P<unseen>[^\n]+) -->$", re.MULTILINE | re.DOTALL
)
LEFT_OUT = "…"
WIDEST = 150


@dataclass
class Typed:
    """A command, the exit code it says, and the lines shown below it."""

    line: str
    exit_code: int
    shown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Drift:
    """What a page says and the command did not."""

    page: str
    command: str
    said: str
    printed: str

    def __str__(self) -> str:
        return f"{self.page}: $ {self.command}\n  the page says   {self.said}\n  it printed\n{self.printed}"


def commands_of(body: str) -> list[Typed]:
    """The commands of a `console` block; one that ends in a backslash goes on in the next line."""
    typed: list[Typed] = []
    for line in body.replace("\\\n", "\\\0").splitlines():
        if line.startswith("$ "):
            code = re.search(r"  # exit code (\d+)$", line)
            typed.append(Typed(line.removeprefix("$ "), int(code[1]) if code else 0))
        else:
            typed[-1].shown.append(line)
    return typed


def run_line(line: str) -> tuple[int, str]:
    """Exit code and output of one line, both streams together; `unchoke` runs in this process, which has loaded torch."""
    line = line.replace("\\\0", "").partition("  # ")[0]
    if line.startswith("unchoke ") and not {"|", ">", "<", ";"} & set(shlex.split(line)):
        done = CliRunner().invoke(app, join_expect(name_script(shlex.split(line)[1:])))
        return done.exit_code, done.output
    child = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return child.returncode, child.stdout


def shape_of(line: str) -> str:
    """A line without what differs from run to run: numbers, units of time and size, bars, and the width of columns."""
    line = re.sub(r"\d[\d,.:e-]*\d|\d", "#", line.strip())
    line = re.sub(r"# ?(?:µs|ms|s|min|h|B|kB|MB|GB)\b", "# unit", line)
    line = re.sub(r"(?:# unit ?)+", "# unit ", line)
    return re.sub(r"\s+", " ", re.sub(r"█+|-{2,}|·+", "", line)).strip()


def match_lines(shown: list[str], printed: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each line that is shown with the printed one that has its shape, in order; None where there is none."""
    place = 0
    for line in shown:
        if not line.strip() or line.strip() == LEFT_OUT:
            yield line, line
            continue
        cut = line.endswith(LEFT_OUT)
        wanted = shape_of(line.removesuffix(LEFT_OUT))
        shapes = [shape_of(one) for one in printed[place:]]
        found = next((number for number, one in enumerate(shapes) if one == wanted or (cut and one.startswith(wanted))), None)
        if found is None:
            yield line, None
            continue
        place += found + 1
        actual = printed[place - 1].rstrip()
        yield line, _shortened(actual, len(line)) if cut else actual


def _shortened(line: str, width: int) -> str:
    head = line[: min(width, WIDEST) - len(LEFT_OUT)]
    return f"{head.rpartition(' ')[0].rstrip() or head} {LEFT_OUT}"


def run_page(page: str) -> tuple[str, list[Drift]]:
    """Run a page's blocks in the folder at hand: the page with what was printed now, and what it says that was not."""
    text = (DOCS / page).read_text(encoding="utf-8")
    drifts: list[Drift] = []
    parts, end = [], 0
    for match in FENCE.finditer(text):
        if match["unseen"]:
            _run_block(page, f"$ {match['unseen']}\n", drifts)
            continue
        parts.append(text[end : match.start("body")])
        end = match.end("body")
        title = re.search(r'title="([^"]+)"', match["more"])
        if title:
            Path(title[1]).write_text(match["body"], encoding="utf-8")
        parts.append(_run_block(page, match["body"], drifts) if match["kind"] == "console" else match["body"])
    return "".join([*parts, text[end:]]), drifts


def _run_block(page: str, body: str, drifts: list[Drift]) -> str:
    lines = []
    for typed in commands_of(body):
        code, output = run_line(typed.line)
        printed = [line.replace(f"{Path.cwd()}/", "") for line in output.splitlines()]
        if code != typed.exit_code:
            drifts.append(Drift(page, typed.line, f"exit code {typed.exit_code}", f"{output}\n(exit code {code})"))
        lines.append("$ " + typed.line.replace("\\\0", "\\\n"))
        for said, actual in match_lines(typed.shown, printed):
            lines.append(said if actual is None else actual)
            if actual is None:
                drifts.append(Drift(page, typed.line, said, output))
    return "\n".join(lines) + "\n"


def run_group(pages: list[str], folder: Path, *, write: bool) -> list[Drift]:
    """All pages of a group, one after the other in `folder`."""
    drifts = []
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # `python` is the one that runs this
    with chdir(folder), patch.dict(os.environ, PATH=path, MANUAL=str(Path(__file__).parent)):
        for page in pages:
            text, found = run_page(page)
            drifts += found
            if write:
                (DOCS / page).write_text(text, encoding="utf-8")
    return drifts


def main() -> int:
    wait_briefly()
    check = "--check" in sys.argv[1:]
    wanted = {Path(name).resolve().relative_to(DOCS).as_posix() for name in sys.argv[1:] if name != "--check"}
    drifts = []
    for pages in GROUPS.values():
        asked = [number for number, page in enumerate(pages, 1) if not wanted or page in wanted]
        if asked:  # the pages before are run as well: later ones go on with what they made
            with tempfile.TemporaryDirectory() as folder:
                drifts += run_group(pages[: asked[-1]], Path(folder), write=not check)
    sys.stderr.writelines(f"{drift}\n" for drift in drifts)
    return 1 if drifts else 0


if __name__ == "__main__":
    sys.exit(main())
