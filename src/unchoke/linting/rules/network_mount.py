"""Training data read file by file from a mounted cloud drive.

A mounted drive (Google Drive in Colab) looks like a folder, but each file opened is a request over the network with its own
waiting time, commonly tens to hundreds of milliseconds, and many requests are throttled or fail after a while. Thousands of
pictures read that way cost more than everything else in the run, in every epoch again.

**Write instead.** Keep one archive on the drive, copy it to the machine's own disk at the start, and unpack it there:

    !cp "/content/drive/MyDrive/data/photos.zip" /content/ && unzip -q /content/photos.zip -d /content/photos
    ROOT = "/content/photos"

Checkpoints may well go to the drive: they are few and have to outlive the machine.

**When this is fine.** A handful of files, or one large file that is read once from front to back (an array, a table). Those
are not reported, nor is a program that copies from the drive before it reads; a drive that a switch asks for is a nit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.program import Program
from unchoke.linting.questions import tests_round
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="read",
    title="pictures read one by one from a mounted cloud drive",
    gain="commonly tens of milliseconds and more a file",
)
_MOUNT = re.compile(r"^(?:/content/)?g?drive/(?:My ?Drive|Shareddrives|Shared drives)\b|^/content/g?drive/", re.IGNORECASE)
_ONE_FILE = re.compile(r"\.\w{2,10}$")
_COPIES = re.compile(r"^\s*[!%]\s*(?:cp|rsync|unzip|tar|7z|unrar|mv)\b.*drive/", re.IGNORECASE | re.MULTILINE)
_COPYING = frozenset({"copytree", "copy_tree", "copy", "copyfile", "copy2", "extractall", "unpack_archive", "ZipFile"})
_NOT_DATA = re.compile(
    r"save|dump|backup|tensorboard|csv|board|checkpoint|ckpt|weight|model|result|output|predict|log|export|to_csv|append|chdir|makedirs|mkdir|load_state_dict|submission",
    re.IGNORECASE,
)


def check(program: Program) -> Iterator[Hit]:
    copied = (part.value for call in program.calls_to(*_COPYING) for part in program.within(call, ast.Constant))
    copies = any(isinstance(text, str) and _MOUNT.match(text) for text in copied)
    trains = program.facts.fits or program.facts.training_loops
    if not trains or copies or any(_COPIES.search(cell.text) for cell in program.source.cells):
        return
    for node in program.nodes(ast.Constant):
        text = node.value
        if isinstance(text, str) and _MOUNT.match(text) and _is_folder_of_data(program, node, text):
            path = text if len(text) <= 60 else f"{text[:58]}…"
            yield Hit(
                node,
                f"training reads its files one by one from the mounted drive, `{path}`: each is a request over the network",
                {"path": path},
                "keep one archive there, copy it to the machine's disk (`!cp …`), unpack it there and read that folder",
                kind="nit" if _is_opted_for(program, node) else None,
            )
            return


def _is_opted_for(program: Program, node: ast.AST) -> bool:
    """Only where a switch asks for the drive; that it runs in Colab is no switch."""
    return any("colab" not in program.text(test).lower() for test in tests_round(program, node))


def _is_folder_of_data(program: Program, node: ast.Constant, text: str) -> bool:
    """A folder or a pattern of pictures, given to something that is not about results."""
    if _ONE_FILE.search(text.rstrip("/")) and "*" not in text:
        return False
    around = [program.method(above) for above in program.ancestors(node) if isinstance(above, ast.Call)]
    told = [*around, *program.targets(node), text.rstrip("/").rpartition("/")[2]]
    return not any(_NOT_DATA.search(word) for word in told) and (bool(around) or bool(program.targets(node)))
