"""What the saved outputs of a notebook show about its training: times, number of images, device, use of the GPU, memory.

People read these numbers before they read the code, and so do rules: an epoch of two seconds has no bottleneck worth naming, an
epoch of four minutes at 30 images a second on a Tesla T4 has one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from unchoke_doctor.code.source import Cell, SourceFile

_KERAS = re.compile(
    r"(?P<steps>\d+)/(?P=steps)\s+(?:\[=+\]|━+)\s*-?\s*(?P<time>\d[\dhms: ]*?)s?\s+(?P<step>\d+)(?P<unit>us|ms|s)/(?:step|epoch)"
)
_KERAS_PLAIN = re.compile(r"(?P<steps>\d+)/(?P=steps)\s+(?:\[=+\]|━+)\s*-\s*(?P<time>\d+)s\b")
_TQDM = re.compile(
    r"(?P<n>\d+)/(?P=n)\s*\[(?P<time>(?:\d+:)?\d+:\d\d)<(?:0?0:)?00:00,\s*(?P<rate>[\d.]+)\s*(?P<unit>\w+/s|s/\w+)"
)
# Bars that were interrupted: Keras tells what is left, tqdm also what has passed.
_KERAS_LEFT = re.compile(r"(?P<n>\d+)/(?P<steps>\d+)\s+(?:\[=*>?\.*\]|━+)\s*-?\s*(?:ETA:\s*)?(?P<left>(?:\d+:)*\d+s?)(?=\s)")
_TQDM_LEFT = re.compile(r"(?P<n>\d+)/(?P<steps>\d+)\s*\[(?P<past>(?:\d+:)?\d+:\d\d)<(?P<left>(?:\d+:)?\d+:\d\d),")
_FASTAI_ROW = re.compile(r"^\s*\d+(?:\s+(?:[\d.]+|nan|None|#na#))+\s+(?P<time>(?:\d+:)?\d+:\d\d)\s*$", re.MULTILINE)
_HUGGING_FACE = re.compile(
    r"\[\s*\d+/\d+\s+(?P<past>(?:\d+:)?\d+:\d\d)(?:\s*<\s*(?P<left>(?:\d+:)?\d+:\d\d))?,[^\]]{0,60}Epoch [\d.]+/(?P<epochs>\d+)"
)
_YOLO = re.compile(r"(?P<epochs>\d+) epochs completed in (?P<hours>\d+(?:\.\d+)?) hours")
_EPOCH_TIME = re.compile(
    r"epoch[^\n]{0,120}?(?:time|took|elapsed|duration|completed in|finished in|in)\b[^\n\d]{0,20}"
    r"(?:(?P<min>\d+)\s*m(?:in)?\w*[ ,:]*)?(?P<s>\d+(?:\.\d+)?)\s*(?:s\b|sec|\bs$|$|\))",
    re.IGNORECASE | re.MULTILINE,
)
_TRAINING_TIME = re.compile(
    r"train\w*[^\n]{0,40}?\b(?:in|time|took)\b\D{0,12}(?:(?P<h>\d+)h\s*)?(?P<m>\d+)m\w*\s+(?P<s>\d+(?:\.\d+)?)s", re.IGNORECASE
)
_EPOCH_LINE = re.compile(r"^\s*epoch[\s:#\[(]*(\d+)", re.IGNORECASE | re.MULTILINE)
_WALL = re.compile(
    r"(?:Wall time|CPU times: .*total): (?:(?P<d>\d+)d )?(?:(?P<h>\d+)h )?(?:(?P<m>\d+)min )?(?P<s>[\d.]+) ?(?P<unit>ms|[uµ]s|s)"
)
_IMAGES = (
    re.compile(r"Found (\d+) (?:validated )?(?:images?|image filenames|files) belonging to"),
    re.compile(r"Number of datapoints: (\d+)"),
    re.compile(
        r"train\w*\W+(?:images|samples|examples|data ?set|set|size|data)\b[\w ]{0,16}\W{1,12}(\d{3,7})(?![\d.]*\d)", re.IGNORECASE
    ),
    re.compile(r"^\W*(?:found|loaded|total)?\W*(\d{2,7}) (?:images|samples|pictures|photos)\b", re.IGNORECASE | re.MULTILINE),
)  # fmt: skip
_DATA_SETS = re.compile(r"train|data|(?:^|_)ds(?:_|$)|images|files|paths", re.IGNORECASE)
_GPU = re.compile(
    r"\b(Tesla \w+|NVIDIA (?:GeForce |RTX |A|H|L|T)[\w -]*\w|GeForce [RG]TX \d+\w*(?: Ti)?|Quadro \w+|A100|V100|P100|RTX \d{4})"
    r"|(?<![\w'\"])cuda(?::\d)?(?=['\"\s)]|$)|device_type: ?\"?GPU|/device:GPU:\d|PhysicalDevice\(name='/physical_device:GPU"
)
_CPU = re.compile(
    r"^\s*(?:using |device:? ?|running on |training on )*(?:device\(type=)?['\"]?cpu['\"]?\)?\s*$", re.IGNORECASE | re.MULTILINE
)
_NO_CUDA = re.compile(
    r"gpus? available:?\s*0\b|(?:cuda|gpu)[^\n]{0,30}(?:not available|available\W+False|: ?False|unavailable)|no gpu",
    re.IGNORECASE,
)
_WORKERS = re.compile(r"suggested max number of worker in current system is (\d+)")
_MEMORY = re.compile(
    r"CUDA out of memory|OOM when allocating|ResourceExhaustedError|MemoryError|Unable to allocate [\d.]+ [GM]iB|Killed",
    re.IGNORECASE,
)
_SPAWN = re.compile(
    r"[A-Za-z]:\\\\?(?:Users|Anaconda|Program)|/Users/\w+/|/opt/homebrew|device\(type='mps'\)|AttributeError: Can't get attribute"
)
_LINUX = re.compile(r"/usr/local/lib/python|/opt/conda/|/kaggle/|/content/|/home/\w+/")


@dataclass
class Outputs:
    """What was seen, with the cell it was seen in. Empty for a script and for a notebook saved without outputs."""

    epochs: dict[int, list[float]] = field(default_factory=dict)
    """Seconds of each epoch, by cell."""
    steps: dict[int, int] = field(default_factory=dict)
    """Steps of an epoch, by cell."""
    passes: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Seconds and steps of the longest pass of Keras that is no epoch (`evaluate`, `predict`), by cell."""
    cells: dict[int, float] = field(default_factory=dict)
    """Seconds of a whole cell."""
    images: int | None = None
    gpu: str = ""
    on_cpu: bool = False
    cores: int | None = None
    memory: str = ""
    spawns: bool = False
    """The notebook ran on Windows or macOS, where loader processes are spawned."""
    on_linux: bool = False

    def epoch_s(self, cell: int | None = None) -> float | None:
        """Seconds of a typical epoch in one cell, or in the longest training of the notebook."""
        if cell is not None:
            found = self.epochs.get(cell)
            return sorted(found)[len(found) // 2] if found else None
        some = [self.epoch_s(number) for number in self.epochs]
        return max((one for one in some if one is not None), default=None)

    def training_s(self, cell: int | None = None) -> float | None:
        """Seconds of all epochs in one cell, or of the longest training; the time of the cell where no epoch is shown."""
        if cell is not None:
            return sum(self.epochs[cell]) if cell in self.epochs else self.cells.get(cell)
        return max((sum(found) for found in self.epochs.values()), default=None)


def read_outputs(source: SourceFile) -> Outputs:
    """The outputs of all cells, read once."""
    seen = Outputs()
    for cell in source.cells:
        if cell.kind != "code" or cell.number is None:
            continue
        if cell.seconds is not None and cell.seconds > 0:
            seen.cells[cell.number] = cell.seconds
        if cell.outputs:
            _read_cell(seen, cell.number, cell)
    return seen


def _read_cell(seen: Outputs, number: int, cell: Cell) -> None:
    text = cell.outputs
    epochs = list(_epoch_times(text))
    if epochs:
        seen.epochs[number] = [seconds for seconds, _ in epochs]
        seen.steps[number] = max(steps for _, steps in epochs)
    elif bars := [(_keras_seconds(found["time"]), int(found["steps"])) for found in _KERAS.finditer(text)]:
        seen.passes[number] = max(bars)
    if number not in seen.cells and (wall := _WALL.search(text)):
        seen.cells[number] = _clock(wall)
    for bar in _HUGGING_FACE.finditer(text):
        seen.epochs[number] = _equal(_hms(bar["past"]) + _hms(bar["left"] or "0"), int(bar["epochs"]))
    if done := _YOLO.search(text):
        seen.epochs[number] = _equal(float(done["hours"]) * 3600, int(done["epochs"]))
    if whole := _TRAINING_TIME.search(text):
        total = int(whole["h"] or 0) * 3600 + int(whole["m"]) * 60 + float(whole["s"])
        count = max((int(n) for n in _EPOCH_LINE.findall(text)), default=0)
        seen.epochs.setdefault(number, _equal(total, count))
    elif number not in seen.epochs and number in seen.cells and (count := len(set(_EPOCH_LINE.findall(text)))) > 1:
        seen.epochs[number] = _equal(seen.cells[number], count)
    found_in_words = False
    for sign in _IMAGES:
        found = [int(value) for value in sign.findall(text)]
        found_in_words = found_in_words or bool(found)
        if found and (seen.images is None or sign is _IMAGES[0]):
            seen.images = max(seen.images or 0, *found)
    if not found_in_words and (counts := list(_printed_counts(cell))):
        seen.images = max(seen.images or 0, *counts)
    if gpu := _GPU.search(text):
        seen.gpu = seen.gpu or (gpu[1] or "GPU").strip()
    seen.on_cpu = seen.on_cpu or bool(_CPU.search(text)) or bool(_NO_CUDA.search(text))
    if cores := _WORKERS.search(text):
        seen.cores = int(cores[1])
    if memory := _MEMORY.search(text):
        seen.memory = memory[0]
    seen.spawns = seen.spawns or bool(_SPAWN.search(text))
    seen.on_linux = seen.on_linux or bool(_LINUX.search(text))


def _equal(seconds: float, epochs: int) -> list[float]:
    """The same time for each epoch; a text may show any number of them."""
    count = min(max(1, epochs), 10_000)
    return [seconds / count] * count


def _printed_counts(cell: Cell) -> Iterator[int]:
    """Lengths of data sets that were printed, in any language: `print(f"… {len(train_set)}")`, `print("…", len(train_set))`."""
    for call in ast.walk(cell.tree) if cell.tree is not None and "print" in cell.text and "len(" in cell.text else ():
        match call:
            case (
                ast.Call(func=ast.Name(id="print"), args=[ast.JoinedStr(values=parts)])
                | ast.Call(func=ast.Name(id="print"), args=parts)
            ):
                pass
            case _:
                continue
        for before, part in pairwise(parts):
            counted = part.value if isinstance(part, ast.FormattedValue) else part
            match before, counted:
                case ast.Constant(value=str(words)), ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                    sign = re.compile(re.escape(words.strip()) + r"\s*(\d+)\b")
                    if words.strip() and _DATA_SETS.search(name) and (found := sign.search(cell.outputs)):
                        yield int(found[1])


def _epoch_times(text: str) -> Iterator[tuple[float, int]]:
    """Seconds and steps of each epoch that Keras, tqdm or a print shows; the first kind that is there counts."""
    keras = [(_keras_seconds(found["time"]), int(found["steps"])) for found in _KERAS.finditer(text)]
    keras = keras or [(float(found["time"]), int(found["steps"])) for found in _KERAS_PLAIN.finditer(text)]
    if keras and "poch" in text:
        yield from keras
        return
    printed = [(int(found["min"] or 0) * 60 + float(found["s"]), 0) for found in _EPOCH_TIME.finditer(text)]
    if len(printed) < 2 and "train_loss" in text:
        printed = [(_hms(found["time"]), 0) for found in _FASTAI_ROW.finditer(text)]
    if len(printed) > 1:
        yield from printed
        return
    bars = [(_hms(found["time"]), int(found["n"])) for found in _TQDM.finditer(text)]
    bars = bars or [(_hms(found["past"]) + _hms(found["left"]), int(found["steps"])) for found in _TQDM_LEFT.finditer(text)]
    if not bars and "poch" in text:
        bars = [(_left_s(found), int(found["steps"])) for found in _KERAS_LEFT.finditer(text) if found["n"] != found["steps"]]
    most = max((steps for _, steps in bars), default=0)
    yield from ((seconds, steps) for seconds, steps in bars if steps == most and most > 1)


def _left_s(bar: re.Match[str]) -> float:
    """The seconds of an epoch by the pace of its bar at the moment it was interrupted."""
    done, steps = int(bar["n"]), int(bar["steps"])
    return _hms(bar["left"].rstrip("s")) * steps / max(1, steps - done)


def _keras_seconds(text: str) -> float:
    """`45`, `1:23`, `2m 3`: the times Keras writes."""
    return _hms(text.strip()) if ":" in text else float(re.sub(r"\D", "", text) or 0)


def _hms(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds


def _clock(found: re.Match[str]) -> float:
    scale = {"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "s": 1.0}[found["unit"]]
    return int(found["d"] or 0) * 86400 + int(found["h"] or 0) * 3600 + int(found["m"] or 0) * 60 + float(found["s"]) * scale
