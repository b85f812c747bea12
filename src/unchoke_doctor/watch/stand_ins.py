"""Stand-ins for what a notebook's run lacks on this machine: Colab's modules, a GPU, data, pretrained weights, downloads.

Works inside the process that runs the cells (`watch/run_cells.py`), in a scratch copy. `install` puts all in place, and gives a
function that changes a cell's syntax tree before it is compiled: paths outside of the notebook's folder lead into the scratch
folder, `"cuda"` becomes the device there is. Data that does not exist is generated: pictures in class folders or a table with the
columns that the code names, of the sizes in the code. Every stand-in is announced. There is no network, and nothing is written
outside of the scratch folder.
"""

from __future__ import annotations

import ast
import glob
import importlib
import importlib.util
import os
import random
import re
import shutil
import sys
import types
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from unchoke_doctor.watch.hooks import when_imported

Tell = Callable[..., None]
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_ABSOLUTE = re.compile(r"(?:~[/\\]|/(?![/*])|[A-Za-z]:[\\/])[^\n\r<>|\"']{2,400}")
_SYSTEM = re.compile(r"/(?:usr|proc|etc|dev|sys|bin|sbin|lib\w*|run|var)(?:/|$)")
_CLASS_FOLDERS = re.compile(r"^(ImageFolder|DatasetFolder|image_dataset_from_directory|flow_from_directory|from_folder)$")
_LISTINGS = frozenset({"listdir", "scandir", "iterdir", "walk", "glob", "iglob", "rglob"})
_TABLES = frozenset({"read_csv", "read_table"})
_READERS = frozenset({"open", "imread", "read_image", "load_img", "read_file"})
_SIZE_NAMES = r"(?:img|image|input|target|patch|crop|im)_?(?:size|dim|height|width|h|w|shape)s?$|^(?:size|height|width)$"
_CLASS_COUNTS = r"^(?:num|n|no|nb)_?(?:of_?)?class(?:es)?$|^class(?:es)?_?(?:num|count)$|^out_features$"
_CLASS_NAMES = re.compile(r"class|label|categor", re.IGNORECASE)
_PICTURE_COLUMNS = re.compile(r"image|img|file|path|photo|picture|pic$|(?:^|_)id$|name", re.IGNORECASE)
_LABEL_COLUMNS = re.compile(r"label|class|categor|target|diagnos|species|breed|y$", re.IGNORECASE)
_PATHS = frozenset({"join", "Path", "PurePath", "str", "abspath", "expanduser", "joinpath"})
_BATCHED = frozenset({"DataLoader", "fit", "flow_from_directory", "image_dataset_from_directory", "batch", "from_folder"})
_MOST_PICTURES = 2_000
_DIFFERENT = 8
_COPIED_BYTES = 1_000_000_000


def install(job: dict[str, Any], trees: Sequence[ast.Module], tell: Tell) -> Callable[[ast.Module], ast.Module]:
    """Put every stand-in in place; the function to change the trees of cells with, before they are compiled."""
    places = Places(job)
    moved = [_Rewriter(places, tell, devices=False).visit(tree) for tree in trees]
    data = DataStandIns(places, moved, job["steps"], tell)
    data.make_missing()
    _colab(tell)
    _downloads(data, places, tell)
    for name, put in {"torch": _torch, "torch.hub": _hub, "timm": _timm}.items():
        when_imported(name, lambda put=put: put(tell))  # type: ignore[misc]
    when_imported("cv2", lambda: _cv2(data))
    when_imported("tqdm.notebook", _plain_progress)
    _guard(places, data)
    return _Rewriter(places, tell, devices=True).visit


class Places:
    """Where paths of the notebook lead: its own folder is the copy, every other one lies below `root` in the scratch folder."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.scratch: str = job["scratch"]
        self.folder: str = job["folder"]
        self.work: str = job["work"]
        self.root = os.path.join(self.scratch, "root")
        self._mirrored: set[str] = set()

    def moved(self, text: str) -> str:
        """The path as the copy must use it; itself where it needs no change."""
        if text.startswith(("../", "..\\")):
            path = os.path.normpath(os.path.join(self.folder, text))
        elif _ABSOLUTE.fullmatch(text) and not _SYSTEM.match(text):
            path = os.path.expanduser(text)
        else:
            return text
        if not os.path.exists(path) and len(path.strip("/").split("/")) < 2 and ":" not in path:
            return text  # a single word after a slash is a route or an option as often as a path
        ends = "/" if text.endswith(("/", "\\")) else ""
        if path == self.folder or path.startswith(self.folder + os.sep):
            return self.work + path[len(self.folder) :].rstrip("/") + ends
        self._mirror(path)
        return self.root + "/" + re.sub(r"^[A-Za-z]:", "", path).replace("\\", "/").strip("/") + ends

    def _mirror(self, path: str) -> None:
        """What exists outside is reached through links, in folders of ours, so that writing beside it is writing here."""
        from unchoke_doctor.notebook_run import mirror

        real = re.split(r"[*?\[]", path)[0].rstrip("/") if not os.path.exists(path) else path
        if not os.path.exists(real) or real in self._mirrored or real.count("/") < 2:
            return
        self._mirrored.add(real)
        target = Path(self.root + real)
        if target.exists():
            return
        if os.path.isdir(real):
            mirror(Path(real), target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(os.path.realpath(real))

    def is_inside(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self.scratch + os.sep)


class _Rewriter(ast.NodeTransformer):
    """Paths and device names in a cell's code, as this run must use them. Lines and columns stay."""

    def __init__(self, places: Places, tell: Tell, *, devices: bool) -> None:
        self._places, self._tell, self._devices = places, tell, devices

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            asks = self._devices and re.fullmatch(r"cuda(:\d+)?", node.value)
            node.value = _device(self._tell) if asks else self._places.moved(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        """Only the beginning of an f-string can be the beginning of a path."""
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            moved = self._places.moved(first.value)
            first.value = moved + "/" if first.value.endswith("/") and not moved.endswith("/") else moved
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Keras' pretrained weights are random ones where they were never downloaded."""
        for keyword in node.keywords:
            named = keyword.arg == "weights" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "imagenet"
            if named and not glob.glob(os.path.expanduser("~/.keras/models/*")):
                keyword.value = ast.copy_location(ast.Constant(None), keyword.value)
                self._tell(
                    note="stand-in: random weights for weights='imagenet', which are not on this machine", stand_in="weights"
                )
        return self.generic_visit(node)


def _device(tell: Tell) -> str:
    """The device there is; CUDA itself where torch has it."""
    if importlib.util.find_spec("torch") is None:
        return "cuda"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    device = "mps" if torch.backends.mps.is_available() else "cpu"
    said = f"stand-in: {device} for CUDA, which this machine does not have: shares of a step are those of {device}"
    tell(note=said, stand_in="cuda")
    return device


class DataStandIns:
    """Generates folders, pictures and tables that the code reads and that do not exist."""

    def __init__(self, places: Places, trees: Sequence[ast.Module], steps: int, tell: Tell) -> None:
        self._places, self._tell, self._base = places, tell, places.work
        self._nodes = [node for tree in trees for node in ast.walk(tree)]
        self._calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        self._values: dict[str, str] = {}
        batched = any(_called(call) in _BATCHED for call in self._calls)  # else code goes through the pictures one by one
        batch = self._number(r"^(?:train_?)?(?:batch_?size|bs|batch)$", 32 if batched else 4, 1, 512)
        self._total = min(_MOST_PICTURES, (steps + 2) * batch)

    @cached_property
    def size(self) -> int:
        """The side of a picture: the largest that the code names, else what pictures are resized or cropped to."""
        resizes = [call for call in self._calls if re.search(r"resize|crop", _called(call), re.IGNORECASE)]
        numbers = [number for call in resizes for number in _numbers(call) if 16 <= number <= 2048]
        return self._number(_SIZE_NAMES, 0, 16, 2048) or max(numbers, default=256)

    @cached_property
    def classes(self) -> list[str]:
        for node in self._nodes:
            if isinstance(node, ast.Assign) and _CLASS_NAMES.search(ast.unparse(node.targets[0])):
                names = [getattr(part, "value", None) for part in getattr(node.value, "elts", ())]
                if 2 <= len(names) <= 200 and all(isinstance(name, str) for name in names):
                    return names  # type: ignore[return-value]
        layers = [call for call in self._calls if _called(call) in ("Linear", "Dense") and call.args]
        widths = [_numbers(call.args[-1 if _called(call) == "Linear" else 0]) for call in layers]
        count = self._number(_CLASS_COUNTS, 0, 2, 1000) or next((width[0] for width in reversed(widths) if width), 3)
        return [f"class_{number:02}" for number in range(max(2, min(200, count)))]

    @cached_property
    def extension(self) -> str:
        text = " ".join(node.value for node in self._nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return next((end for end in PICTURES if end in text.lower()), ".jpg")

    @cached_property
    def _templates(self) -> list[str]:
        folder = os.path.join(self._places.scratch, "pictures")
        os.makedirs(folder, exist_ok=True)
        names = [os.path.join(folder, f"{number}{self.extension}") for number in range(_DIFFERENT)]
        for number, name in enumerate(names):
            write_picture(name, self.size, number)
        return names

    def _number(self, pattern: str, default: int, least: int, most: int) -> int:
        """The largest number that a variable or argument of such a name is given."""
        found: list[int] = []
        for node in self._nodes:
            names = [node.arg or ""] if isinstance(node, ast.keyword) else []
            names += [one.id for one in getattr(node, "targets", ()) if isinstance(one, ast.Name)]
            if isinstance(node, ast.Assign | ast.keyword) and any(re.search(pattern, name, re.IGNORECASE) for name in names):
                found += _numbers(node.value)
        return max((number for number in found if least <= number <= most), default=default)

    def make_missing(self) -> None:
        """Go through the code, and generate what its calls read and do not find."""
        for node in self._nodes:
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for part in node.body if isinstance(node, ast.ClassDef) else [node]:
                text, whole = self._path(part.value) if isinstance(part, ast.Assign) else (None, False)
                if isinstance(part, ast.Assign) and text is not None and whole:
                    self._values[owner + ast.unparse(part.targets[0]).removeprefix("self.")] = text
        begun = [self._path(_first(call)) for call in self._calls if _called(call) in _LISTINGS]
        deep = {path for path, whole in begun if path and not whole}
        for call in self._calls:
            self._make_for(call, deep)

    def _make_for(self, call: ast.Call, deep: set[str]) -> None:
        name = _called(call)
        given = next((key.value for key in call.keywords if key.arg in ("root", "directory", "path", "img_dir")), None)
        path, whole = self._path(given if given is not None else _first(call))
        if not path:
            return
        place = os.path.join(self._base, path)
        if name == "chdir":
            self._base = place
            os.makedirs(place, exist_ok=True)
        elif _CLASS_FOLDERS.match(name):
            self.class_folders(path)
        elif name in _TABLES and whole:
            self._table(path)
        elif name in _LISTINGS:
            if isinstance(call.func, ast.Attribute) and name in ("glob", "rglob") and not isinstance(call.func.value, ast.Name):
                path = os.path.join(self._path(call.func.value)[0] or "", path)
            is_deep = path in deep or "*/" in path or name in ("walk", "rglob")
            path = re.split(r"(?=[^/]*[*?\[])", path, maxsplit=1)[0].rstrip("/")
            place = os.path.join(self._base, path)
            if is_deep:
                self.class_folders(path)
            elif path and not os.path.exists(place):
                for number in range(self._total):
                    self.picture(os.path.join(place, f"{number:05}{self.extension}"))
                self._announce(path, f"{self._total} pictures of {self.size}×{self.size}")
        elif name in _READERS and whole and path.lower().endswith(PICTURES) and not os.path.lexists(place):
            self.picture(place)
            self._announce(place, f"a picture of {self.size}×{self.size}")
        elif name in _READERS and not whole and not os.path.exists(place):
            os.makedirs(place, exist_ok=True)

    def class_folders(self, path: str) -> None:
        place = os.path.join(self._base, path)
        if os.path.isdir(place) and any(os.scandir(place)):
            return
        few = re.search(r"val|test|dev", os.path.basename(path.rstrip("/")), re.IGNORECASE)
        each, count = max(2, (self._total // 4 if few else self._total) // len(self.classes)), len(self.classes)
        for name in self.classes:
            for number in range(each):
                self.picture(os.path.join(place, name, f"{number:05}{self.extension}"))
        self._announce(path, f"{each * count} pictures of {self.size}×{self.size} in {count} class folders")

    def picture(self, place: str) -> None:
        """One picture at this place, a link to one of a few that differ."""
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if place.lower().endswith(self.extension):
            os.link(self._templates[zlib.crc32(place.encode()) % _DIFFERENT], place)
        else:
            write_picture(place, self.size, 0)

    def before_open(self, path: str) -> None:
        """Make a picture that a generated table names and that is about to be read."""
        if path.lower().endswith(PICTURES) and not os.path.lexists(path) and self._places.is_inside(path):
            self.picture(os.path.abspath(path))

    def _table(self, path: str) -> None:
        """A table with the columns that the code asks frames and rows for, pictures first, then labels."""
        place = os.path.join(self._base, path)
        if os.path.exists(place):
            return
        found: dict[str, None] = {}
        for node in self._nodes:
            of_frame = isinstance(node, ast.keyword) and node.arg in ("x_col", "y_col", "usecols")
            keys = node.slice if isinstance(node, ast.Subscript) else node.value if of_frame else None  # type: ignore[attr-defined]
            for key in getattr(keys, "elts", [keys]):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and re.fullmatch(r"[\w .-]{1,40}", key.value):
                    found[key.value] = None
        labels = {name for name in found or ("label",) if _LABEL_COLUMNS.search(name)}
        pictures = {name for name in found or ("image",) if name not in labels and _PICTURE_COLUMNS.search(name)}
        columns = sorted(found or ("image", "label"), key=lambda name: 0 if name in pictures else 1 if name in labels else 2)
        texts = " ".join(ast.unparse(node) for node in self._nodes if isinstance(node, ast.JoinedStr | ast.BinOp))
        ends = "" if self.extension in texts else self.extension
        as_words = any(isinstance(node, ast.keyword) and node.arg == "class_mode" for node in self._nodes)
        chance, lines = random.Random(0), [",".join(columns)]
        for row in range(self._total):
            number = row % len(self.classes)
            cells = dict.fromkeys(pictures, f"{row:05}{ends}")
            cells |= dict.fromkeys(labels, self.classes[number] if as_words else str(number))
            lines.append(",".join(cells.get(name) or f"{chance.random():.4f}" for name in columns))
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        Path(place).write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._announce(path, f"a table of {self._total} rows with the columns {', '.join(columns)}")

    def _announce(self, path: str, what: str) -> None:
        shown = path.replace(self._places.root, "").replace(self._places.work + "/", "")
        self._tell(note=f"stand-in: {what} for {shown}, which does not exist", stand_in="data")

    def _path(self, node: ast.expr | None) -> tuple[str | None, bool]:
        """A path that the code writes out, or its known beginning; whether that is all of it."""
        if isinstance(node, ast.Constant):
            return (node.value, True) if isinstance(node.value, str) else (None, False)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._values.get(ast.unparse(node).removeprefix("self.")), True
        parts: list[ast.expr] = []
        glue = "/"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
            parts, glue = [node.left, node.right], "/" if isinstance(node.op, ast.Div) else ""
        elif isinstance(node, ast.JoinedStr):
            parts, glue = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values], ""
        elif isinstance(node, ast.Call) and _called(node) in _PATHS:
            own = _called(node) == "joinpath" and isinstance(node.func, ast.Attribute)
            parts = ([node.func.value] if own else []) + node.args  # type: ignore[attr-defined]
        known: list[str] = []
        for text, whole in map(self._path, parts):
            if text is None:
                return (glue.join(known).rstrip("/") or None) if known else None, False
            known.append(text.strip("/") if known and glue else text.rstrip("/") if glue and len(text) > 1 else text)
            if not whole:
                return glue.join(known), False
        return glue.join(known) or None, bool(parts)


def _called(call: ast.AST) -> str:
    func = getattr(call, "func", None)
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _first(call: ast.Call) -> ast.expr | None:
    """The first argument; of a method such as `folder.iterdir()` what it is called on."""
    return call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None


def _numbers(node: ast.AST) -> list[int]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and type(part.value) is int]


def write_picture(path: str, size: int, seed: int) -> None:
    """A soft picture that compresses about as well as a photo; without PIL none, and the code that reads it says so."""
    if importlib.util.find_spec("PIL") is None:
        return
    from PIL import Image

    small = max(4, size // 8)
    noise = Image.frombytes("RGB", (small, small), random.Random(seed).randbytes(3 * small * small))
    noise.resize((size, size), Image.Resampling.BICUBIC).save(path)


def _module(name: str, **members: Any) -> None:
    """A module of that name, importable from now on."""
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], last, module)


def _skipping(tell: Tell, what: str, answer: Any = None, kind: str = "colab") -> Callable[..., Any]:
    def skipped(*_args: Any, **_options: Any) -> Any:
        tell(note=f"stand-in: {what}", stand_in=kind)
        return answer

    return skipped


def _colab(tell: Tell) -> None:
    """`google.colab`, where it is not installed: mounting, uploads and secrets do nothing."""
    if "google.colab" in sys.modules or (importlib.util.find_spec("google") and importlib.util.find_spec("google.colab")):
        return
    if importlib.util.find_spec("google") is None:
        _module("google")
    else:
        importlib.import_module("google")  # the namespace that colab is put into
    _module("google.colab")
    drive = {"mount": _skipping(tell, "drive.mount does nothing"), "flush_and_unmount": lambda *_, **__: None}
    upload, download = _skipping(tell, "files.upload gives no files", {}), _skipping(tell, "files.download does nothing")
    _module("google.colab.drive", **drive)
    _module("google.colab.files", upload=upload, download=download)
    _module("google.colab.userdata", get=_skipping(tell, "userdata.get gives an empty text", ""))
    _module("google.colab.auth", authenticate_user=_skipping(tell, "auth.authenticate_user does nothing"))
    _module("google.colab.patches", cv2_imshow=lambda *_: None)


def _downloads(data: DataStandIns, places: Places, tell: Tell) -> None:
    """Downloads are skipped; a data set of kagglehub is a folder of generated pictures."""
    import urllib.request

    def dataset(handle: str, *_args: Any, **_options: Any) -> str:
        place = os.path.join(places.root, "kagglehub", *handle.split("/"))
        data.class_folders(place)
        return place

    _module("kagglehub", dataset_download=dataset, login=lambda *_, **__: None)
    urllib.request.urlretrieve = _skipping(tell, "downloads are skipped", ("", None), "download")
    for name in ("gdown", "wget"):
        _module(name, download=_skipping(tell, f"{name}.download is skipped", "", "download"))


def _torch(tell: Tell) -> None:
    """Without a GPU what asks for one does nothing, and checkpoints are loaded to the CPU. Saving replaces links."""
    torch: Any = sys.modules["torch"]
    save, load = torch.save, torch.load

    def save_here(value: Any, file: Any, *args: Any, **options: Any) -> Any:
        if isinstance(file, str | os.PathLike) and os.path.islink(file):  # torch writes without Python's open
            os.unlink(file)
        return save(value, file, *args, **options)

    def load_here(*args: Any, **options: Any) -> Any:
        if len(args) < 2:
            options["map_location"] = options.get("map_location") or "cpu"
        return load(*args, **options)

    def same(value: Any, *_args: Any, **_options: Any) -> Any:
        _device(tell)
        return value

    torch.save = save_here
    if not torch.cuda.is_available():
        torch.load, torch.Tensor.cuda, torch.nn.Module.cuda = load_here, same, same
        answers = {"synchronize": None, "get_device_name": "no CUDA device", "current_device": 0, "set_device": None}
        for name, answer in answers.items():
            setattr(torch.cuda, name, lambda *_args, answer=answer, **_options: answer)


class _NoWeights(dict[str, Any]):
    """Stands for weights that were not downloaded: a network that is given them keeps its random ones."""


def _hub(tell: Tell) -> None:
    """Pretrained weights that are not on this machine are random ones."""
    torch: Any = sys.modules["torch"]
    hub: Any = sys.modules["torch.hub"]
    fetch, load = hub.load_state_dict_from_url, torch.nn.Module.load_state_dict

    def from_cache(url: str, model_dir: str | None = None, *args: Any, **options: Any) -> Any:
        name = options.get("file_name") or os.path.basename(url.partition("?")[0])
        if os.path.exists(os.path.join(model_dir or os.path.join(hub.get_dir(), "checkpoints"), name)):
            return fetch(url, model_dir, *args, **options)
        tell(note=f"stand-in: random weights for {name}, which is not on this machine", stand_in="weights")
        return _NoWeights()

    def load_unless_missing(module: Any, state: Any, *args: Any, **options: Any) -> Any:
        return None if isinstance(state, _NoWeights) else load(module, state, *args, **options)

    hub.load_state_dict_from_url, torch.nn.Module.load_state_dict = from_cache, load_unless_missing
    api = "torchvision.models._api"
    when_imported(api, lambda: setattr(sys.modules[api], "load_state_dict_from_url", from_cache))


def _timm(tell: Tell) -> None:
    timm: Any = sys.modules["timm"]
    make = timm.create_model

    def create(name: str, pretrained: bool = False, *args: Any, **options: Any) -> Any:
        try:
            return make(name, pretrained, *args, **options)
        except Exception as error:  # whatever a hub raises without a network
            if not pretrained:
                raise
            tell(note=f"stand-in: random weights for {name} ({type(error).__name__} without a network)", stand_in="weights")
            return make(name, False, *args, **options)

    timm.create_model = create


def _cv2(data: DataStandIns) -> None:
    """It opens files in C: a picture of a generated folder is made when it is asked for."""
    cv2: Any = sys.modules["cv2"]
    read = cv2.imread

    def read_made(path: Any, *args: Any, **options: Any) -> Any:
        data.before_open(str(path))
        return read(path, *args, **options)

    cv2.imread = read_made


def _plain_progress() -> None:
    """Progress bars of notebooks need widgets that only a browser has."""
    module, plain = sys.modules["tqdm.notebook"], sys.modules["tqdm"]
    for name in ("tqdm", "tqdm_notebook", "trange", "tnrange"):
        setattr(module, name, plain.trange if "range" in name else plain.tqdm)


def _guard(places: Places, data: DataStandIns) -> None:
    """Keep writes in the scratch folder and connections on this machine, from here to the end of the process."""
    from unchoke_doctor.watch.scratch import put_up_fence

    fenced = put_up_fence([places.scratch, "/dev", "/proc"])
    busy = False

    def opening(path: str, flags: Any) -> None:
        if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            data.before_open(path)
            return
        if os.path.islink(path) and not places.is_inside(path) and os.path.abspath(path).startswith(places.scratch):
            real = os.path.realpath(path)  # a link to a large file becomes a copy before it is written to
            if os.path.getsize(real) <= _COPIED_BYTES:
                os.unlink(path)
                shutil.copy2(real, path)
        if not fenced and not places.is_inside(path) and not path.startswith(("/dev/", "/proc/")):
            raise PermissionError(f"this run writes in its scratch folder only: {path}")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal busy
        if event == "open" and not busy and isinstance(args[0], str | bytes | os.PathLike):
            busy = True
            try:
                opening(os.fsdecode(args[0]), args[2])
            finally:
                busy = False
        elif event in ("socket.connect", "socket.getaddrinfo"):
            address = args[0] if event.endswith("info") else args[1][0] if isinstance(args[1], tuple) else None
            if address is not None and str(address) not in ("127.0.0.1", "::1", "localhost"):
                raise ConnectionError(f"no network in this run: {address}")

    sys.addaudithook(hook)
