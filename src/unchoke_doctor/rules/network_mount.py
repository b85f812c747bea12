"""Does the training read its images over the network, from Google Drive or another mount, in every epoch?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from shlex import quote

from unchoke_doctor.code.data import FLOWS, FOLDER_DATASETS, feeds, in_display, is_decode, loaders, pipeline
from unchoke_doctor.code.program import COMPREHENSIONS, Program
from unchoke_doctor.code.training import handful
from unchoke_doctor.rules import Case, Hit

_MOUNT = re.compile(
    r"^(?:/content/|\.?/|\.\./)?(?:g?drive/|gdrive\b|mydrive\b|drive/My ?Drive)|^/gdrive/|^/(?:dbfs|nfs|Volumes)/"
    r"|^/run/user/\d+/gvfs/|^/mnt/(?:c|d|e|nfs|smb|nas|gdrive|drive)/|^\\\\\\\\\w|^//\w+[\w.]*/\w",
    re.IGNORECASE,
)
_FILE = re.compile(r"\.(?:\w{2,5}|tar\.gz)$")
_TABLES = re.compile(r"\.(?:npy|npz|h5|hdf5|tfrecords?|pt|pkl|pickle)$", re.IGNORECASE)
_OTHER_USE = re.compile(
    r"save|model|weight|ckpt|checkpoint|output|out_|result|log|backup|csv|config|plot|fig|submission|zip|export", re.IGNORECASE
)
_OTHER_CALLS = re.compile(
    r"save|makedirs|mkdir|mount|ModelCheckpoint|load_model|load_weights|to_csv|read_csv|torch\.load|append", re.IGNORECASE
)
_COPIES = re.compile(
    r"(?:^|[\s!;(])(?:cp|rsync|unzip|tar|7z|gsutil|rclone)\s|copytree|unpack_archive|extractall|copy_tree|extract_archive"
)
_DESTINATION = re.compile(r"\s-[dC]\s*(?:\"[^\"]*\"|'[^']*'|\S+)")
_CHANGES_FOLDER = re.compile(r"^\s*%?cd\s+(?P<path>['\"]?/content/g?drive\S*)", re.MULTILINE)


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    if not (case.trainings or loaders(program)):
        return
    mounted = (node for node in program.order if isinstance(node, ast.Constant) and _is_mounted(program, node))
    places: dict[ast.AST, str] = {node: str(node.value) for node in mounted}
    for cell, tree in program.own.cells:  # `%cd /content/drive/…`: relative paths are on the mount from here on
        for found in _CHANGES_FOLDER.finditer(cell.text):
            line = cell.text.count("\n", 0, found.start("path")) + 1
            places |= {part: found["path"].strip("'\"") for part in tree.body if part.lineno == line}
    where, often = _reading(case) if places else ("", "")
    if where:
        path = next(iter(places.values()))
        again = f"{often} reads its {where} from there{'' if often == 'every epoch' else ' once'}"
        copy = f"!cp {quote(path.rstrip('/') + '.zip')} /content/ && unzip -q …"
        archive = f" (as one archive: `{copy}`)" if "drive" in path.lower() else ""
        said = f"`{path}` is on a network mount and {again}: each file is a request over the network"
        fix = f"copy the data to the machine's own disk first{archive} and read it there"
        yield case.hit(places, said, fix, path=path, often=often)


def _is_mounted(program: Program, node: ast.Constant) -> bool:
    """A path of a folder on a mount that is not there to save into and that nothing copies from."""
    path = node.value
    if not (isinstance(path, str) and _MOUNT.match(path) and program.is_own(node)):
        return False
    above = list(program.above(node))
    if path.rstrip("/").endswith(("/content/drive", "content/gdrive")) and not isinstance(above[0], ast.BinOp | ast.JoinedStr):
        return False  # the argument of `drive.mount`
    if _FILE.search(path) and not _TABLES.search(path):
        return False
    targets = getattr(program.statement(node), "targets", ())
    names = [name for target in targets if (name := getattr(target, "id", getattr(target, "attr", "")))]
    names += [part.arg or "" for part in above if isinstance(part, ast.keyword)][:1]
    calls = [program.name(part) for part in above if isinstance(part, ast.Call)]
    if _OTHER_USE.search(" ".join(names)) or any(_OTHER_CALLS.search(name) for name in calls):
        return False
    texts = [cell.text for cell in program.source.cells if cell.kind == "code" and _COPIES.search(cell.text)]
    sources = [_DESTINATION.sub("", line) for text in texts for line in text.splitlines() if _COPIES.search(line)]
    named = re.compile(rf"\b{re.escape(names[0])}\b") if names and names[0] else None
    return not any(path.rstrip("/") in line or (named is not None and named.search(line)) for line in sources)


def _reading(case: Case) -> tuple[str, str]:
    """What is read, and how often; nothing where that is not known."""
    program = case.program
    for training in (one for one in case.trainings if one.data is not None):
        for feed in feeds(program, training.data):
            if feed.kind == "tf.data":
                steps = pipeline(program, training.data) if training.data is not None else []
                return "data", "each run" if any(program.last(step) == "cache" for step in steps) else "every epoch"
            if feed.kind in ("sequence", "generator"):
                return "images", "every epoch"
    if program.calls_to(*FOLDER_DATASETS, *(FLOWS - {"flow"})) or any(one.work.kind == "decodes" for one in loaders(program)):
        return "images", "every epoch"
    nodes: list[ast.AST] = [*program.loops, *(node for node in program.order if isinstance(node, COMPREHENSIONS))]
    read = (call for loop in nodes if not handful(program, loop) for call in program.reached(loop) if is_decode(program, call))
    return ("images", "each run") if any(not in_display(program, call) for call in read) else ("", "")
