"""Does the training read its images over the network, from Google Drive or another mount, in every epoch?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import FLOWS, FOLDER_DATASETS, feeds, is_decode, loaders, pipeline
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import origins
from unchoke_doctor.rules import Case, Hit, one_hit

_MOUNT = re.compile(
    r"^(?:/content/|\.?/|\.\./)?(?P<drive>g?drive/|gdrive\b|mydrive\b|drive/My ?Drive)|^/gdrive/|^/(?:dbfs|nfs|Volumes)/|^/run/user/\d+/gvfs/"
    r"|^/mnt/(?:c|d|e|nfs|smb|nas|gdrive|drive)/|^\\\\\\\\\w|^//\w+[\w.]*/\w",
    re.IGNORECASE,
)
_FILE = re.compile(r"\.(?:\w{2,5}|tar\.gz)$")
_TABLES = re.compile(r"\.(?:npy|npz|h5|hdf5|tfrecords?|pt|pkl|pickle)$", re.IGNORECASE)
_OTHER_USE = re.compile(r"save|model|weight|ckpt|checkpoint|output|out_|result|log|backup|csv|config|plot|fig|submission|zip|export", re.IGNORECASE)
_COPIES = re.compile(r"(?:^|[\s!;(])(?:cp|rsync|unzip|tar|7z|gsutil|rclone)\s|copytree|unpack_archive|extractall|copy_tree|extract_archive", re.MULTILINE)
_CHANGES_FOLDER = re.compile(r"^\s*%?cd\s+(?P<path>['\"]?/content/g?drive\S*)", re.MULTILINE)


def check(case: Case) -> Iterator[Hit]:
    places = [*_mounted(case), *_working_folder(case)]
    if not places or not (case.trainings or loaders(case.program)):
        return
    where, how = _reading(case)
    if not how:
        return
    node, path = places[0]
    kind, basis, evidence = case.weigh("choke" if how != "once" else "note")
    again = f"every epoch reads its {where} from there" if how == "epoch" else f"each run reads its {where} from there once"
    yield one_hit(
        [one for one, _ in places],
        message=f"`{path}` is on a network mount and {again}: each file is a request over the network{case.told()}",
        fix=f"copy the data to the machine's own disk first (as one archive: `!cp {path.rstrip('/')}.zip /content/ && unzip -q …`) and read it there"
        if "drive" in path.lower()
        else "copy the data to the machine's own disk first and read it there",
        kind=kind,
        basis=basis,
        evidence={**evidence, "path": path},
    )


def _mounted(case: Case) -> Iterator[tuple[ast.AST, str]]:
    """Paths of folders on a mount that are not there to save into and that nothing copies from."""
    program = case.program
    for node in program.order:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and _MOUNT.match(node.value) and program.is_own(node)):
            continue
        if node.value.rstrip("/").endswith(("/content/drive", "content/gdrive")) and not _is_joined(program, node):
            continue  # the argument of `drive.mount`
        is_file = _FILE.search(node.value) is not None and not _TABLES.search(node.value)
        if is_file or _OTHER_USE.search(_bound_name(program, node)) or _is_written(program, node):
            continue
        if not _copied(case, node):
            yield node, node.value


def _is_joined(program: Program, node: ast.AST) -> bool:
    return isinstance(program.parents.get(node), ast.BinOp | ast.JoinedStr)


def _bound_name(program: Program, node: ast.AST) -> str:
    """The name that a path is kept under; without one, the function that gets it and its keyword."""
    statement = program.statement(node)
    names = [target.id for target in getattr(statement, "targets", ()) if isinstance(target, ast.Name)]
    names += [target.attr for target in getattr(statement, "targets", ()) if isinstance(target, ast.Attribute)]
    word = next((part.arg or "" for part in program.above(node) if isinstance(part, ast.keyword)), "")
    return " ".join((*names, word))


def _is_written(program: Program, node: ast.AST) -> bool:
    calls = [part for part in program.above(node) if isinstance(part, ast.Call)]
    return any(re.search(r"save|makedirs|mkdir|mount|ModelCheckpoint|load_model|load_weights|to_csv|read_csv|torch\.load|append", program.name(call)) for call in calls)


def _copied(case: Case, node: ast.Constant) -> bool:
    """Is there a line that copies or unpacks this path, or something in it, to another place?"""
    name = _bound_name(case.program, node).split(" ")[0]
    for cell in case.program.source.cells:
        for line in cell.text.splitlines() if cell.kind == "code" else ():
            if _COPIES.search(line) and (str(node.value).rstrip("/") in line or (name and re.search(rf"\b{name}\b", line))):
                return True
    return False


def _working_folder(case: Case) -> Iterator[tuple[ast.AST, str]]:
    """`%cd /content/drive/…`: relative paths are on the mount from here on."""
    for cell, tree in case.program.own.cells:
        for found in _CHANGES_FOLDER.finditer(cell.text):
            line = cell.text.count("\n", 0, found.start("path")) + 1
            node = next((part for part in tree.body if part.lineno == line), None)
            if node is not None:
                yield node, found["path"].strip("'\"")


def _reading(case: Case) -> tuple[str, str]:
    """What is read, and how often: `epoch`, `once`, or nothing that is known."""
    program = case.program
    if any(one.work.kind == "decodes" for one in loaders(program)):
        return "images", "epoch"
    for training in case.trainings:
        for feed in feeds(program, training.data):
            steps = [program.name(step).rpartition(".")[2] for step in pipeline(program, training.data)] if training.data is not None else []
            if feed.kind == "tf.data" and "cache" in steps:
                return "images", "once"
            if feed.kind in ("sequence", "generator", "tf.data") or (feed.kind == "flow" and program.name(feed.call).rpartition(".")[2] != "flow"):
                return "images" if feed.kind != "tf.data" else "data", "epoch"
    if program.calls_to(*FOLDER_DATASETS, *(FLOWS - {"flow"})):
        return "images", "epoch"
    return ("images", "once") if any(is_decode(program, call) for call in program.calls) else ("", "")


__all__ = ["check", "origins"]
