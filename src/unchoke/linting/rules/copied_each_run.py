"""The whole data set copied or unpacked again at every start.

`copytree`, `extractall` and their like at the top of a script or notebook run each time it is started, for minutes on a large
set, and hold the data twice on disk. Where the target is removed first, nothing of the last run can be used.

**Write instead.** Look first, and copy only what is not there yet; or read the data where they are, and link instead of
copying:

    if not target.exists():
        shutil.unpack_archive(archive, target)

**When this is fine.** A machine that begins empty each time (a container, Colab), where the copy goes to a faster disk on
purpose: then one copy at the start is what you want.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.program import Program
from unchoke.core.findings import Kind
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    code="copied-each-run",
    group="input",
    stage="read",
    title="the data set copied or unpacked at every start",
    kind="nit",
)
_COPIES = frozenset({"shutil.copytree", "distutils.dir_util.copy_tree", "setuptools._distutils.dir_util.copy_tree"})
_UNPACKS = frozenset({"shutil.unpack_archive"})
_ARCHIVES = ("zipfile.ZipFile", "tarfile.open", "tarfile.TarFile", "py7zr.SevenZipFile")
_LOOKS = ("exists", "isdir", "is_dir", "isfile", "is_file", "listdir", "dirs_exist_ok")


def check(program: Program) -> Iterator[Hit]:
    removed = any(program.name(call) == "shutil.rmtree" for call in program.nodes(ast.Call))
    for call in program.nodes(ast.Call):
        if not _copies(program, call) or program.enclosing_function(call) is not None or program.loops_around(call):
            continue
        if _is_asked_first(program, call):
            continue
        what = program.text(call.func)
        again = removed and program.name(call) in _COPIES
        kind: Kind | None = "choke" if again else None
        yield Hit(
            call,
            f"`{what}` copies the data again at every start" + (", after the last copy was removed" if again else ""),
            {"call": what},
            "put it under `if not os.path.exists(target):`, or read the data where they are (links instead of copies)",
            kind=kind,
        )
        return


def _copies(program: Program, call: ast.Call) -> bool:
    name = program.name(call)
    if name in _COPIES | _UNPACKS:
        return True
    return program.method(call) == "extractall" and program.made_by(program.receiver(call)).startswith(_ARCHIVES)


def _is_asked_first(program: Program, call: ast.Call) -> bool:
    """Under a test that looks whether it is there, or a setting."""
    tests = [above.test for above in program.ancestors(call) if isinstance(above, ast.If)]
    return bool(tests) or any(isinstance(above, ast.Try) for above in program.ancestors(call))
