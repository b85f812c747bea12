"""The whole data set copied or unpacked again at every start.

`copytree`, `extractall` and their like at the top of a script or notebook run each time it is started, for minutes on a large
set, and hold the data twice on disk. Where the target is removed first, nothing of the last run can be used.

**Write instead.** Look first, and copy only what is not there yet; or read the data where they are, and link instead of
copying:

    if not target.exists():
        shutil.unpack_archive(archive, target)

**When this is fine.** A machine that begins empty each time (a container, Colab), where the copy goes to a faster disk on
purpose: then one copy at the start is what you want. Always a nit: how much is copied, the file does not tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(group="input", stage="read", title="the data set copied or unpacked at every start", kind="nit", in_training=True)
_COPIES = frozenset({"shutil.copytree", "distutils.dir_util.copy_tree", "setuptools._distutils.dir_util.copy_tree"})
_ARCHIVES = ("zipfile.ZipFile", "tarfile.open", "tarfile.TarFile", "py7zr.SevenZipFile")


def check(program: Program) -> Iterator[Hit]:
    for call in program.calls_to("copytree", "copy_tree", "unpack_archive", "extractall"):
        guarded = any(isinstance(above, ast.If | ast.Try) for above in program.ancestors(call))
        held = program.made_by(program.receiver(call)).startswith(_ARCHIVES)
        if guarded or program.enclosing_function(call) is not None or program.loops_around(call):
            continue
        if program.name(call) not in _COPIES and program.name(call) != "shutil.unpack_archive" and not held:
            continue
        again = program.name(call) in _COPIES and bool(program.calls_named(["shutil.rmtree"]))
        what = program.text(call.func)
        yield Hit(
            call,
            f"`{what}` copies the data again at every start" + (", after the last copy was removed" if again else ""),
            {"call": what},
            "put it under `if not os.path.exists(target):`, or read the data where they are (links instead of copies)",
        )
        return
