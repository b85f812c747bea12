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
_SIZE_NAMES = re.compile(
    r"(?:img|image|input|target|patch|crop|im)_?(?:size|dim|height|width|h|w|shape)s?$|^(?:size|height|width)$", re.IGNORECASE
)
_CLASS_COUNTS = re.compile(
    r"^(?:num|n|no|nb)_?(?:of_?)?class(?:es)?$|^class(?:es)?_?(?:num|count)$|^out_features$", re.IGNORECASE
)
_CLASS_NAMES = re.compile(r"class|label|categor", re.IGNORECASE)
_PICTURE_COLUMNS = re.compile(r"image|img|file|path|photo|picture|pic$|(?:^|_)id$|name", re.IGNORECASE)
_LABEL_COLUMNS = re.compile(r"label|class|categor|target|diagnos|species|breed|y$", re.IGNORECASE)
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
    _downloads(data, tell)
    when_imported("torch", lambda: _without_gpu(tell))
    when_imported("torch", _save_beside_links)
    when_imported("torch.hub", lambda: _without_weights(tell))
    when_imported("timm", lambda: _without_timm_weights(tell))
    when_imported("cv2", lambda: _picture_before_read(sys.modules["cv2"], "imread", data))
    when_imported("tqdm.notebook", _plain_progress)
    _guard(places, data)
    rewriter = _Rewriter(places, tell, devices=True)
    return rewriter.visit


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
    tell(
        note=f"stand-in: {device} for CUDA, which this machine does not have: shares of a step are those of {device}",
        stand_in="cuda",
    )
    return device


class DataStandIns:
    """Generates folders, pictures and tables that the code reads and that do not exist."""

    def __init__(self, places: Places, trees: Sequence[ast.Module], steps: int, tell: Tell) -> None:
        self._places, self._trees, self._tell = places, trees, tell
        self._nodes = [node for tree in trees for node in ast.walk(tree)]
        self._values: dict[str, Any] = {}
        self._base = places.work
        batched = any(_called(node) in _BATCHED for node in self._nodes)  # else code goes through the pictures one by one
        batch = self._number(r"^(?:train_?)?(?:batch_?size|bs|batch)$", 32 if batched else 4, 1, 512)
        self._total = min(_MOST_PICTURES, (steps + 2) * batch)

    @cached_property
    def size(self) -> int:
        """The side of a picture: the largest that the code names."""
        return self._number(_SIZE_NAMES.pattern, 0, 16, 2048) or self._resize() or 256

    @cached_property
    def classes(self) -> list[str]:
        for node in self._nodes:
            names = _strings(node.value) if isinstance(node, ast.Assign) else []
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if 2 <= len(names) <= 200 and isinstance(target, ast.Name) and _CLASS_NAMES.search(target.id):
                return names
        layers = [
            node for node in self._nodes if isinstance(node, ast.Call) and _called(node) in ("Linear", "Dense") and node.args
        ]
        widths = [node.args[-1 if _called(node) == "Linear" else 0] for node in layers]
        numbers = [width.value for width in widths if isinstance(width, ast.Constant) and isinstance(width.value, int)]
        count = self._number(_CLASS_COUNTS.pattern, 0, 2, 1000) or (numbers[-1] if numbers else 3)
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
        found = []
        for node in self._nodes:
            named: list[tuple[str, ast.expr | None]] = []
            if isinstance(node, ast.Assign):
                named = [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
            elif isinstance(node, ast.keyword):
                named = [(node.arg or "", node.value)]
            for name, value in named:
                if value is not None and re.search(pattern, name, re.IGNORECASE):
                    found += [
                        part.value for part in ast.walk(value) if isinstance(part, ast.Constant) and type(part.value) is int
                    ]
        return max((number for number in found if least <= number <= most), default=default)

    def _resize(self) -> int:
        """The size that pictures are resized or cropped to."""
        calls = [
            node for node in self._nodes if isinstance(node, ast.Call) and re.search(r"resize|crop", _called(node), re.IGNORECASE)
        ]
        numbers = [part.value for call in calls for part in ast.walk(call) if isinstance(part, ast.Constant)]
        return max((number for number in numbers if type(number) is int and 16 <= number <= 2048), default=0)

    def make_missing(self) -> None:
        """Go through the code, and generate what its calls read and do not find."""
        for node in self._nodes:
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for part in node.body if isinstance(node, ast.ClassDef) else [node]:
                value, whole = self._path(part.value) if isinstance(part, ast.Assign) else (None, False)
                if isinstance(part, ast.Assign) and value is not None and whole:
                    self._values[owner + ast.unparse(part.targets[0]).removeprefix("self.")] = value
        calls = [node for node in self._nodes if isinstance(node, ast.Call)]
        begun = [self._path(_first(call)) for call in calls if _called(call) in _LISTINGS]
        deep = {path for path, whole in begun if path and not whole}
        for call in calls:
            self._make_for(call, deep)

    def _make_for(self, call: ast.Call, deep: set[str]) -> None:
        name = _called(call)
        given = next((key.value for key in call.keywords if key.arg in ("root", "directory", "path", "img_dir")), None)
        path, whole = self._path(given if given is not None else _first(call))
        if not path:
            return
        if name == "chdir":
            self._base = os.path.join(self._base, path)
            os.makedirs(self._base, exist_ok=True)
        elif _CLASS_FOLDERS.match(name):
            self._class_folders(path)
        elif name in _TABLES and whole:
            self._table(path)
        elif name in _LISTINGS:
            if isinstance(call.func, ast.Attribute) and name in ("glob", "rglob") and not isinstance(call.func.value, ast.Name):
                path = os.path.join(self._path(call.func.value)[0] or "", path)
            is_deep = path in deep or "*/" in path or name in ("walk", "rglob")
            (self._class_folders if is_deep else self._pictures)(re.split(r"(?=[^/]*[*?\[])", path, maxsplit=1)[0].rstrip("/"))
        elif name in _READERS and whole and path.lower().endswith(PICTURES):
            self.picture(self._whole(path), say=True)
        elif name in _READERS and not whole and not os.path.exists(self._whole(path)):
            os.makedirs(self._whole(path), exist_ok=True)

    def _whole(self, path: str) -> str:
        return os.path.join(self._base, path)

    def _class_folders(self, path: str) -> None:
        place = self._whole(path)
        if os.path.isdir(place) and any(os.scandir(place)):
            return
        few = re.search(r"val|test|dev", os.path.basename(path.rstrip("/")), re.IGNORECASE)
        each = max(2, (self._total // 4 if few else self._total) // len(self.classes))
        for name in self.classes:
            os.makedirs(os.path.join(place, name), exist_ok=True)
            for number in range(each):
                self.picture(os.path.join(place, name, f"{number:05}{self.extension}"))
        self._announce(
            path, f"{each * len(self.classes)} pictures of {self.size}×{self.size} in {len(self.classes)} class folders"
        )

    def _pictures(self, path: str) -> None:
        place = self._whole(path)
        if not path or os.path.exists(place):
            return
        os.makedirs(place)
        for number in range(self._total):
            self.picture(os.path.join(place, f"{number:05}{self.extension}"))
        self._announce(path, f"{self._total} pictures of {self.size}×{self.size}")

    def picture(self, place: str, *, say: bool = False) -> None:
        """One picture at this place, a link to one of a few that differ."""
        if os.path.lexists(place):
            return
        os.makedirs(os.path.dirname(place), exist_ok=True)
        template = self._templates[zlib.crc32(place.encode()) % _DIFFERENT]
        if place.lower().endswith(self.extension):
            os.link(template, place)
        else:
            write_picture(place, self.size, 0)
        if say:
            self._announce(place, f"a picture of {self.size}×{self.size}")

    def _table(self, path: str) -> None:
        place = self._whole(path)
        if os.path.exists(place):
            return
        columns = self._columns()
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        kinds = {name: self._kind(name) for name in columns}
        chance = random.Random(0)
        with open(place, "w", encoding="utf-8") as file:
            file.write(",".join(columns) + "\n")
            rows = ([self._cell(kinds[name], row, chance) for name in columns] for row in range(self._total))
            file.writelines(",".join(row) + "\n" for row in rows)
        self._announce(path, f"a table of {self._total} rows with the columns {', '.join(columns)}")

    def _columns(self) -> list[str]:
        """Names that the code asks frames and rows for, pictures first, then labels."""
        found: dict[str, None] = {}
        for node in self._nodes:
            keys: list[ast.expr] = []
            if isinstance(node, ast.Subscript):
                keys = list(node.slice.elts) if isinstance(node.slice, ast.Tuple | ast.List) else [node.slice]
            elif isinstance(node, ast.keyword) and node.arg in ("x_col", "y_col", "usecols"):
                keys = list(node.value.elts) if isinstance(node.value, ast.List) else [node.value]
            for key in keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and re.fullmatch(r"[\w .-]{1,40}", key.value):
                    found[key.value] = None
        names = list(found) or ["image", "label"]
        return sorted(names, key=lambda name: {"picture": 0, "label": 1}.get(self._kind(name), 2))

    def _kind(self, name: str) -> str:
        return "label" if _LABEL_COLUMNS.search(name) else "picture" if _PICTURE_COLUMNS.search(name) else "number"

    def _cell(self, kind: str, row: int, chance: random.Random) -> str:
        if kind == "picture":
            text = " ".join(ast.unparse(node) for node in self._nodes if isinstance(node, ast.JoinedStr | ast.BinOp))
            return f"{row:05}{'' if self.extension in text else self.extension}"
        as_words = any(isinstance(node, ast.keyword) and node.arg == "class_mode" for node in self._nodes)
        number = row % len(self.classes)
        return (self.classes[number] if as_words else str(number)) if kind == "label" else f"{chance.random():.4f}"

    def _announce(self, path: str, what: str) -> None:
        shown = path.replace(self._places.root, "").replace(self._places.work + "/", "")
        self._tell(note=f"stand-in: {what} for {shown}, which does not exist", stand_in="data")

    def _path(self, node: ast.expr | None) -> tuple[str | None, bool]:
        """A path that the code writes out, or its known beginning; whether that is all of it."""
        if isinstance(node, ast.Constant):
            return (node.value, True) if isinstance(node.value, str) else (None, False)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._values.get(ast.unparse(node).removeprefix("self.")), True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
            glue = "/" if isinstance(node.op, ast.Div) else ""
            return self._joined([self._path(node.left), self._path(node.right)], glue)
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            return self._joined([self._path(part) for part in parts], "")
        if isinstance(node, ast.Call) and _called(node) in (
            "join",
            "Path",
            "PurePath",
            "str",
            "abspath",
            "expanduser",
            "joinpath",
        ):
            own = node.func.value if _called(node) == "joinpath" and isinstance(node.func, ast.Attribute) else None
            return self._joined([self._path(part) for part in ([own] if own else []) + node.args], "/")
        return None, False

    @staticmethod
    def _joined(parts: Sequence[tuple[str | None, bool]], glue: str) -> tuple[str | None, bool]:
        known: list[str] = []
        for text, whole in parts:
            if text is None:
                return (glue.join(known).rstrip("/") or None) if known else None, False
            known.append(text.strip("/") if known and glue else text.rstrip("/") if glue and len(text) > 1 else text)
            if not whole:
                return glue.join(known), False
        return glue.join(known) or None, True


def _called(call: ast.AST) -> str:
    func = getattr(call, "func", None)
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _first(call: ast.Call) -> ast.expr | None:
    """The first argument; of a method such as `folder.iterdir()` what it is called on."""
    return call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None


def _strings(node: ast.AST) -> list[str]:
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return texts if len(texts) == len(parts) else []


def write_picture(path: str, size: int, seed: int) -> None:
    """A soft picture that compresses about as well as a photo; without PIL none, and the code that reads it says so."""
    if importlib.util.find_spec("PIL") is None:
        return
    from PIL import Image

    small = max(4, size // 8)
    noise = Image.frombytes("RGB", (small, small), random.Random(seed).randbytes(3 * small * small))
    noise.resize((size, size), Image.Resampling.BICUBIC).save(path)


def _module(name: str, **members: Any) -> types.ModuleType:
    """A module of that name, importable from now on."""
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], last, module)
    return module


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
    drive = types.SimpleNamespace(mount=_skipping(tell, "drive.mount does nothing"), flush_and_unmount=lambda *_, **__: None)
    files = types.SimpleNamespace(
        upload=_skipping(tell, "files.upload gives no files", {}), download=_skipping(tell, "files.download does nothing")
    )
    userdata = types.SimpleNamespace(get=_skipping(tell, "userdata.get gives an empty text", ""))
    auth = types.SimpleNamespace(authenticate_user=_skipping(tell, "auth.authenticate_user does nothing"))
    _module("google.colab", drive=drive, files=files, userdata=userdata, auth=auth)
    for name, made in (("drive", drive), ("files", files), ("userdata", userdata), ("auth", auth)):
        _module(f"google.colab.{name}", **vars(made))
    _module("google.colab.patches", cv2_imshow=lambda *_: None)


def _downloads(data: DataStandIns, tell: Tell) -> None:
    """Downloads are skipped; a data set of kagglehub is a folder of generated pictures."""
    import urllib.request

    def dataset(handle: str, *_args: Any, **_options: Any) -> str:
        place = os.path.join(data._places.root, "kagglehub", *handle.split("/"))
        data._class_folders(place)
        return place

    _module("kagglehub", dataset_download=dataset, login=lambda *_, **__: None)
    urllib.request.urlretrieve = _skipping(tell, "downloads are skipped", ("", None), "download")
    for name in ("gdown", "wget"):
        _module(name, download=_skipping(tell, f"{name}.download is skipped", "", "download"))


def _without_gpu(tell: Tell) -> None:
    """`.cuda()` and what asks for the GPU do nothing where there is none; checkpoints are loaded to the device there is."""
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_available():
        return

    def same(value: Any, *_args: Any, **_options: Any) -> Any:
        _device(tell)
        return value

    torch.Tensor.cuda = torch.nn.Module.cuda = same
    for name, answer in (
        ("synchronize", None),
        ("get_device_name", "no CUDA device"),
        ("current_device", 0),
        ("set_device", None),
    ):
        setattr(torch.cuda, name, lambda *_args, answer=answer, **_options: answer)
    load = torch.load

    def load_here(*args: Any, **options: Any) -> Any:
        if len(args) < 2:
            options["map_location"] = options.get("map_location") or "cpu"
        return load(*args, **options)

    torch.load = load_here


def _save_beside_links() -> None:
    """torch writes files without Python's open: a link to a large checkpoint of the person's gives way first."""
    torch: Any = sys.modules["torch"]
    save = torch.save

    def save_here(value: Any, file: Any, *args: Any, **options: Any) -> Any:
        if isinstance(file, str | os.PathLike) and os.path.islink(file):
            os.unlink(file)
        return save(value, file, *args, **options)

    torch.save = save_here


class _NoWeights(dict[str, Any]):
    """Stands for weights that were not downloaded: a network that is given them keeps its random ones."""


def _without_weights(tell: Tell) -> None:
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
    when_imported(
        "torchvision.models._api", lambda: setattr(sys.modules["torchvision.models._api"], "load_state_dict_from_url", from_cache)
    )


def _without_timm_weights(tell: Tell) -> None:
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


def _picture_before_read(module: Any, name: str, data: DataStandIns) -> None:
    """For readers that open files in C: a picture of a generated folder is made when it is asked for."""
    read = getattr(module, name)

    def read_made(path: Any, *args: Any, **options: Any) -> Any:
        data_before_open(str(path), data)
        return read(path, *args, **options)

    setattr(module, name, read_made)


def data_before_open(path: str, data: DataStandIns) -> None:
    """Make a picture that a generated table names and that is about to be read."""
    if path.lower().endswith(PICTURES) and not os.path.lexists(path) and data._places.is_inside(path):
        data.picture(os.path.abspath(path))


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

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal busy
        if event == "open" and not busy and isinstance(args[0], str | bytes | os.PathLike):
            busy = True
            try:
                path = os.fsdecode(args[0])
                writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                if writes:
                    _copy_on_write(path, places, fenced=fenced)
                else:
                    data_before_open(path, data)
            finally:
                busy = False
        elif (
            event == "socket.connect" and isinstance(args[1], tuple) and str(args[1][0]) not in ("127.0.0.1", "::1", "localhost")
        ):
            raise ConnectionError(f"no network in this run: {args[1][0]}")
        elif event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", "::1", "localhost", None):
            raise ConnectionError(f"no network in this run: {args[0]}")

    sys.addaudithook(hook)


def _copy_on_write(path: str, places: Places, *, fenced: bool) -> None:
    """A link to a large file becomes a copy before it is written to; without a fence, writing elsewhere is refused here."""
    if os.path.islink(path) and not places.is_inside(path) and os.path.abspath(path).startswith(places.scratch):
        real = os.path.realpath(path)
        if os.path.getsize(real) <= _COPIED_BYTES:
            os.unlink(path)
            shutil.copy2(real, path)
    elsewhere = not places.is_inside(path) and not path.startswith(("/dev/", "/proc/"))
    if elsewhere and not fenced:
        raise PermissionError(f"this run writes in its scratch folder only: {path}")
