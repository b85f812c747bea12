"""What a costly line does, as far as its source and what was seen running under it tell, and how such a line is repaired.

In: a `SourceLine` and what the sampler saw there. Out: a `LineKind`: the code of the finding, what happens in words, the repair,
an edit in the user's own names where there is one, and how much of the line's time is left after it. One table for lines that
make samples, one for all others; the first entry that fits is taken, and None means that the line does nothing known to be
avoidable. No seconds are judged here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unchoke.chokes.diagnose.source_lines import SourceLine

_ARCHIVES = re.compile(
    r"^(zipfile\.ZipFile|tarfile\.(open|TarFile)|h5py\.File|lmdb\.open|sqlite3\.connect|netCDF4\.Dataset|zarr\.open\w*|"
    r"duckdb\.connect|pyarrow\.parquet\.ParquetFile|xarray\.open_\w+|rasterio\.open|tables\.open_file|pydicom\.dcmread|numpy\.load|"
    r"nibabel\.load|pickle\.load|torch\.load|joblib\.load)$"
)
_QUERIES = re.compile(r"(^|\.)(execute|executemany|fetchall|fetchone|fetchmany|read_sql(_query|_table)?)$")
_TEXT = re.compile(
    r"^(float|int|json\.loads?|ast\.literal_eval|eval|csv\.\w+|yaml\.\w+|datetime\.(datetime\.)?(strptime|fromisoformat)|"
    r"numpy\.(fromstring|loadtxt|genfromtxt)|xml\..*|re\.\w+|dateutil\..*|bs4\..*)$|(^|\.)(split|rsplit|splitlines|strptime)$"
)
_COLLECTIONS = re.compile(
    r"^(list|sorted|set|dict|tuple|frozenset|collections\.Counter|sum|random\.(choices|sample|shuffle)|copy\.(copy|deepcopy))$|"
    r"(^|\.)(count|index|difference|intersection|union|remove|copy|tolist|setdiff1d|isin|unique|argsort|sort)$"
)
_STATISTICS = re.compile(
    r"(^|\.)(histogram|histogramdd|histc|percentile|nanpercentile|quantile|nanquantile|median|add_histogram|corrcoef|cov|svd|eig\w*|"
    r"matrix_rank|cond|confusion_matrix|classification_report|roc_auc_score|average_precision_score|f1_score|precision_score|"
    r"recall_score|silhouette_score|norm|std|var|TSNE|PCA|fit_transform)$"
)
_GROWN = re.compile(r"(^|\.)(concatenate|concat|cat|append|vstack|hstack|column_stack|union1d)$")
_COSTLY = re.compile(
    r"(^|\.)(argsort|sort|msort|unique|nonzero|svd|svdvals|eigh|eig|eigvals|inverse|inv|pinverse|pinv|matrix_exp|qr|det|cholesky|sqrtm)$"
)
_LOADERS = re.compile(r"(^|\.)(DataLoader|StatefulDataLoader)$")
_WHOLE_COPY = re.compile(r"(^|\.)(deepcopy|state_dict|load_state_dict)$")
_READ_BACK = re.compile(r"(^|\.)(item|tolist)$")
_SHRINKS = re.compile(r"(^|\.)(resize|interpolate|thumbnail|center_crop|zoom|rescale|area)$")
_NUMPY = ("numpy.", "cv2.", "scipy.", "skimage.")


@dataclass(frozen=True)
class LineKind:
    """`does` completes "this line …"; `left_share` is what of its time a repaired line still takes."""

    code: str
    does: str
    fix: str
    edit: str = ""
    left_share: float = 0.1


@dataclass(frozen=True)
class LineFacts:
    """What was seen at a line, over all looks: the library function called most, and how the time was spent (shares)."""

    library: str = ""
    python_share: float = 0.0
    lock_share: float = 0.0
    per: str = "sample"
    """How often it runs, in words: for each sample, batch, step or epoch."""


Reader = Callable[[SourceLine, LineFacts], LineKind | None]


def _named(line: SourceLine, pattern: re.Pattern[str]) -> str:
    """The first call of the line whose name fits, as its author wrote it."""
    for name, call in line.calls:
        if pattern.search(name):
            return line.program.text(call.func)
    return ""


def locked(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """One at a time behind a lock."""
    library = facts.library.partition(":")[0]
    waits = library in ("multiprocessing.synchronize", "threading", "filelock") or _named(line, re.compile(r"(^|\.)acquire$"))
    if not waits and not (isinstance(line.statement, ast.With) and facts.lock_share > 0.5):
        return None
    return LineKind(
        "lock-wait",
        "waits for a lock that another process or thread holds: only one of them works at a time",
        "take the lock out, or hold it for less: a handle (file, connection) of its own in every worker, opened on first use, "
        "needs none; more workers do not help",
        f"{line.text.rstrip(':')}  # remove it; open what it protects once in every worker",
        0.02,
    )


def reopened(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """An archive or a database opened again, its table of contents read each time."""
    name = _named(line, _ARCHIVES)
    if not name:
        return None
    kept = name.rpartition(".")[2].lower()
    return LineKind(
        "reopened-file",
        f"opens it again for every {facts.per} with `{name}`, which reads its table of contents each time",
        "open it once in every process, when the first sample is read, and keep it: not in __init__, handles do not survive "
        "being sent to workers",
        f"if self.{kept} is None: self.{kept} = {name}(…)  # in __getitem__; None in __init__",
        0.01,
    )


def queried(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """A database asked for each sample."""
    name = _named(line, _QUERIES)
    if not name:
        return None
    return LineKind(
        "query-per-sample",
        f"asks the database for every {facts.per} with `{name}`; without an index each query looks through the whole table",
        "create an index on what is looked up (see EXPLAIN QUERY PLAN), or read all rows once in __init__ and keep "
        "them as arrays",
        "CREATE INDEX IF NOT EXISTS by_key ON table(column)  -- once; the column that stands after WHERE",
        0.03,
    )


def table_rows(_line: SourceLine, facts: LineFacts) -> LineKind | None:
    """Rows taken out of a DataFrame one by one."""
    if not facts.library.startswith(("pandas.", "polars.", "datasets.")):
        return None
    library, _, function = facts.library.partition(":")
    package = library.partition(".")[0]
    if "read_" in function:
        return None
    return LineKind(
        "table-row-per-sample",
        f"takes a row or a selection out of a table for every {facts.per}: {package} builds new objects each time "
        f"({function.rpartition('.')[2].strip('_')})",
        "turn the columns that are needed into arrays or tensors once, in __init__, and index those",
        "self.x = torch.from_numpy(df[columns].to_numpy(dtype=np.float32))  # in __init__; then self.x[i] in __getitem__",
        0.01,
    )


def fitted(_line: SourceLine, facts: LineFacts) -> LineKind | None:
    """scikit-learn and its like called on one row at a time."""
    if not facts.library.startswith(("sklearn.", "xgboost.", "lightgbm.", "librosa.", "nltk.", "spacy.")):
        return None
    function = facts.library.partition(":")[2]
    package = facts.library.partition(".")[0]
    return LineKind(
        "library-call-per-sample",
        f"calls {package} ({function}) for every {facts.per}, which checks and prepares its input anew each time",
        "do it once for all samples, before training, and keep the result as an array",
        "self.x = transform(all_samples)  # in __init__, one call; then self.x[i]",
        0.02,
    )


def network_in_sample(_line: SourceLine, facts: LineFacts) -> LineKind | None:
    """A network run on one sample at a time while samples are made."""
    if not facts.library.startswith(("torch.nn.modules.module:", "transformers.")):
        return None
    return LineKind(
        "inference-per-sample",
        f"runs a network for every {facts.per}, one sample at a time",
        "run it over all samples once, in batches and under torch.inference_mode(), and keep what comes out",
        "features = torch.cat([network(batch) for batch in loader])  # once, before training",
        0.05,
    )


def parsed(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """Numbers read out of text again and again."""
    name = _named(line, _TEXT)
    regular = facts.library.startswith(("re:", "json.", "csv:", "xml.", "_strptime:", "yaml."))
    if not name and not regular:
        return None
    if name in ("float", "int") and not any("split" in other for other in _names_of_function(line)):
        return None
    return LineKind(
        "parsed-per-sample",
        f"parses text for every {facts.per} in every epoch (`{name or facts.library.partition(':')[2]}`)",
        "parse it once and store the numbers in binary: np.save, then np.load (mmap_mode='r' for large files) in __init__",
        "np.save('data.npy', np.loadtxt(path, delimiter=','))  # once; then np.load('data.npy') instead of the text",
        0.03,
    )


def _names_of_function(line: SourceLine) -> list[str]:
    if line.function is None:
        return line.names
    return [line.program.name(call) for call in line.program.within(line.function, ast.Call)]


def rebuilt(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """A large list, set or dictionary built or searched from one end to the other."""
    name = _named(line, _COLLECTIONS)
    differs = any(
        isinstance(node.op, ast.Sub | ast.BitAnd | ast.BitOr) for node in line.program.within(line.expression, ast.BinOp)
    )
    if facts.python_share < 0.5 or not (name or (differs and not line.names)):
        return None
    if name.rpartition(".")[2] in ("list", "sum", "tuple", "dict") and line.loops:
        return None  # in a loop over values: that is the loop's doing
    does = f"goes through a whole collection with `{name or line.program.text(line.expression)}` for every {facts.per}"
    return LineKind(
        "rebuilt-per-sample",
        does,
        "work it out once, in __init__, and keep it (a dictionary from what is looked up, a Counter, a sorted array); to draw "
        "one that is not in a set, draw again until it is not",
        "",
        0.02,
    )


def array_passes(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """Whole arrays gone through many times in a Python loop."""
    numeric = any(name.startswith(_NUMPY) for name, _ in line.all_calls) or facts.library.startswith(_NUMPY)
    compares = any(True for _ in line.program.within(line.statement, ast.Compare, ast.BinOp))
    if not line.loops or facts.python_share > 0.5 or not (numeric or compares):
        return None
    loop = line.loops[0]
    over = line.program.text(getattr(loop, "iter", None) or getattr(loop, "generators", [loop])[0]).splitlines()[0][:60]
    return LineKind(
        "python-transform",
        f"goes through a whole array once for each turn of a Python loop ({over}), for every {facts.per}",
        "one pass instead of one a turn: a lookup table indexed by the values (table[array]), np.digitize, broadcasting, or the "
        "result stored once on disk",
        "table = np.zeros(256, dtype=np.int64); table[values] = range(len(values)); label = table[array]  # one pass, for values",
        0.06,
    )


def python_loop(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """Values worked on one by one in Python."""
    if facts.python_share < 0.5:
        return None
    inside = bool(line.loops)
    if not inside and not (
        line.function is not None and any(True for _ in line.program.within(line.function, ast.For, ast.While))
    ):
        return None
    return LineKind(
        "python-transform",
        f"works on values one by one in Python for every {facts.per}",
        "write it with whole arrays (NumPy, torch or a library's function) instead of a loop over values",
        "",
        0.01,
    )


def grown(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """`x = np.concatenate([x, …])`: all that was there is copied to add a little."""
    statement = line.statement
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return None
    target = line.program.text(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
    joins = [call for name, call in line.all_calls if _GROWN.search(name)]
    grows = [call for call in joins if any(line.program.text(part) == target for part in _joined(call))]
    name = line.program.text(grows[0].func) if grows else ""
    if not name:
        return None
    return LineKind(
        "growing-copy",
        f"copies all of `{target}` to add a little to it (`{name}`), for every {facts.per}",
        "make the array once in its full size and write into it at the next free row (a ring buffer), or keep a list, append to "
        "it, and join it once when it is needed",
        f"{target}[self.size % capacity] = row; self.size += 1  # {target} made once: np.zeros((capacity, …))",
        0.01,
    )


def _joined(call: ast.Call) -> list[ast.expr]:
    """What a call puts together: its arguments, and the parts of a list or tuple among them."""
    return [part for one in call.args for part in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]


def costly_operation(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """One operation on tensors that does far more than is mostly needed."""
    name = _named(line, _COSTLY)
    if not name:
        return None
    sorts = name.rpartition(".")[2] in ("argsort", "sort", "msort")
    return LineKind(
        "costly-operation",
        f"puts everything in order with `{name}` for every {facts.per}" if sorts else f"calls `{name}` for every {facts.per}",
        "where only the first few are used, take them with topk (or kthvalue, min); sorting all of them costs many times as much"
        if sorts
        else "see whether something cheaper gives the same: solve instead of inv, a running estimate instead of a decomposition, "
        "a mask instead of nonzero or unique",
        f"{name.rpartition('.')[0] or 'x'}.topk(k, dim=-1, largest=False).indices" if sorts else "",
        0.15 if sorts else 0.4,
    )


def sampler_work(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """What a sampler works out while it is iterated over."""
    if not any(base.rpartition(".")[2].endswith("Sampler") for base in line.bases):
        return None
    return LineKind(
        "sampler-work",
        f"works out in a sampler, for every {facts.per}, what depends on the data alone (`{line.text[:70]}`)",
        "prepare it once, in the sampler's __init__ (how many there are of each class, which samples belong to which), and only "
        "draw in __iter__",
        "for i, label in enumerate(labels): self.members[label].append(i)  # in __init__; self.members = defaultdict(list)",
        0.01,
    )


def loaders_made(line: SourceLine, facts: LineFacts) -> LineKind | None:
    name = _named(line, _LOADERS)
    if not name:
        return None
    return LineKind(
        "loader-per-step",
        f"builds a DataLoader for every {facts.per}, and with it its workers",
        "build it once, before the loop, and keep its iterator; for a single batch leave workers out (num_workers=0)",
        "batches = iter(loader)  # once; then next(batches) in the loop, and a new iter(loader) on StopIteration",
        0.1,
    )


def statistics_taken(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """Numbers for people, worked out more often than anybody looks."""
    name = _named(line, _STATISTICS)
    parameters = any(
        "parameters" in line.program.text(loop.iter) for loop in line.loops if isinstance(loop, ast.For) and hasattr(loop, "iter")
    )
    if not name and not parameters:
        return None
    return LineKind(
        "statistics-per-step",
        f"works out statistics with `{name or line.text[:50]}` for every {facts.per}",
        "do it every hundredth step, or once an epoch: nobody looks at each of them",
        f"if step % 100 == 0: {line.text}" if line.text and not line.loops else "if step % 100 == 0: …  # around the call",
        0.02,
    )


def copied_whole(line: SourceLine, facts: LineFacts) -> LineKind | None:
    name = _named(line, _WHOLE_COPY)
    if not name:
        return None
    return LineKind(
        "copied-per-step",
        f"copies a whole network or its state with `{name}` for every {facts.per}",
        "copy once an epoch, or only when the result is better; an average of weights is updated in place "
        "(torch.optim.swa_utils)",
        "",
        0.02,
    )


def small_operations(line: SourceLine, facts: LineFacts) -> LineKind | None:
    """Many small tensor operations in a Python loop."""
    loops = [loop for loop in line.loops if not _is_short(loop)]
    if not loops or _runs_modules(line, loops):
        return None
    if facts.library.startswith("torch.nn.modules.module:") or (facts.library and not facts.library.startswith("torch")):
        return None
    return LineKind(
        "small-operations",
        f"is one of many small operations in a Python loop, for every {facts.per}",
        "put what the loop goes over (heads, time steps, tiles, samples) into a dimension of the tensor and do it in one "
        "operation: reshape and batched matmul, F.scaled_dot_product_attention, unfold, cumsum, einsum, gather",
        "",
        0.1,
    )


def _is_short(loop: ast.AST) -> bool:
    """Over a few things that are written out."""
    over = [one.iter for one in getattr(loop, "generators", [])] or [getattr(loop, "iter", None)]
    return all(isinstance(one, ast.Tuple | ast.List) for one in over)


def _runs_modules(line: SourceLine, loops: Sequence[ast.AST]) -> bool:
    """`for layer in self.layers: x = layer(x)`: different networks one after the other, which is how it must be."""
    targets = {
        name.id
        for loop in loops
        for part in ([loop.target] if isinstance(loop, ast.For) else [one.target for one in getattr(loop, "generators", [])])
        for name in ast.walk(part)
        if isinstance(name, ast.Name)
    }
    for name, call in line.calls or line.all_calls:
        base = call.func
        while isinstance(base, ast.Subscript | ast.Attribute):
            base = base.value
        if (isinstance(base, ast.Name) and base.id in targets) or isinstance(call.func, ast.Subscript):
            return True
        if name.startswith("self.") or line.program.written(call.func).startswith("self."):
            return True
    return False


def slept(line: SourceLine, facts: LineFacts) -> LineKind | None:
    if "time.sleep" not in line.names:
        return None
    return LineKind(
        "slow-line", f"sleeps for every {facts.per}", "take the pause out of the loop", f"{line.text}  # remove it", 0.0
    )


MAKING_KINDS: tuple[Reader, ...] = (
    locked, network_in_sample, reopened, queried, table_rows, fitted, parsed, grown, rebuilt, array_passes, python_loop,
)  # fmt: skip
LOOP_KINDS: tuple[Reader, ...] = (
    slept, loaders_made, sampler_work, locked, grown, copied_whole, queried, statistics_taken, table_rows, parsed, rebuilt,
    small_operations, costly_operation, array_passes, python_loop,
)  # fmt: skip


_UNREAD_PYTHON = LineKind(
    "python-transform",
    "runs Python",
    "write it with whole arrays (NumPy, torch or a library's function) instead of a loop over values",
    left_share=0.1,
)


def kind_of(line: SourceLine | None, facts: LineFacts, readers: tuple[Reader, ...]) -> LineKind | None:
    """The first that fits; of a line whose source cannot be read, only that it runs Python."""
    if line is None:
        return _UNREAD_PYTHON if facts.python_share >= 0.5 and facts.per in ("sample", "batch") else None
    return next((kind for reader in readers if (kind := reader(line, facts)) is not None), None)


def reads_back(line: SourceLine | None) -> bool:
    """Does the line read numbers back from tensors?"""
    return line is not None and any(_READ_BACK.search(name) for name, _ in line.all_calls)


def shrinks(line: SourceLine | None) -> bool:
    """Is it the line that makes a picture smaller?"""
    return line is not None and any(_SHRINKS.search(name) for name, _ in line.all_calls)
