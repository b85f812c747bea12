"""From a function on the stack to the stage of training it belongs to: a table of files and names, and how a whole stack is read.

In: code objects from the innermost frame outwards, the thread's phase, and whether it was running Python when it was looked at.
Out: one of `STAGES`. The innermost function that the table knows decides. Where the thread was running Python, functions that
only go to the system and come back are passed over: they are where a thread is met, not where it spends its time. Nothing is
sampled here.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType

STAGES = (
    "list", "stat", "open", "read", "decode", "transform", "collate", "handover", "wait", "copy", "forward", "backward",
    "optimizer", "evaluate", "checkpoint", "log", "python", "import", "other",
)  # fmt: skip
_UP_TO_HERE = "up to here"
"""Frames further out only called this one: what is inside is the user's own, and the phase decides."""
_BRIEF = {"stat", "open", "copy", "wait", "transform"}
"""What leaves the interpreter to others while it works: a thread that runs Python there is not yet, or no longer, at it."""
_LOADING = {"getitem", "collate"}

_RULES: tuple[tuple[str, str | dict[str, str]], ...] = (
    ("unchoke/watch/wrapping.py", {  # names its functions by the kinds of calls they time
        "decode": "decode", "transform": "resize crop transform to_array", "read": "read npz csv load raster_read",
        "open": "open raster_open", "log": "dump", "wait": "sleep sync", "other": "gc empty_cache"}),
    ("unchoke/watch/files.py", {"stat": "stat", "open": "open_file", "list": "list_folder scan_folder _counted"}),
    ("unchoke/watch/moving.py", {"copy": "copy reading"}),
    ("unchoke/watch/stepping.py", {"forward": "call", "backward": "backward"}),
    ("unchoke/watch/loading.py", {"wait": "next_batch iterate"}),
    ("unchoke/watch/fetching.py", {"collate": "__call__", "handover": "handed", _UP_TO_HERE: "fetch"}),
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
        if rule is None or (runs_python and rule in _BRIEF) or (rule == "log" and phase in _LOADING):
            continue
        if rule == _UP_TO_HERE:
            break
        return rule
    return "python" if runs_python else _BY_PHASE.get(phase, "other")
