"""What IPython adds to Python, taken out again: magics, shell lines and help questions.

In comes a cell as written, out goes Python with the same number of lines, in which every expression kept is at its old line and
column. `%time x = f()` keeps `x = f()`, `files = !ls` becomes an assignment of a list, other magics become `pass`. Says too
whether the cell is run as Python at all (`%%bash` and `%%writefile` cells are not), which file a cell writes, and which scripts
`%run` runs. Nothing is parsed here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

LINE_END = re.compile(r"\r\n|\r|\n")
# Cell magics whose body is run as Python by the notebook itself.
_PYTHON_CELLS = frozenset(
    {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "debug", "choke", "px", "wandb", "pyinstrument"}
)
_OTHER_CELLS = frozenset({
    "bash", "sh", "script", "system", "sx", "!", "cmd", "powershell", "writefile", "file", "html", "javascript", "js", "latex",
    "markdown", "svg", "perl", "ruby", "pypy", "python", "python2", "python3", "cython", "sql", "bigquery", "r", "julia", "cu",
    "writetemplate", "appendfile", "css", "shell", "rust", "skip", "false", "script_magic", "ai", "manim", "mermaid", "dot",
})  # fmt: skip
# Line magics whose argument is Python that is run.
_TIMED = re.compile(r"%(?:time|timeit|prun|memit|mprun|lprun)\b(?:[ \t]+-[a-zA-Z]+(?:[ \t]*[\d.]+)?)*[ \t]+(?=[^\s-])")
_ASSIGNED = re.compile(r"^([\w.,\[\]'\" \t()*]*\w[\])\s,]*=[ \t]*)([!%])")
_HELP = re.compile(r"^\s*(?:\?{1,2}\s*[\w.*%]+|[%\w.*\[\]()'\"]+\?{1,2})\s*$")
_CELL_MAGIC = re.compile(r"%%([A-Za-z_!]\w*|!)")
FILE_CELLS = frozenset({"writefile", "file", "appendfile", "writetemplate"})
SHELL_CELLS = frozenset({"bash", "sh", "shell", "script", "!", "system", "sx", "cmd", "powershell"})
_RUN_MAGIC = re.compile(r"^\s*%run\s+(.+)")
# What may hide a line's beginning: strings, comments, brackets.
_TOKENS = re.compile(
    r"""(?P<comment>\#[^\r\n]*)|(?P<triple>\"\"\"|''')|(?P<string>"(?:\\.|[^"\\\r\n])*"?|'(?:\\.|[^'\\\r\n])*'?)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<joined>\\(?:\r\n|\r|\n))|(?P<end>\r\n|\r|\n)"""
)


@dataclass(frozen=True)
class PlainCell:
    """A cell without its magics. `language` is `python`, or the name of the cell magic that takes the whole cell elsewhere."""

    text: str
    language: str
    indent: int = 0

    @property
    def is_python(self) -> bool:
        return self.language == "python"


@dataclass(frozen=True)
class WrittenFile:
    """What a `%%writefile` cell writes: the name as typed, and whether it goes behind what is there."""

    name: str
    append: bool = False

    @property
    def is_python(self) -> bool:
        return self.name.endswith(".py")


def written_file(text: str) -> WrittenFile | None:
    """The file that a cell writes instead of running; None for every other cell."""
    first = next((line.strip() for line in split_lines(text) if line.strip()), "")
    found = _CELL_MAGIC.match(first)
    if not found or found.group(1).lower() not in FILE_CELLS:
        return None
    words = _words(first[found.end() :])
    names = [word for word in words if not word.startswith("-")]
    appends = found.group(1).lower() == "appendfile" or "-a" in words or "--append" in words
    return WrittenFile(names[0] if names else "", appends)


def written_python(text: str) -> str:
    """The script that a `%%writefile` cell writes, on the lines it stands on in the cell."""
    lines = split_lines(text)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    lines[first] = ""
    return "\n".join(lines)


def run_scripts(text: str) -> Iterator[str]:
    """The scripts that `%run` lines of a cell run with the notebook's own names."""
    for line in split_lines(text) if "%run" in text else ():
        found = _RUN_MAGIC.match(line)
        name = next((word for word in _words(found[1]) if not word.startswith("-")), "") if found else ""
        if name:
            yield name if name.endswith(".py") else f"{name}.py"


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # an open quote: the shell goes on in the next line
        return command.split()


def split_lines(text: str) -> list[str]:
    """The lines as Python counts them, without their ends: form feeds and Unicode separators end no line."""
    return LINE_END.split(text)


def plain_python(text: str) -> PlainCell:
    """The cell without magics; where it is not Python, its text is blank."""
    lines = split_lines(text)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    found = _CELL_MAGIC.match(lines[first].strip()) if lines else None
    if found:
        name = found.group(1).lower()
        if name in _OTHER_CELLS:
            return PlainCell("\n" * (len(lines) - 1), name)
        lines[first] = ""
        text = "\n".join(lines)
        if name not in _PYTHON_CELLS:
            return PlainCell(_without_magics(text), f"python?{name}")
    indent = _common_start(lines)
    if indent:
        text = "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)
    return PlainCell(_without_magics(text), "python", indent)


def _common_start(lines: list[str]) -> int:
    """The indentation of the first line with code on it: IPython takes it off the whole cell."""
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            return len(line) - len(line.lstrip(" \t"))
    return 0


def _without_magics(text: str) -> str:
    if not any(sign in text for sign in "%!?"):
        return text
    lines, out, number = split_lines(text), [], 0
    starts = _free_lines(text)
    while number < len(lines):
        line = lines[number]
        if number not in starts:
            out.append(line)
        else:
            kept = _rewritten(line)
            out.append(kept)
            while kept != line and line.rstrip().endswith("\\") and number + 1 < len(lines):
                number += 1
                line = lines[number]
                out.append("")
                kept = ""
        number += 1
    return "\n".join(out)


def _rewritten(line: str) -> str:
    """The line as Python; itself where it holds no magic."""
    body = line.lstrip(" \t")
    indent = line[: len(line) - len(body)]
    if body.startswith(("%", "!", "?")):
        timed = _TIMED.match(body)
        if timed and not body[timed.end() :].startswith("%"):
            return indent + "0;" + " " * (timed.end() - 2) + body[timed.end() :].rstrip("\\")
        return indent + "pass"
    assigned = _ASSIGNED.match(line)
    if assigned and "#" not in assigned.group(1):
        return assigned.group(1) + ("[]" if assigned.group(2) == "!" else "None")
    if "?" in body and _HELP.match(body):
        return indent + "pass"
    return line


def _free_lines(text: str) -> set[int]:
    """The lines that begin a statement: not inside a string or brackets, not joined to the line before."""
    free, number, depth, at, joined = {0}, 0, 0, 0, False
    line_start = 0
    while found := _TOKENS.search(text, at):
        at = found.end()
        kind = found.lastgroup
        if depth == 0 and not joined and number in free and _is_escape(text, line_start) and kind != "end" and kind != "joined":
            continue  # a magic's own line: its quotes and brackets mean nothing
        if kind == "triple":
            close = text.find(found.group(), at)
            stop = len(text) if close < 0 else close + 3
            number += len(LINE_END.findall(text, at, stop))
            at = stop
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind in ("end", "joined"):
            number += 1
            line_start = at
            joined = kind == "joined"
            if depth == 0 and not joined:
                free.add(number)
    return free


def _is_escape(text: str, at: int) -> bool:
    """Does the line that begins at `at` begin with a magic's sign?"""
    end = LINE_END.search(text, at)
    line = text[at : end.start() if end else len(text)]
    return _rewritten(line) != line
