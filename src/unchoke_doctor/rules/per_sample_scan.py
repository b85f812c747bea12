"""Is something listed, searched, opened or parsed anew for each sample, though the answer never changes?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import constants, is_decode, per_sample, sample_functions
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import UNKNOWN, given, origins, value
from unchoke_doctor.code.training import is_self
from unchoke_doctor.finding import Kind
from unchoke_doctor.rules import Case, Hit

_LISTS = frozenset({"listdir", "glob", "iglob", "rglob", "walk", "scandir", "iterdir"})
_STATS = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "getsize", "lexists"})
_PARSERS = frozenset({
    "pandas.read_csv", "pandas.read_excel", "pandas.read_json", "pandas.read_pickle", "pandas.read_parquet", "pandas.read_hdf",
    "json.load", "json.loads", "pickle.load", "pickle.loads", "joblib.load", "numpy.load", "numpy.loadtxt", "numpy.genfromtxt",
    "torch.load", "yaml.safe_load", "yaml.load", "scipy.io.loadmat", "csv.reader", "csv.DictReader", "zipfile.ZipFile",
    "tarfile.open", "pycocotools.coco.COCO",
})  # fmt: skip
_OPENERS = frozenset({"h5py.File", "sqlite3.connect", "lmdb.open", "rasterio.open", "netCDF4.Dataset", "zarr.open"})
_CONVERTERS = ("numpy.array", "numpy.stack", "numpy.concatenate", "torch.tensor", "torch.Tensor", "torch.stack")
_NETWORK = re.compile(r"/content/(?:g?drive)|^gs://|^s3://|^/gdrive|^\\\\\\\\|/Volumes/")
_TABLE = re.compile(
    r"(?:^|_|\.)(?:df|data_?frame|frame|table|csv|annotations?|meta(?:data)?|labels?|data|boxes|bboxes|info)(?:_\w+)?$|_df$",
    re.IGNORECASE,
)
_MANY_ROWS = 50_000
_LAZY = re.compile(r"is None|not in |hasattr|not self\.|cache|len\(")
_TEXTS: dict[str, tuple[Kind, str, str]] = {
    "list": (
        "choke",
        "lists the same folder for each sample, in every epoch",
        "list it once in {init}, keep the sorted paths and take `paths[index]` here",
    ),
    "list one": (
        "note",
        "lists a folder for each sample, in every epoch",
        "list the folders once in {init} and keep the files of each sample",
    ),
    "stat": ("note", "asks the file system for each sample", "check once in {init} and keep only the samples that are there"),
    "parse": (
        "choke",
        "reads and parses the same file for each sample, in every epoch",
        "read it once in {init} and keep what it holds (arrays: `mmap_mode='r'`)",
    ),
    "open": (
        "note",
        "opens the same file for each sample",
        "open it once per worker: `if self.file is None: self.file = …` in `__getitem__`, with `self.file = None` in {init}",
    ),
    "copy": (
        "choke",
        "converts the whole collection for each sample, to take one item of it",
        "convert it once in {init} and take the item here",
    ),
    "scan": (
        "choke",
        "compares all rows of the table for each sample, in every epoch",
        "group the table once in {init} (`dict(tuple(df.groupby(column)))`, or `set_index` and `.at`) and look it up here",
    ),
}
"""Kind, message and fix of each fact."""


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    found: dict[tuple[str, ast.AST], list[ast.AST]] = {}
    for function in sample_functions(program):
        if not program.is_own(function) or any("cache" in program.text(mark) for mark in getattr(function, "decorator_list", ())):
            continue
        for node in ast.walk(function):
            what = _fact(program, node) if isinstance(node, ast.Call | ast.Subscript) else ""
            if what and not _is_lazy(program, node, function):
                found.setdefault((what, function), []).append(node)
    for (what, function), nodes in found.items():
        yield _hit(case, what, function, nodes)


def _hit(case: Case, what: str, function: ast.AST, nodes: list[ast.AST]) -> Hit:
    program, owner = case.program, case.program.class_of(nodes[0])
    init = f"`{owner.name}.__init__`" if owner is not None else "front of the loader"
    kind, said, fix = _TEXTS[what]
    decodes = any(is_decode(program, call) for call in program.reached(sample_functions(program)[function]))
    if what in ("stat", "list one") and any(_NETWORK.search(one) for one in constants(program)):
        kind, said = "choke", said + " (the data lie on a network mount: a round trip each time)"
    elif what == "scan" and len(nodes) < 2 and (case.outputs.images or 0) < _MANY_ROWS and decodes:
        kind = "note"  # decoding the image takes longer than one scan of a table of usual length
    text, name = program.text(nodes[0]), getattr(function, "name", "lambda")
    return case.hit(nodes, f"`{text}` {said}", fix.format(init=init), kind, per_sample=text, places=len(nodes), function=name)


def _fact(program: Program, node: ast.Call | ast.Subscript) -> str:
    """Which of `_TEXTS` a call or a subscript is; empty for everything else."""
    if isinstance(node, ast.Subscript):
        return "scan" if _scans(program, node) else "copy" if _copies(program, node) else ""
    name, last, first = program.name(node), program.last(node), node.args[0] if node.args else None
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    path = receiver if first is None or (last in ("glob", "rglob") and not name.startswith("glob.")) else first
    if last in _LISTS and path is not None:
        return "list one" if per_sample(program, path) else "list"
    if last in _STATS and (name.startswith(("os.", "tensorflow.")) or first is None):
        return "stat"
    if name in _PARSERS | _OPENERS and first is not None and not per_sample(program, first):
        mapped = value(program, given(program, node, "mmap_mode"))
        return "open" if name in _OPENERS else "parse" if mapped is UNKNOWN or not mapped else ""
    return "scan" if last == "query" and receiver is not None and _TABLE.search(program.text(receiver)) else ""


def _copies(program: Program, node: ast.Subscript) -> bool:
    """`np.array(self.images)[index]`, also through a name: of an attribute, or of a name outside the function."""
    for made in origins(program, node.value, through=False) if per_sample(program, node.slice) else ():
        match made:
            case ast.Call(func=ast.Attribute(attr="astype" | "tolist", value=held)):
                pass
            case ast.Call(args=[held, *_]) if program.name(made) in _CONVERTERS:
                pass
            case _:
                continue
        kept = isinstance(held, ast.Attribute) and is_self(held.value)
        kept = kept or (isinstance(held, ast.Name) and all(program.function(one.node) is None for one in program.bound(held)))
        if kept and program.function(made) is program.function(node):
            return True
    return False


def _scans(program: Program, node: ast.Subscript) -> bool:
    """`df[df.id == x]` or `df.loc[df.id == x, "label"]`, where the row depends on the sample and the table does not."""
    by_loc = isinstance(node.value, ast.Attribute) and node.value.attr == "loc"
    held = node.value.value if by_loc and isinstance(node.value, ast.Attribute) else node.value
    mask = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    table = program.text(held)
    for part in ast.walk(mask):
        match part:
            case ast.Compare(left=column) | ast.Call(func=ast.Attribute(attr="isin") as column):
                pass
            case _:
                continue
        if program.text(column, 500).startswith((f"{table}.", f"{table}[")):
            text_key = (
                isinstance(column, ast.Subscript)
                and isinstance(column.slice, ast.Constant)
                and isinstance(column.slice.value, str)
            )
            of_table = text_key or by_loc or isinstance(column, ast.Attribute) or bool(_TABLE.search(table))
            return of_table and per_sample(program, mask) and not per_sample(program, held)
    return False


def _is_lazy(program: Program, node: ast.AST, function: ast.AST) -> bool:
    """Done once and kept (`if self.file is None:`), or only when something fails."""
    for part in program.above(node):
        if part is function:
            return False
        test = program.text(part.test, 200) if isinstance(part, ast.If) else ""
        if isinstance(part, ast.ExceptHandler | ast.Raise | ast.Assert) or (_LAZY.search(test) and "exists" not in test):
            return True
    return False
