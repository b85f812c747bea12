"""Whose code is running, and what for: the nearest line of the user's own, and the stage of training a stack belongs to.

In: the calling thread's stack, or code objects from the innermost frame outwards with the thread's phase. Out: `(file, line,
function)` or `NOWHERE`, and one of `STAGES`. Whether a code object is the user's is decided once and kept: it belongs to neither
Python, an installed package (in whichever folder pip put it) nor the watcher. A script that lives inside an installed package
(an example run by its path or with `-m`) is the user's too: the folder of `__main__` counts, packages installed below it do not.
The stage is that of the innermost function that a table of files and names knows. Where the thread was running Python, functions
that only go to the system and come back are passed over: they are where a thread is met, not where it spends its time. Nothing
is sampled or recorded here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from types import CodeType, FrameType

StackPlace = tuple[str, int, str]
"""File, line and function; empty where nothing of the user's own was running."""

NOWHERE: StackPlace = ("", 0, "")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_WATCHER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""All of this package: a notebook is run by a module of it."""
_INSTALLED = (f"{os.sep}site-packages", f"{os.sep}dist-packages")
_TYPED_IN = {"<stdin>", "<string>"}
_listdir = os.listdir  # ours stays what it was when others are replaced

_known: dict[int, bool] = {}
_decided: dict[int, CodeType] = {}  # hashing a code object takes microseconds, so ids stand for them; what is kept keeps its id
_MAX_KNOWN = 50_000
_decided_for: list[str | None] = [None]


def user_place(depth: int = 1) -> StackPlace:
    """Where the user's code stands in this thread, starting `depth` frames above this function; `NOWHERE` if none of it runs."""
    known = _known
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        is_user = known.get(id(code))
        if is_user is None:
            is_user = is_user_code(code)
        if is_user:
            return code.co_filename, frame.f_lineno, code.co_qualname
        frame = frame.f_back
    return NOWHERE


def is_user_code(code: CodeType) -> bool:
    """Whether this function was written by the user. What was decided before the script itself was loaded is decided anew."""
    main_file: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    if main_file != _decided_for[0] or len(_known) > _MAX_KNOWN:
        _decided_for[0] = main_file
        _known.clear()
        _decided.clear()
    if (known := _known.get(id(code))) is None:
        _decided[id(code)] = code
        known = _known[id(code)] = is_user_file(code.co_filename, main_file)
    return known


def is_user_file(file: str, main_file: str | None) -> bool:
    """The rule itself, for a code object's file and the file that Python was started with (None: typed in, or not known yet)."""
    if file.startswith("<"):
        return file in _TYPED_IN and main_file is None
    file = os.path.abspath(file)
    installed = _installed_in(os.path.dirname(file))
    if not installed:
        return not file.startswith((_WATCHER, _STANDARD_LIBRARY))
    if main_file is None or file.startswith(_WATCHER):
        return False
    main_file = os.path.abspath(main_file)
    folder = os.path.dirname(main_file) + os.sep
    is_beside = file.startswith(folder) and len(installed) <= len(folder) and not folder[:-1].endswith(_INSTALLED)
    return file == main_file or is_beside


@cache
def _installed_in(folder: str) -> str:
    """The nearest folder above, or this one, that packages are installed in; those of `pip --target` have any name."""
    while (above := os.path.dirname(folder)) != folder:
        if folder.endswith(_INSTALLED) or any(name.endswith(".dist-info") for name in _names_in(folder)):
            return folder + os.sep
        folder = above
    return ""


@cache
def _names_in(folder: str) -> list[str]:
    try:
        return _listdir(folder)
    except OSError:  # a cell, or an archive
        return []


def is_watcher(code: CodeType) -> bool:
    """Whether this function is one of ours, which stands between a line and what it called."""
    return code.co_filename.startswith(_WATCHER)


def module_name(file: str) -> str:
    """`pandas.core.indexing` for an installed file, `zipfile` for one of Python's own; of others the file's name alone."""
    for folder in (_installed_in(os.path.dirname(file)), _STANDARD_LIBRARY):
        if folder and file.startswith(folder):
            below = file[len(folder) :]
            return below.removesuffix(".py").removesuffix(os.sep + "__init__").replace(os.sep, ".")
    return file.rpartition(os.sep)[2].removesuffix(".py")


STAGES = (
    "list", "stat", "open", "read", "decode", "transform", "collate", "handover", "wait", "copy", "forward", "backward",
    "optimizer", "evaluate", "checkpoint", "log", "python", "import", "other",
)  # fmt: skip
_UP_TO_HERE = "up to here"
"""Frames further out only called this one: what is inside is the user's own, and the phase decides."""
_BRIEF = {"stat", "open", "copy", "wait", "transform"}
"""What leaves the interpreter to others while it works: a thread that runs Python there is not yet, or no longer, at it."""
_LOADING = {"getitem", "collate"}
_NOT_LOADING = {"log", "forward"}
"""What a library's function is not for while a sample is made: `interpolate` shrinks a picture there."""

_RULES: tuple[tuple[str, str | dict[str, str]], ...] = (
    ("unchoke_doctor/watch/calls.py", {"decode": "decode", "open": "open_file", "checkpoint": "saving"}),
    ("unchoke_doctor/watch/stepping.py", {"backward": "backward", "optimizer": "apply"}),
    ("unchoke_doctor/watch/loading.py", {"wait": "next_batch iterate"}),
    ("unchoke_doctor/watch/fetching.py", {"collate": "__call__", "handover": "handed", _UP_TO_HERE: "fetch"}),
    ("<frozen importlib._bootstrap", "import"),
    ("/importlib/metadata/", "import"),
    ("genericpath", "stat"),  # parts of the standard library are frozen in some versions, with names like <frozen genericpath>
    ("posixpath", {"stat": "realpath _joinrealpath islink ismount lexists"}),
    ("/glob.py", "list"),
    ("/fnmatch.py", "list"),
    ("/os.py", {"list": "walk _walk fwalk"}),
    ("<frozen os>", {"list": "walk _walk fwalk"}),
    ("/pathlib.py", {
        "stat": "exists is_file is_dir stat", "list": "iterdir glob rglob _iterate_directories _select_from", "open": "open",
        "read": "read_bytes read_text"}),
    ("/zipfile.py", "read"),
    ("/zipfile/__init__.py", "read"),
    ("/gzip.py", "read"),
    ("/_compression.py", "read"),
    ("/tarfile.py", "read"),
    ("/csv.py", "read"),
    ("/json/decoder.py", "read"),
    ("/xml/etree/", "read"),
    ("/numpy/lib/_npyio_impl.py", {"read": "load __getitem__", "log": "save savez _savez savez_compressed"}),
    ("/numpy/lib/npyio.py", {"read": "load __getitem__", "log": "save savez _savez savez_compressed"}),
    ("/numpy/lib/format.py", {"read": "read_array", "log": "write_array"}),
    ("/numpy/lib/_format_impl.py", {"read": "read_array", "log": "write_array"}),
    ("/rasterio/", "read"),
    ("/h5py/", "read"),
    ("/pyarrow/", "read"),
    ("/pandas/io/formats/", "log"),
    ("/pandas/io/", "read"),
    ("/PIL/ImageFile.py", "decode"),
    ("ImagePlugin.py", "decode"),
    ("/PIL/Image.py", {"decode": "open _open_core preinit init"}),
    ("/PIL/", "transform"),
    ("/simplejpeg/", "decode"),
    ("/torchvision/io/", "decode"),
    ("/imageio/", "decode"),
    ("/tifffile/", "decode"),
    ("/skimage/io/", "decode"),
    ("/torchvision/transforms/", "transform"),
    ("/albumentations/", "transform"),
    ("/kornia/augmentation/", "transform"),
    ("/skimage/", "transform"),
    ("/scipy/ndimage/", "transform"),
    ("/torch/utils/data/_utils/collate.py", "collate"),
    ("/torch/utils/data/_utils/fetch.py", _UP_TO_HERE),
    ("/torch/utils/data/_utils/pin_memory.py", "handover"),
    ("/torch/utils/data/_utils/worker.py", {"wait": "_worker_loop"}),
    ("/torch/utils/data/dataloader.py", {
        "wait": "__next__ _next_data _get_data _try_get_data __iter__ __init__ _shutdown_workers"}),
    ("/torch/multiprocessing/", "handover"),
    ("/multiprocessing/connection.py", {
        "wait": "wait _poll poll", "handover": "recv_bytes recv _recv _recv_bytes send_bytes send _send _send_bytes"}),
    ("/multiprocessing/queues.py", "handover"),
    ("/multiprocessing/reduction.py", "handover"),
    ("/multiprocessing/resource_sharer.py", "handover"),
    ("/multiprocessing/popen_", "wait"),
    ("/selectors.py", "wait"),
    ("/queue.py", {"wait": "get put"}),
    ("/torch/optim/", "optimizer"),
    ("/torch/amp/grad_scaler.py", "optimizer"),
    ("/torch/nn/utils/clip_grad.py", "optimizer"),
    ("/torch/autograd/graph.py", {"backward": "_engine_run_backward"}),
    ("/torch/autograd/__init__.py", {"backward": "backward grad"}),
    ("/torch/_tensor.py", {"backward": "backward"}),
    ("/torch/serialization.py", "checkpoint"),
    ("/safetensors/", "checkpoint"),
    ("/torch/nn/", "forward"),
    ("/timm/models/", "forward"),
    ("/timm/layers/", "forward"),
    ("/torch/utils/tensorboard/", "log"),
    ("/tensorboard/", "log"),
    ("/tensorboardX/", "log"),
    ("/wandb/", "log"),
    ("/mlflow/", "log"),
    ("/matplotlib/", "log"),
    ("/tqdm/", "log"),
    ("/rich/", "log"),
    ("/logging/__init__.py", "log"),
    ("/json/encoder.py", "log"),
)  # fmt: skip
"""Where a file's path holds the first part, the second is its stage, or gives the functions that belong to each stage."""

_BY_PHASE = {"getitem": "transform", "collate": "collate"}
_WHOLE_PHASES = {"evaluate", "checkpoint"}


def rule_of(code: CodeType) -> str | None:
    """What the table says about one function."""
    file = code.co_filename.replace("\\", "/")
    for part, stages in _RULES:
        if part not in file:
            continue
        if isinstance(stages, str):
            return stages
        for stage, names in stages.items():
            if code.co_name in names.split():
                return stage
    return None


def stage_of(rules: Iterable[str | None], phase: str, *, runs_python: bool) -> str:
    """The stage of a stack, from its functions' rules, innermost first. Evaluating and saving are stages whatever runs inside."""
    if phase in _WHOLE_PHASES:
        return phase
    for rule in rules:
        if rule is None or (runs_python and rule in _BRIEF) or (phase in _LOADING and rule in _NOT_LOADING):
            continue
        if rule == _UP_TO_HERE:
            break
        return rule
    return "python" if runs_python else _BY_PHASE.get(phase, "other")
