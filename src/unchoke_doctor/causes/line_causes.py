"""Causes that a costly line of the user's own shows by itself: what it calls, in which library its time goes, how it is spent.

In: the looks of a `Figures`, and the causes that counters have found already. Out: causes with the seconds measured at the
line. One row of readers for lines that make samples, one for all others; the first reader that fits explains a line. A line
that nothing fits gets no cause, and stands in the report all the same.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unchoke_doctor.causes.figures import MAKING, Figures, LineGroup, Look, Place, per, plain
from unchoke_doctor.source_lines import SourceLine, source_line
from unchoke_doctor.units import format_seconds

_NOTED, _CLAIMED = 0.02, 0.3
_ARCHIVES = re.compile(
    r"^(zipfile\.ZipFile|tarfile\.(open|TarFile)|h5py\.File|lmdb\.open|sqlite3\.connect|netCDF4\.Dataset|zarr\.open\w*|"
    r"duckdb\.connect|pyarrow\.parquet\.ParquetFile|xarray\.open_\w+|rasterio\.open|tables\.open_file|pydicom\.dcmread|"
    r"nibabel\.load|pickle\.load|torch\.load|joblib\.load)$"
)
_LISTS = re.compile(
    r"^(glob\.i?glob|os\.(listdir|walk|scandir|stat|path\.(exists|isfile|isdir|getsize)))$|(^|\.)(iterdir|glob|rglob|exists|is_file)$"
)
_TEXT = re.compile(
    r"^(json\.loads?|ast\.literal_eval|eval|csv\.\w+|yaml\.\w+|datetime\.(datetime\.)?(strptime|fromisoformat)|"
    r"numpy\.(fromstring|loadtxt|genfromtxt)|xml\..*|re\.\w+|dateutil\..*|bs4\..*)$|"
    r"(^|\.)(split|rsplit|splitlines|strptime|read_(csv|json|parquet|excel|table))$"
)
_WRITES = re.compile(r"open\(.*[\"'][wax]")
_QUERIES = re.compile(r"(^|\.)(execute|executemany|fetchall|fetchone|fetchmany|read_sql(_query|_table)?)$")
_COLLECTIONS = re.compile(
    r"^(list|sorted|set|dict|tuple|frozenset|collections\.Counter|sum|random\.(choices|sample|shuffle)|copy\.(copy|deepcopy))$|"
    r"(^|\.)(count|index|difference|intersection|union|remove|copy|tolist|setdiff1d|isin|unique|argsort|sort)$"
)
_LOGGED = re.compile(
    r"(^|\.)(histogram|histogramdd|histc|percentile|nanpercentile|quantile|nanquantile|median|add_histogram|add_figure|corrcoef|"
    r"cov|confusion_matrix|classification_report|roc_auc_score|average_precision_score|f1_score|precision_score|recall_score|"
    r"silhouette_score|linalg\.norm|TSNE|PCA|fit_transform|set_postfix|savefig|to_csv|to_json|dump|dumps|write|writerow|print|"
    r"log|log_metrics|add_scalar)$"
)
_CHEAPER: dict[str, tuple[str, str]] = {
    r"^gc\.collect$": (
        "walks all objects of the process",
        "take it out: Python collects by itself when there is something to collect",
    ),
    r"(^|\.)(concatenate|concat|cat|append|[vh]stack|column_stack)$": (
        "copies all that was there to add a little",
        "make the array once in its full size and write into it (a ring buffer), or append to a list and join it once",
    ),
    r"^(numpy|np)\.random\.(choice|permutation)$": (
        "goes through the whole range for a few numbers",
        "numpy.random.default_rng().integers or .choice(…, shuffle=False), one permutation an epoch; with p=, many draws at once",
    ),
    r"(^|\.)(argsort|sort|msort)$": (
        "puts everything in order",
        "where only the first few are used, topk (or kthvalue, min) takes a part of the time",
    ),
    r"(^|\.)(svd|svdvals|eigh|eig|eigvals|inverse|inv|pinverse|pinv|matrix_exp|det|sqrtm)$": (
        "works out a whole decomposition",
        "something cheaper may give the same: solve instead of inv, a running estimate instead of a decomposition",
    ),
    r"(^|\.)(deepcopy|state_dict|load_state_dict)$": (
        "copies a whole network or its state",
        "copy once an epoch, or only when the result is better; update an average of weights in place",
    ),
    r"(^|\.)(to_categorical|one_hot)$": (
        "writes a large array of zeros with a few ones",
        "a loss on integer labels (sparse categorical cross-entropy) needs no such array",
    ),
    r"(^|\.)empty_cache$": ("gives memory back that is asked for again at once", "take it out"),
}
"""Calls that often have a cheaper equal: what they do, and what to do instead."""
_GROWING = re.compile(r"(concatenate|concat|cat|append|[vh]stack|column_stack)$")
_AUGMENTING = (
    *("torchvision.transforms", "albumentations", "kornia", "PIL.", "skimage", "scipy.", "cv2", "librosa", "torchaudio"),
    *("imgaug", "sklearn", "numpy."),
)
_FOREIGN = ("numpy", "scipy", "sklearn", "PIL.", "cv2", "pandas", "networkx", "skimage", "librosa")
_LOCKS = ("multiprocessing.synchronize", "threading", "filelock")
_OUTSIDE = ("socket", "ssl", "urllib", "http.", "requests", "httpx", "aiohttp", "subprocess", "asyncio", "boto3", "botocore")
_ARRAY_FILES = ("numpy.lib", "zipfile", "h5py", "rasterio", "tifffile", "nibabel", "gzip", "torch.serialization")
_MODULE = "torch.nn.modules.module:"
_LOOPS = ast.For | ast.While | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


@dataclass(frozen=True)
class MeasuredCause:
    """A cause with the seconds of the whole training that it costs, and `how` those were computed."""

    code: str
    saved_s: float
    message: str
    place: Place
    fix: str = ""
    how: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    loads: bool = False
    """Whether the seconds are spent on loading, so that the replay bounds what they can save."""
    weight: float = 1.0
    """For the order alone: less than 1 for a bound that will hardly be reached."""
    computed: bool = True
    always: bool = False
    """It costs something else than time, and is worth knowing."""


@dataclass(frozen=True)
class _Line:
    """A costly line with its source. `often`: what it runs for, in words; `drives`: its function holds a training loop."""

    group: LineGroup
    source: SourceLine
    often: str
    drives: bool
    around: tuple[ast.AST, ...] = ()
    """Loops round the call of its function, where that is no training loop."""
    in_batch_loop: bool = False
    """Whether the training loop leads to it for every batch, or every few."""

    @property
    def library(self) -> str:
        return self.group.library

    def named(self, pattern: re.Pattern[str] | str) -> str:
        """The first call of the line whose name fits, as it is written."""
        found = (call for name, call in self.source.calls if re.search(pattern, name))
        return next((self.source.source(call.func) for call in found), "")

    def calls_into(self, libraries: tuple[str, ...]) -> bool:
        return self.library.startswith(libraries) or any(name.startswith(libraries) for name, _ in self.source.calls)


@dataclass(frozen=True)
class _Read:
    """What a reader says of a line: the cause, "it …", and the repair where the page's is too general."""

    code: str
    does: str
    fix: str = ""
    in_graph: bool = False
    """Whether the backward pass goes through what the line does."""


def line_causes(run: Figures, found: Sequence[MeasuredCause]) -> list[MeasuredCause]:
    """Causes of the costly lines; what `found` explains is not explained twice."""
    again = list(_repeated(run))
    causes: list[MeasuredCause] = []
    for making in (True, False):
        looks = [look for look in run.looks if (look.row.phase in MAKING) is making and look.row.phase != "checkpoint"]
        for group in run.grouped(looks):
            source = group.source
            if source is None or group.library.startswith("torch.utils.data") or _explained(group, [*found, *again]):
                continue
            if group.seconds < _NOTED * run.span_s:
                break
            drives = (group.row.file, plain(group.row.function)) in run.looping
            line = _Line(group, source, _OFTEN.get(group.phase, "step"), drives, _around(run, group), _in_batch_loop(run, group))
            for reader in _MAKING_READERS if making else _LOOP_READERS if run.loaders else _ALONE_READERS:
                if (read := reader(line)) is not None:
                    causes.append(_cause(run, line, read))
                    break
    return [*again, *_spinning(run), *_fed_by_thread(run), *_merged(causes)]


def _around(run: Figures, group: LineGroup) -> tuple[ast.AST, ...]:
    """The loops that call the line's function turn by turn, the same work each time."""
    caller = group.caller
    source = source_line(caller.file, caller.line) if caller is not None else None
    if (
        caller is None
        or source is None
        or (caller.file, plain(caller.function)) in run.looping
        or _different_each_turn(source, own=True)
    ):
        return ()
    return tuple(source.loops)


def _in_batch_loop(run: Figures, group: LineGroup) -> bool:
    chain = max(group.at_line, key=lambda look: look.seconds).chain
    sources = [source_line(one.file, one.line) for one in chain if (one.file, plain(one.function)) in run.looping]
    return any(source is not None and source.in_batch_loop for source in sources)


_OFTEN = {"getitem": "sample", "collate": "batch", "outside": "epoch", "evaluate": "evaluated batch", "setup": "run"}


def _cause(run: Figures, line: _Line, read: _Read) -> MeasuredCause:
    group = line.group
    counts = {"sample": run.made_samples, "batch": sum(one.fetches for one in run.loaders), "epoch": run.epochs, "run": 1}
    each_s = per(group.seconds, max(1, counts.get(line.often, run.num_steps)))
    name = group.place.function.rpartition(".")[2]
    name = "this line" if name in ("", "<module>") else name
    said = f"{name} takes {format_seconds(each_s)} of {'the' if line.often == 'run' else 'every'} {line.often}: it {read.does}"
    evidence = {"line": line.source.text, "library": line.library, "python_share": round(group.share_in("python"), 3)}
    making, how, more_s = group.phase in MAKING, "what the line takes, if it falls away", 0.0
    in_forward = group.stage == "forward" or _in_forward(group)
    if read.code == "python-loop" and group.row.stage in ("forward", "other", "python") and (in_forward or read.in_graph):
        more_s = per(group.seconds, run.forward_s + (0 if in_forward else group.seconds)) * run.total_s("backward_s")
        how = "what the line takes, and as large a part of the backward pass"
    # transforms that are needed only become cheaper; what is asked for again can be kept
    weight = {"heavy-augmentation": 0.4, "foreign-forward": 0.6}.get(read.code, 1.0)
    saved_s = min(group.seconds + more_s, run.span_s)
    return MeasuredCause(read.code, saved_s, said, group.place, read.fix, how, evidence, loads=making, weight=weight)


def _in_forward(group: LineGroup) -> bool:
    """Whether the line is part of a network's forward pass in a step."""
    inside = any(place.function.endswith((".forward", ".call")) for look in group.looks for place in look.chain)
    return inside and group.phase in ("step", "outside")


def _merged(causes: Sequence[MeasuredCause]) -> list[MeasuredCause]:
    """Lines of one function with one cause are one finding, at the costliest; augmentation is one wherever its lines stand."""
    found: dict[tuple[str, str, str], MeasuredCause] = {}
    for one in sorted(causes, key=lambda one: -one.saved_s):
        key = (one.code, *(("", "") if one.code == "heavy-augmentation" else (one.place.file, one.place.function)))
        first = found.get(key)
        further = [*first.evidence.get("further", ()), one.place.line] if first else []
        found[key] = (
            replace(first, saved_s=first.saved_s + one.saved_s, evidence={**first.evidence, "further": further}) if first else one
        )
    return list(found.values())


def _explained(group: LineGroup, found: Sequence[MeasuredCause]) -> bool:
    """Whether another cause already claims a good part of what this line, or its function, takes."""
    places = {(place.file, plain(place.function)) for look in group.looks for place in look.chain}
    own = (group.row.file, plain(group.row.function))
    decodes = group.row.stage in ("decode", "open", "read") or group.library.startswith("PIL.")
    for one in found:
        if one.saved_s < _CLAIMED * group.seconds:
            continue
        at = (one.place.file, plain(one.place.function))
        if [group.row.file, group.row.line] in one.evidence.get("at", ()):
            return True
        if one.place.file == group.place.file and one.place.line in (group.place.line, group.row.line):
            return True
        if (
            one.code == "repeated-work"
            and one.evidence["distinct"] == 1
            and (one.evidence["called_file"], plain(one.evidence["called"])) in places
        ):
            return True
        if (one.code in ("oversized-decode", "slow-decode", "whole-file-for-crop") and decodes and at == own) or (
            one.code == "slow-collate" and group.phase == "collate" and at in places
        ):
            return True
    return False


# --- what a line does -------------------------------------------------------------------------------------------------


def _waits(line: _Line) -> _Read | None:
    group, library = line.group, line.library.partition(":")[0]
    if line.named(r"(^|\.)sleep$") or (group.share_in("sleep") > 0.5 and not library.startswith("torch")):
        return _Read("waiting", f"sleeps for every {line.often}", "take the pause out of the loop, or wait in another thread")
    held = isinstance(line.source.statement, ast.With) and group.share_in("lock") > 0.5
    if library.startswith(_LOCKS) or line.named(r"(^|\.)acquire$") or held:
        return _Read(
            "waiting",
            "waits for a lock that another process or thread holds: only one of them works at a time",
            "take the lock out, or hold it for less: a handle (file, connection) of its own in every worker needs none",
        )
    if library.startswith(_OUTSIDE) and group.share_in("python") < 0.6:
        return _Read("waiting", f"waits for {library.partition('.')[0]} for every {line.often}")
    return None


def _makes_loader(line: _Line) -> _Read | None:
    if not line.named(r"(^|\.)(DataLoader|StatefulDataLoader)$"):
        return None
    fix = "build it once, before the loop, and keep its iterator; for a single batch leave workers out (num_workers=0)"
    return _Read("workers-restarted", f"builds a DataLoader for every {line.often}, and starts its workers", fix)


def _searches(line: _Line) -> _Read | None:
    """Files, tables, databases and texts that are looked through for each sample or step."""
    library, often = line.library, line.often
    if query := line.named(_QUERIES):
        fix = "create an index on what is looked up, or read all rows once in __init__ and keep them as arrays"
        return _Read(
            "per-sample-scan", f"asks the database for every {often} (`{query}`): without an index, the whole table", fix
        )
    if line.group.row.stage == "open" and _WRITES.search(line.source.text):
        return None
    reads = line.named(r"\.(read|load|get)\w*$")
    opened = next((name for name in line.source.function_names if _ARCHIVES.search(name)), "") if reads else ""
    if name := line.named(_ARCHIVES) or line.named(_LISTS) or opened:
        return _Read("per-sample-scan", f"opens, lists or looks for files with `{name}` for every {often}")
    if line.group.row.stage in ("stat", "list", "open"):
        return _Read("per-sample-scan", f"looks for files for every {often}")
    name = line.named(_TEXT) or (line.named(r"^(float|int)$") if line.source.function_calls("split", "splitlines") else "")
    if name or library.startswith(("re:", "json.", "csv:", "xml.", "_strptime:", "yaml.", "pandas.io")):
        fix = "parse it once and store the numbers in binary (np.save, then np.load with mmap_mode='r')"
        return _Read("per-sample-scan", f"parses text for every {often}" + (f" (`{name}`)" if name else ""), fix)
    if library.startswith(("pandas.", "polars.", "datasets.")):
        fix = "turn the columns that are needed into arrays or tensors once, in __init__, and index those"
        table = library.partition(".")[0]
        if any(isinstance(node, ast.Compare) for node in ast.walk(line.source.statement)):
            fix = "make a dict (or an index: set_index) from key to row once, in __init__, and look each key up in it"
            return _Read("per-sample-scan", f"compares a whole column of a table for every {often}, to find a few rows", fix)
        return _Read("per-sample-scan", f"takes rows out of a table for every {often}: {table} builds new objects each time", fix)
    return None


def _reads_whole(line: _Line) -> _Read | None:
    """An array file read whole, or unpacked, for one part of it."""
    if not line.library.startswith(_ARRAY_FILES) and line.group.row.stage != "read":
        return None
    statement = line.source.statement
    subscripts = [node for node in ast.walk(statement) if isinstance(node, ast.Subscript)]
    packed = any(name in line.library for name in ("NpzFile", "zipfile", "gzip"))
    if packed:
        of_part = any(isinstance(node.value, ast.Subscript) for node in subscripts)  # archive["images"][index]
        if not of_part:
            return _Read("slow-decode", f"unpacks a compressed file for every {line.often}", "store arrays uncompressed: np.save")
    elif not subscripts and not line.source.sliced_later and not line.source.function_calls("crop"):
        return None
    fix = "read the array once, or map it (np.load with mmap_mode='r'), and take the part that is needed"
    fix = "unpack the array once, in __init__, or store it unpacked: np.save, then np.load with mmap_mode='r'" if packed else fix
    return _Read("whole-file-for-crop", f"reads or unpacks a whole array for every {line.often}", fix)


def _runs_network(line: _Line) -> _Read | None:
    if not line.library.startswith((_MODULE, "transformers.")) or re.search("aug|transform|normali", line.source.text):
        return None
    fix = "run it over batches, once, before training, and keep what comes out"
    return _Read("one-at-a-time", f"runs a network for every {line.often}, one sample at a time", fix)


def _augments(line: _Line) -> _Read | None:
    """Work of libraries or modules on each sample's array."""
    if (
        line.group.row.stage in ("decode", "open", "read")
        or line.group.share_in("python") > 0.7
        or line.named(r"\.(read|load)\w*$")
    ):
        return None
    if not line.calls_into(_AUGMENTING) and not line.library.startswith(_MODULE) and line.group.row.stage != "transform":
        return None
    called = "" if line.library.startswith("torch.") else line.library.partition(":")[2].rpartition(".")[2].strip("_")
    work = called or line.source.text[:60]
    return _Read("heavy-augmentation", f"works on one sample at a time ({work})")


def _makes_samples(line: _Line) -> _Read | None:
    """The same in a loop that makes its samples itself."""
    pictures = re.match(r"PIL\.|torchvision\.t|albument|kornia|skimage|scipy\.(ndi|sig)|librosa|cv2", line.library)
    return _augments(line) if pictures else None


def _collects(line: _Line) -> _Read | None:
    """A large list, set or dictionary built or searched from one end to the other."""
    source, name = line.source, line.named(_COLLECTIONS)
    operations = [node for node in ast.walk(source.statement) if isinstance(node, ast.BinOp)]
    differs = isinstance(source.expression, ast.BinOp) and all(
        isinstance(one.op, ast.Sub | ast.BitAnd | ast.BitOr) and not isinstance(one.left, ast.Constant) for one in operations
    )
    if line.group.share_in("python") < 0.5 or not (name or (differs and not source.calls)):
        return None
    if name.rpartition(".")[2] in ("list", "sum", "tuple", "dict") and source.loops:
        return None  # in a loop over values: that is the loop's doing
    fix = "work it out once, in __init__, and keep it; to draw one that is not in a set, draw again until it is not"
    what = name or source.source(source.expression)
    return _Read("per-sample-scan", f"goes through a whole collection with `{what}` for every {line.often}", fix)


def _loops(line: _Line) -> _Read | None:
    """Values worked on one by one in Python, or whole arrays once for each turn of a loop."""
    source = line.source
    if line.library.startswith(_MODULE):
        return None
    inner = source.function is not None and any(isinstance(node, _LOOPS) for node in ast.walk(source.function))
    if line.group.share_in("python") >= 0.5:
        loops = source.loops or (inner and not line.drives)
        return _Read("python-loop", f"works on values one by one in Python for every {line.often}") if loops else None
    numeric = any(name.startswith(("numpy.", "cv2.", "scipy.", "torch.")) for name, _ in source.all_calls)
    compares = any(isinstance(node, ast.Compare | ast.BinOp) for node in ast.walk(source.statement))
    if not source.loops or line.drives or not (numeric or compares) or _different_each_turn(source):
        return None
    first = source.loops[0]
    over = getattr(first, "iter", None) or getattr(getattr(first, "generators", [None])[0], "iter", None)
    over_what = source.source(over or first)[:60]
    fix = "one pass instead of one a turn: a lookup table indexed by the values, broadcasting, a batched operation"
    return _Read("python-loop", f"works on whole arrays once for each turn of a loop ({over_what}), for every {line.often}", fix)


def _small_operations(line: _Line) -> _Read | None:
    """Many small tensor operations in a Python loop."""
    source = line.source
    loops = [one for one in (*source.loops, *line.around) if not isinstance(getattr(one, "iter", None), ast.Tuple | ast.List)]
    foreign = line.library and not line.library.startswith("torch")
    called = line.library.startswith(_MODULE) and not source.loops
    if not loops or line.drives or foreign or called or line.group.phase == "evaluate" or _different_each_turn(source):
        return None
    fix = "put what the loop goes over (heads, time steps, tiles, samples) into a dimension of the tensor: one operation for all"
    leaves = source.function_calls("item", "tolist", "float", "no_grad", "inference_mode", "detach", "parameters")
    does = f"is one of many small operations in a Python loop, for every {line.often}"
    return _Read("python-loop", does, fix, in_graph=not leaves and line.group.phase == "step")


def _different_each_turn(source: SourceLine, *, own: bool = False) -> bool:
    """`for layer in self.layers: x = layer(x)`: other networks one after the other, which is how it must be.

    `own`: what the line calls is known to be a function of the user's, so a method may be the same each turn.
    """
    loops = [loop for loop in source.loops if isinstance(loop, ast.For)]
    targets = {name.id for loop in loops for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
    for name, call in source.calls or source.all_calls:
        base = call.func
        while isinstance(base, ast.Subscript | ast.Attribute):
            base = base.value
        called = isinstance(base, ast.Name) and base.id in targets
        if called or isinstance(call.func, ast.Subscript) or (name.startswith("self.") and not own and _carries(source)):
            return True
    return False


def _carries(source: SourceLine) -> bool:
    """Whether a turn of the loop needs what the turn before it made, as a recurrent network does; adding up is no need."""
    body = [node for node in ast.walk(source.loops[0]) if isinstance(node, ast.Assign)] if source.loops else []
    made: set[str] = set()
    for one in sorted(body, key=lambda node: node.lineno):
        reads = {node.id for node in ast.walk(one.value) if isinstance(node, ast.Name)}
        added = {node.id for node in ast.iter_child_nodes(one.value) if isinstance(node, ast.Name)}
        sets = {node.id for target in one.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        if (reads & sets) - made - (added if isinstance(one.value, ast.BinOp) else set()):
            return True
        made |= sets
    return False


def _has_cheaper(line: _Line) -> _Read | None:
    for pattern, (does, fix) in _CHEAPER.items():
        name = line.named(pattern)
        if not name and _grows(line.source):
            name = next((line.source.source(call.func) for one, call in line.source.all_calls if re.search(pattern, one)), "")
        if name and (not _GROWING.search(name) or _grows(line.source)):
            return _Read("costly-call", f"{does} with `{name}` for every {line.often}", fix)
    return None


def _grows(source: SourceLine) -> bool:
    """`x = np.concatenate([x, …])`: all that was there is copied."""
    statement = source.statement
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return False
    target = source.source(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
    given = statement.value.args if isinstance(statement.value, ast.Call) else []
    parts = [part for one in given for part in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]
    return any(source.source(part) == target for part in parts)


def _same_each_time(line: _Line) -> _Read | None:
    """Arithmetic on arrays that nothing changes."""
    name = line.source.unchanging if line.library.startswith(("numpy", "scipy", "pandas")) else ""
    fix = "work it out once, before the loop, and keep the result"
    return (
        _Read("repeated-work", f"works out the same from `{name}`, which nothing changes, for every {line.often}", fix)
        if name
        else None
    )


def _logs(line: _Line) -> _Read | None:
    """Numbers for people, worked out or written more often than anybody looks."""
    stage, own = line.group.row.stage, line.library.startswith("torch") or not line.library
    whole = [call for name, call in line.source.all_calls if own and stage != "forward" and _LOGGED.search(name)]
    name = line.named(_LOGGED) or next((line.source.source(call.func) for call in whole), "")
    parameters = any("parameters" in line.source.source(loop.iter) for loop in line.source.loops if isinstance(loop, ast.For))
    writes = _WRITES.search(line.source.text)
    if not (name or stage == "log" or writes or parameters) or line.group.phase == "evaluate":
        return None
    what = name or line.source.text[:50]
    return _Read("slow-logging", f"works out or writes what people look at (`{what}`) for every {line.often}")


def _reads_numbers(line: _Line) -> _Read | None:
    """Several numbers read from tensors by one line: statistics for people."""
    reads = [line.source.source(call.func) for name, call in line.source.all_calls if re.search(r"\.(item|tolist)$", name)]
    if len(reads) < 2 or line.source.loops or line.group.phase == "evaluate":
        return None
    return _Read("slow-logging", f"reads numbers that people look at (`{reads[0]}` and more) for every {line.often}")


def _evaluates(line: _Line) -> _Read | None:
    """Evaluation by hand, in the loop over batches."""
    names = line.source.function_names
    judges = {name.rpartition(".")[2] for name in names} & {"no_grad", "inference_mode", "eval"}
    runs = line.group.stage == "forward" or line.library.startswith(_FOREIGN) or line.library.startswith(_MODULE)
    updates = any(name.endswith("_") for name in names)
    if not line.in_batch_loop or line.drives or line.group.phase == "evaluate" or not (judges and runs) or updates:
        return None
    return _Read("slow-evaluation", "evaluates inside the loop over batches, more often than once an epoch")


def _reads_back(line: _Line) -> _Read | None:
    """Numbers read back from tensors one by one; on a device each read waits for all work before it."""
    name = line.named(r"(^|\.)(item|tolist)$")
    if not name or not line.source.loops or line.group.phase == "evaluate":
        return None
    return _Read("host-sync", f"reads numbers back from tensors (`{name}`) one by one for every {line.often}")


def _one_by_one(line: _Line) -> _Read | None:
    """A network called in a loop on single samples that were given a batch dimension of one."""
    single = re.search(r"unsqueeze\(0\)|\[None\b|expand_dims|newaxis|\[(\w+) ?: ?\1 ?\+ ?1\]", line.source.text)
    runs = (line.library.startswith(_MODULE) and line.group.phase != "step") or line.named(r"\.predict\w*$")
    if not single or not line.source.loops or not runs:
        return None
    return _Read("one-at-a-time", "runs a network in a loop, one sample at a time")


def _leaves_torch(line: _Line) -> _Read | None:
    if not _in_forward(line.group) or not line.calls_into(_FOREIGN):
        return None
    what = (line.library or line.source.calls[0][0]).replace(":", ".")
    return _Read("foreign-forward", f"leaves torch in the forward pass ({what}) for every {line.often}")


def _in_sampler(line: _Line) -> _Read | None:
    """What a sampler works out while it is iterated over."""
    if not any(base.rpartition(".")[2].endswith("Sampler") for base in line.source.bases):
        return None
    fix = "prepare it once, in the sampler's __init__ (which samples belong to which class); only draw in __iter__"
    does = f"works out in a sampler, for every {line.often}, what depends on the data alone (`{line.source.text[:70]}`)"
    return _Read("python-loop", does, fix)


Reader = Callable[[_Line], _Read | None]
_MAKING_READERS: tuple[Reader, ...] = (
    _waits, _searches, _reads_whole, _runs_network, _has_cheaper, _collects, _loops, _augments,
)  # fmt: skip
_BESIDE: tuple[Reader, ...] = (
    _waits, _makes_loader, _same_each_time, _in_sampler, _one_by_one, _reads_numbers, _has_cheaper, _leaves_torch, _reads_back,
    _logs, _evaluates, _searches, _collects, _small_operations, _loops,
)  # fmt: skip


def _beside_network(reader: Reader) -> Reader:
    """What takes long inside backward or the optimizer is not the line's own doing."""
    return lambda line: None if line.group.row.stage in ("backward", "optimizer") else reader(line)


_LOOP_READERS = tuple(map(_beside_network, _BESIDE))
_ALONE_READERS = tuple(map(_beside_network, (*_BESIDE[:-1], _reads_whole, _BESIDE[-1], _makes_samples)))
"""Without a DataLoader the loop makes samples as well."""


# --- work done again, threads that spin -------------------------------------------------------------------------------


def _repeated(run: Figures) -> Iterator[MeasuredCause]:
    """A function that was met in many steps or batches with arguments it had before: its results could be kept."""
    rows = [row for row in run.facts.get("same_arguments") or () if isinstance(row, dict)]
    same = {(row["file"], plain(row["function"])): row for row in rows}
    ends = [look for look in run.looks if look.row.stage in ("backward", "optimizer")]
    trains = {(place.file, plain(place.function)) for look in ends for place in look.chain}
    steady = {key for key in same.keys() - trains if not _changes(key, run.looks)}
    claimed: dict[tuple[str, str], list[tuple[Look, Place]]] = {}
    for look in run.looks:
        keys = [(place.file, plain(place.function)) for place in look.chain]
        depth = max((at for at, key in enumerate(keys) if key in steady), default=-1)
        if 0 <= depth < len(keys) - 1:
            claimed.setdefault(keys[depth], []).append((look, look.chain[depth + 1]))
    for (file, function), looks in claimed.items():
        row, spent_s = same[file, function], sum(look.seconds for look, _ in looks)
        sites: Counter[Place] = Counter()
        for look, site in looks:
            sites[site] += look.seconds  # type: ignore[assignment]
        met, distinct = row["met"], row.get("distinct", 1)
        again = 1.0 if distinct == 1 else max(1 - distinct / met, 1 - 1 / run.epochs)
        seen = f"the same arguments each of {met} times" if distinct == 1 else f"{distinct} different ones in {met} times"
        name = f"{function.rpartition('.')[2]}({', '.join(row['arguments'])})"
        yield MeasuredCause(
            "repeated-work",
            again * spent_s,
            f"{name} takes {per(spent_s, run.span_s):.0%} of the time; looked at, it was given {seen}",
            sites.most_common(1)[0][0],
            "work it out once, before the loop or in __init__, and keep the result"
            if distinct == 1
            else "work it out once for each sample, when it is first needed, and keep the results beside the samples",
            "what the function takes, all but the first time",
            {"called": function, "called_file": file, "met": met, "distinct": distinct},
            weight=1.0 if distinct == 1 else 0.8,
            loads=sum(look.seconds for look, _ in looks if look.row.phase in MAKING) > spent_s / 2,
        )


def _changes(key: tuple[str, str], looks: Sequence[Look]) -> bool:
    """Whether a function draws random numbers or runs a network that learns: its result is another one each time."""
    lines: set[int] = set()
    for look in looks:
        inside = [place.line for place in look.chain if (place.file, plain(place.function)) == key]
        if inside and look.row.library.startswith(_MODULE) and look.row.phase not in MAKING:
            return True
        lines.update(inside)
    sources = [source_line(key[0], line) for line in sorted(lines)[:20]]
    return any(source is not None and source.draws_at_random for source in sources)


def _fed_by_thread(run: Figures) -> Iterator[MeasuredCause]:
    """The loop waits for batches that one thread of the script's own makes."""
    waits = [look for look in run.looks if look.row.stage == "wait" and look.row.library.startswith(("queue:", "threading:"))]
    waited_s = sum(look.seconds for look in waits if look.row.phase not in MAKING)
    thread = max((row for row in run.recording.main.threads if row.file), key=lambda row: row.seconds, default=None)
    if thread is None or thread.seconds < 0.3 * waited_s:
        return
    yield MeasuredCause(
        "few-workers",
        waited_s,
        f"the loop waits {per(waited_s, run.span_s):.0%} of the time for what {plain(thread.function)} makes in one thread",
        Place(thread.file, thread.line, thread.function),
        "make them in a DataLoader with workers: threads share one interpreter",
        "waiting for the thread",
    )


def _spinning(run: Figures) -> Iterator[MeasuredCause]:
    """A thread of the script's own that asks in a loop without a pause: it keeps the interpreter from the training thread."""
    whole_s = run.recording.main.sampled_s or run.span_s
    for row in sorted(run.recording.main.threads, key=lambda one: -one.seconds):
        share = min(1.0, per(row.seconds, whole_s))
        source = source_line(row.file, row.line) if row.file else None
        if source is None or share < 0.3 or not source.spins:
            continue
        yield MeasuredCause(
            "waiting",
            share * run.span_s,
            f"{plain(row.function)} asks again and again in a thread of its own without a pause ({share:.0%} of all looks): the "
            "training thread waits for the interpreter meanwhile",
            Place(row.file, row.line, row.function),
            "let the thread sleep until there is something to do: queue.Queue(maxsize=…), threading.Event.wait or a Semaphore",
            "the time in which the thread takes turns with the training",
            {"share_of_looks": share},
            weight=0.8,
        )
        return
