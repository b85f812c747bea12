"""Is something listed, searched, opened or parsed anew for each sample, though the answer never changes?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import constants, is_decode, per_sample, sample_functions
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import UNKNOWN, given, value
from unchoke_doctor.finding import Kind
from unchoke_doctor.rules import Case, Hit, one_hit

_LISTS = frozenset({"listdir", "glob", "iglob", "rglob", "walk", "scandir", "iterdir"})
_STATS = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "getsize", "lexists"})
_PARSERS = frozenset({
    "pandas.read_csv", "pandas.read_excel", "pandas.read_json", "pandas.read_pickle", "pandas.read_parquet", "pandas.read_hdf",
    "json.load", "json.loads", "pickle.load", "pickle.loads", "joblib.load", "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "torch.load",
    "yaml.safe_load", "yaml.load", "scipy.io.loadmat", "csv.reader", "csv.DictReader", "zipfile.ZipFile", "tarfile.open",
    "pycocotools.coco.COCO",
})  # fmt: skip
_OPENERS = frozenset({"h5py.File", "sqlite3.connect", "lmdb.open", "rasterio.open", "netCDF4.Dataset", "zarr.open"})
_NETWORK = re.compile(r"/content/(?:g?drive)|^gs://|^s3://|^/gdrive|^\\\\\\\\|/Volumes/")
_MANY_ITEMS = re.compile(r"paths?|files?|names|imgs?|images?|ids?|samples|keys|uuid", re.IGNORECASE)
_TABLE = re.compile(r"(?:^|_|\.)(?:df|data_?frame|frame|table|csv|annotations?|meta(?:data)?|labels?|data|boxes|bboxes|info)(?:_\w+)?$|_df$", re.IGNORECASE)
_MANY_ROWS = 50_000
_LAZY = re.compile(r"is None|not in |hasattr|not self\.|cache|len\(")


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
        if what != "iloc" or len(nodes) > 3:
            yield _hit(case, what, function, nodes)


def _fact(program: Program, node: ast.Call | ast.Subscript) -> str:
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Attribute) and node.value.attr == "iloc":
            return "iloc"
        return "scan" if _scanned(program, node) is not None else ""
    name = program.name(node)
    last = name.rpartition(".")[2]
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    path = node.args[0] if node.args and not (last in ("glob", "rglob") and not name.startswith("glob.")) else receiver
    if last in _LISTS and path is not None:
        return "list" if not per_sample(program, path) else "list one"
    if last in _STATS and (name.startswith(("os.", "tensorflow.")) or not node.args):
        return "stat"
    if name in _PARSERS | _OPENERS and node.args and not per_sample(program, node.args[0]):
        mapped = value(program, given(program, node, "mmap_mode"))
        return "open" if name in _OPENERS else "parse" if mapped is UNKNOWN or not mapped else ""
    if last == "index" and receiver is not None and node.args and per_sample(program, node.args[0]) and not per_sample(program, receiver):
        return "index" if _MANY_ITEMS.search(program.text(receiver)) else ""
    if last == "query" and receiver is not None and _TABLE.search(program.text(receiver)):
        return "scan"
    return "sql" if last == "execute" and node.args and "select" in program.text(node.args[0]).lower() else ""


def _scanned(program: Program, node: ast.Subscript) -> ast.expr | None:
    """The table of `df[df.id == x]` or `df.loc[df.id == x, "label"]`, where the row depends on the sample."""
    held = node.value.value if isinstance(node.value, ast.Attribute) and node.value.attr == "loc" else node.value
    mask = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    table = program.text(held)
    for part in ast.walk(mask):
        isin = isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "isin"
        column = part.left if isinstance(part, ast.Compare) else part.func if isin else None  # type: ignore[attr-defined]
        if column is not None and program.text(column, 500).startswith((f"{table}.", f"{table}[")):
            of_table = isinstance(column, ast.Attribute) or _TABLE.search(table) or isinstance(node.value, ast.Attribute)
            text_key = isinstance(column, ast.Subscript) and isinstance(column.slice, ast.Constant) and isinstance(column.slice.value, str)
            return held if (of_table or text_key) and per_sample(program, mask) and not per_sample(program, held) else None
    return None


def _is_lazy(program: Program, node: ast.AST, function: ast.AST) -> bool:
    """Done once and kept (`if self.file is None:`), or only when something fails."""
    for part in program.above(node):
        if part is function:
            return False
        if isinstance(part, ast.ExceptHandler | ast.Raise | ast.Assert) or (isinstance(part, ast.If) and _LAZY.search(program.text(part.test, 200)) and "exists" not in program.text(part.test, 200)):
            return True
    return False


def _hit(case: Case, what: str, function: ast.AST, nodes: list[ast.AST]) -> Hit:
    program, node = case.program, nodes[0]
    text, owner = program.text(node), program.class_of(node)
    init = f"`{owner.name}.__init__`" if owner is not None else "front of the loader"
    remote = any(_NETWORK.search(one) for one in constants(program))
    said, fix, kind = _TEXTS[what]
    if (what == "stat" and remote) or (what == "list one" and remote):
        kind, said = "choke", said + " (the data lie on a network mount: a round trip each time)"
    elif what == "scan" and len(nodes) < 2 and not (case.images or 0) >= _MANY_ROWS and any(is_decode(program, call) for call in program.reached(sample_functions(program)[function])):
        kind = "note"  # decoding the image takes longer than one scan of a table of usual length
    kind, basis, shown = case.weigh(kind)
    shown |= {"per_sample": text, "places": len(nodes), "function": getattr(function, "name", "lambda")}
    return one_hit(nodes, message=f"`{text}` {said}{case.told() if kind == 'choke' else ''}", fix=fix.format(init=init), kind=kind, basis=basis, evidence=shown)


_TEXTS: dict[str, tuple[str, str, Kind]] = {
    "list": ("lists the same folder for each sample, in every epoch", "list it once in {init}, keep the sorted paths and take `paths[index]` here", "choke"),
    "list one": ("lists a folder for each sample, in every epoch", "list the folders once in {init} and keep the files of each sample", "note"),
    "stat": ("asks the file system for each sample", "check once in {init} and keep only the samples that are there", "note"),
    "parse": ("reads and parses the same file for each sample, in every epoch", "read it once in {init} and keep what it holds (arrays: `mmap_mode='r'`)", "choke"),
    "open": ("opens the same file for each sample", "open it once per worker: `if self.file is None: self.file = …` in `__getitem__`, with `self.file = None` in {init}", "note"),
    "scan": ("compares all rows of the table for each sample, in every epoch", "group the table once in {init} (`dict(tuple(df.groupby(column)))`, or `set_index` and `.at`) and look the sample up here", "choke"),
    "index": ("searches a list from its beginning for each sample", "make a dictionary `{{item: position}}` once in {init}", "note"),
    "sql": ("asks the database for each sample", "read the rows once in {init}, or make sure that the column has an index", "note"),
    "iloc": ("looks into the table several times for each sample", "turn the columns into lists once in {init}: `self.paths = df.path.tolist()`", "note"),
}  # fmt: skip
