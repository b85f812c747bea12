"""Places to work in that are none, files that mean harm, and limits of the system: met by every command that touches them."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bad_case import BadCase, Due, Make, Stage, pipe, sparse
from bad_images import evil_pickle

MB = 1_000_000


def _in_photos(folder: Path) -> str:
    return str(folder / "photos" / "out")


# Name: (what is done in the case's folder, what is typed after --out)
PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda folder: (folder / "out").write_text("mine"), "out"),
    "below a file": (lambda folder: (folder / "file").write_text("mine"), "file/out"),
    "a pipe": (lambda folder: pipe(folder / "out"), "out"),
    "a device": (lambda folder: None, "/dev/null"),
    "below a device": (lambda folder: None, "/dev/null/out"),
    "a link to nothing": (lambda folder: (folder / "out").symlink_to("gone/deeper"), "out"),
    "a link to itself": (lambda folder: (folder / "out").symlink_to("out"), "out"),
    "a name too long": (lambda folder: None, "x" * 300),
    "a path too long": (lambda folder: None, "/".join(["x" * 200] * 30)),
    "in /proc": (lambda folder: None, "/proc/nowhere"),
    "among the photos": (lambda folder: None, "photos/out"),
    "an empty folder": (lambda folder: (folder / "out").mkdir(), "out"),
    "a name of escapes": (lambda folder: None, "\x1b[31mred\x1b[0m"),
    "a name like an option": (lambda folder: None, "./--out"),
}
_FRESH: dict[str, Callable[[Stage], list[str]]] = {
    "check": lambda stage: ["check", "photos"],
    "fit": lambda stage: ["fit", "photos", *stage.tiny],
    "extract": lambda stage: ["extract", "photos", *stage.tiny[:8]],
    "tile": lambda stage: ["tile", str(stage.scenes), "--tile-size", "64"],
    "tune": lambda stage: ["tune", "photos", "--dry-run"],
}
_LATER: dict[str, list[str]] = {
    "runs list": ["runs", "list"],
    "runs show": ["runs", "show"],
    "runs best": ["runs", "best"],
    "report": ["report"],
    "evaluate": ["evaluate"],
    "predict": ["predict", "exp_1", "photos"],
    "runs export": ["runs", "export", "exp_1", "exported"],
    "runs watch": ["runs", "watch"],
}
_SOUND_PLACES = ("an empty folder", "a link to nothing", "a name of escapes", "a name like an option")


def _placed(words: Callable[[Stage], list[str]], prepare: Callable[[Path], object], out: str) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        stage.copy_photos(folder)
        prepare(folder)
        return [*words(stage), "--out", out]

    return make


def _of_places() -> Iterator[BadCase]:
    for place, (prepare, out) in PLACES.items():
        for command, words in _FRESH.items():
            among = place == "among the photos" and command == "tile"
            due: Due = "handled" if place in _SOUND_PLACES or among else "refused"
            yield BadCase("workspaces", f"--out {place}, {command}", _placed(words, prepare, out), due)
        for command, typed in _LATER.items():
            make = _placed(lambda stage, typed=typed: typed, prepare, out)  # type: ignore[misc]
            yield BadCase("workspaces", f"--out {place}, {command}", make, "handled" if command == "runs watch" else "refused")


# What is named for a result: (what is done in the case's folder, what is typed, what is due)
TARGETS: dict[str, tuple[Callable[[Path], object], str, Due]] = {
    "a folder": (lambda folder: (folder / "to").mkdir(), "to", "refused"),
    "a link to a file": (lambda folder: ((folder / "real").write_text("x"), (folder / "to").symlink_to("real")), "to", "fine"),
    "a link to nothing": (lambda folder: (folder / "to").symlink_to("later"), "to", "fine"),
    "a link to itself": (lambda folder: (folder / "to").symlink_to("to"), "to", "refused"),
    "a pipe nobody reads": (lambda folder: pipe(folder / "to"), "to", "refused"),
    "/dev/full": (lambda folder: None, "/dev/full", "refused"),
    "/dev/zero": (lambda folder: None, "/dev/zero", "refused"),
    "/dev/null": (lambda folder: None, "/dev/null", "fine"),
    "below a file": (lambda folder: (folder / "file").write_text("x"), "file/to", "refused"),
    "a name too long": (lambda folder: None, "x" * 300, "refused"),
    "in /proc": (lambda folder: None, "/proc/nowhere/to", "refused"),
    "an empty name": (lambda folder: None, "", "refused"),
    "what it reads": (lambda folder: None, "SOURCE", "refused"),
}
_NOTEBOOK = {
    "cells": [{"cell_type": "code", "source": "x = 1", "metadata": {}, "outputs": []}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
_TRACE = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 10, "dur": 5}]}
_WRITING: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "predict --to": (
        "photos/birch/b000.jpg",
        lambda to: ["predict", "exp_1", "photos/birch/b000.jpg", "--out", "out", "--to", to],
    ),
    "lint --output": ("train.py", lambda to: ["lint", "train.py", "--output", to]),
    "notebook --html": ("n.ipynb", lambda to: ["notebook", "n.ipynb", "--html", to]),
    "profile view --to": ("t.json", lambda to: ["profile", "view", "t.json", "--to", to]),
}


def _written(source: str, words: Callable[[str], list[str]], prepare: Callable[[Path], object], to: str) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        stage.copy_photos(folder)
        if words("")[0] == "predict":
            stage.copy_workspace(folder)
        (folder / "train.py").write_text("import torch\nx = torch.zeros(1)\n")
        (folder / "n.ipynb").write_text(json.dumps(_NOTEBOOK))
        (folder / "t.json").write_text(json.dumps(_TRACE))
        prepare(folder)
        return words(source if to == "SOURCE" else to)

    return make


def _of_targets() -> Iterator[BadCase]:
    for name, (prepare, to, due) in TARGETS.items():
        for command, (source, words) in _WRITING.items():
            into = name == "a folder" and command in ("notebook --html", "profile view --to")
            empty = name == "an empty name"
            expected: Due = "fine" if into else "handled" if empty else due
            yield BadCase("workspaces", f"{command} {name}", _written(source, words, prepare, to), expected)


def _safetensors(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


# Weights: what the file holds
WEIGHTS: dict[str, Callable[[Path, Stage], object]] = {
    "of no bytes": lambda file, stage: file.write_bytes(b""),
    "of text": lambda file, stage: file.write_text("weights"),
    "that are a pickle": lambda file, stage: file.write_bytes(evil_pickle()),
    "cut short": lambda file, stage: file.write_bytes(stage.weights.read_bytes()[:5000]),
    "with a header of 8 exabytes": lambda file, stage: file.write_bytes(struct.pack("<Q", 2**63 - 1) + bytes(100)),
    "with a header of brackets": lambda file, stage: file.write_bytes(_safetensors(b"[" * 100_000)),
    "of no tensors": lambda file, stage: file.write_bytes(_safetensors(b"{}")),
    "of another network": lambda file, stage: _save({"conv.weight": (3, 3)}, file),
    "of nan": lambda file, stage: _save(None, file, stage),
    "that are a folder": lambda file, stage: file.mkdir(),
    "that are a pipe": lambda file, stage: pipe(file),
    "that are /dev/zero": lambda file, stage: file.symlink_to("/dev/zero"),
    "that are not there": lambda file, stage: None,
    "of 8 GB of nothing": lambda file, stage: sparse(file, 8_000_000_000),
}


def _save(shapes: dict[str, tuple[int, ...]] | None, file: Path, stage: Stage | None = None) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    if shapes is not None:
        save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, file)
    elif stage is not None:
        spoilt = {
            name: torch.full_like(value, float("nan")) if value.is_floating_point() else value
            for name, value in load_file(stage.weights).items()
        }
        save_file(spoilt, file)


def _weighed(name: str, write: Callable[[Path, Stage], object], command: str) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        stage.copy_photos(folder)
        write(folder / name, stage)
        if command == "predict":
            return ["predict", "exp_1", "photos/birch", "--weights", name, "--out", str(stage.copy_workspace(folder))]
        typed = stage.tiny
        typed[typed.index("--weights") + 1] = name
        return ["fit", "photos", *typed, "--out", "out"]

    return make


# Presets: what the file holds, and what is due
PRESETS: dict[str, tuple[str, Due]] = {
    "of text": ("no toml", "refused"),
    "of no bytes": ("", "handled"),
    "of unknown settings": ("speed = 'fast'\n", "refused"),
    "that names data": ("data = '/etc'\n", "refused"),
    "that names a preset": ("preset = 'x'\n", "refused"),
    "of wrong types": ("epochs = 'many'\n", "refused"),
    "of nan": ("lr = nan\n", "refused"),
    "of infinity": ("lr = inf\n", "refused"),
    "of a long number": ("epochs = " + "9" * 5000 + "\n", "refused"),
    "of an impossible cut": ("cut = '-9999'\n", "refused"),
    "of an encoder nobody knows": ("encoder = 'nobody_knows_this'\n", "refused"),
    "of a device nobody has": ("device = 'quantum'\n", "refused"),
    "of columns on folders": ("label = 'species'\n", "refused"),
    "of an input of 17 pixels and strides": ("strides = [3, 5]\n", "refused"),
    "nested deep": ("x = " + "[" * 5000 + "]" * 5000 + "\n", "refused"),
}


def _preset(content: str) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        stage.copy_photos(folder)
        (folder / "p.toml").write_text(content)
        return ["fit", "photos", "--preset", "p.toml", "--dry-run", "--out", "out"]

    return make


def _notebook(**changes: Any) -> str:
    return json.dumps({**_NOTEBOOK, **changes})


# Files that are read as code, notebooks or traces
CODE: dict[str, tuple[str, bytes | None]] = {
    "no bytes": ("f", b""),
    "zeros": ("f", bytes(3000)),
    "random bytes": ("f", bytes(range(256)) * 9),
    "utf-16": ("f", "x = 1\n".encode("utf-16")),
    "brackets": ("f", b"(" * 50_000),
    "a line of a megabyte": ("f", b"x = '" + b"a" * MB + b"'\n"),
    "nested deep": ("f", b"[" * 20_000 + b"]" * 20_000),
    "cells of numbers": ("f", _notebook(cells=[1, None, "x"]).encode()),
    "cells of nothing": ("f", _notebook(cells=None).encode()),
    "sources of numbers": ("f", _notebook(cells=[{"cell_type": "code", "source": 7}]).encode()),
    "events of numbers": ("f", b'{"traceEvents": [1, null, "x", {}, {"ph": "X", "ts": "soon", "dur": -1}]}'),
    "events of nan": ("f", b'{"traceEvents": [{"ph": "X", "name": "a", "ts": NaN, "dur": Infinity, "pid": 1, "tid": 1}]}'),
    "a list": ("f", b"[]"),
    "a number": ("f", b"7"),
    "a pipe": ("f", None),
}
_READING = {
    "lint": (".py", ["lint"]),
    "lint a notebook": (".ipynb", ["lint"]),
    "notebook": (".ipynb", ["notebook"]),
    "profile view": (".json", ["profile", "view"]),
}


def _code(ending: str, words: list[str], content: bytes | None) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        file = folder / f"f{ending}"
        if content is None:
            pipe(file)
        else:
            file.write_bytes(content)
        return [*words, file.name]

    return make


def _of_files() -> Iterator[BadCase]:
    for name, write in WEIGHTS.items():
        for ending in ("pt", "safetensors"):
            make = _weighed(f"w.{ending}", write, "fit")
            yield BadCase("hostile files", f"weights {name}, .{ending}, fit", make, "handled" if name == "of nan" else "refused")
        yield BadCase("hostile files", f"weights {name}, predict", _weighed("w.safetensors", write, "predict"), "refused")
    for name, (content, due) in PRESETS.items():
        yield BadCase("hostile files", f"a preset {name}", _preset(content), due)
    for name, (_, content) in CODE.items():
        for command, (ending, words) in _READING.items():
            yield BadCase("hostile files", f"{name}, {command}", _code(ending, words, content), "handled")


LIMITED: dict[str, Callable[[Stage, Path], list[str]]] = {
    "check": lambda stage, folder: ["check", "photos", "--out", "out"],
    "fit": lambda stage, folder: ["fit", "photos", *stage.tiny, "--out", "out"],
    "fit --cut none": lambda stage, folder: [
        "fit",
        "photos",
        *_headless(stage),
        "--cut",
        "none",
        "--cache",
        "disk",
        "--out",
        "out",
    ],
    "tile": lambda stage, folder: ["tile", str(stage.scenes), "--tile-size", "64", "--out", "out"],
    "predict": lambda stage, folder: ["predict", "exp_1", "photos", "--to", "p.csv", "--out", str(stage.copy_workspace(folder))],
    "runs export": lambda stage, folder: ["runs", "export", "exp_1", "e", "--out", str(stage.copy_workspace(folder))],
    "runs list": lambda stage, folder: ["runs", "list", "--out", str(stage.copy_workspace(folder))],
    "doctor": lambda stage, folder: ["doctor"],
}


def _headless(stage: Stage) -> list[str]:
    words = stage.tiny
    place = words.index("--head")
    return words[:place] + words[place + 2 :]


def _limited(words: Callable[[Stage, Path], list[str]]) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        stage.copy_photos(folder)
        return words(stage, folder)

    return make


def _of_limits() -> Iterator[BadCase]:
    for command, words in LIMITED.items():
        make = _limited(words)
        for size in (0, 1000, 20_000):
            yield BadCase(
                "limits",
                f"files of {size} bytes, {command}",
                make,
                "handled",
                limits={"RLIMIT_FSIZE": size},
            )
        for number in (16, 48):
            yield BadCase("limits", f"{number} open files, {command}", make, "handled", limits={"RLIMIT_NOFILE": number})
        for more in (50, 500):
            yield BadCase("limits", f"{more} MB more addresses, {command}", make, "handled", limits={"RLIMIT_AS": more * MB})
        yield BadCase("limits", f"stdout full, {command}", make, "refused", "stdout", stdout="/dev/full")
        yield BadCase("limits", f"stdout closed, {command}", make, "refused", "stdout", stdout="closed")
        for size in (40_000, 400_000, 2 * MB):
            disk = {"in_namespace": True, "disk_bytes": size + 600_000}
            yield BadCase("limits", f"a disk with {size} bytes left, {command}", _on_disk(words, size), "handled", **disk)  # type: ignore[arg-type]
    yield from _of_devices()


def _on_disk(words: Callable[[Stage, Path], list[str]], left_bytes: int) -> Make:
    """Photos and a workspace on a small disk, the rest of which is filled until so much is left."""

    def make(stage: Stage, folder: Path) -> list[str]:
        typed: list[str] = []
        stage.copy_photos(folder, per_class=4)
        try:
            typed = words(stage, folder)
        except OSError:  # a copy of the workspace did not fit: then the command meets half of one
            typed = ["runs", "list", "--out", "out"]
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        if free > left_bytes:
            (folder / "filler").write_bytes(bytes(free - left_bytes))
        return typed

    return make


def _of_devices() -> Iterator[BadCase]:
    """A node of a disk, made in a namespace of its own: whatever is written there must not become a file."""

    def node(folder: Path, kind: int) -> None:
        os.mknod(folder / "node", kind | 0o600, os.makedev(7, 250) if kind == 0o060000 else os.makedev(1, 5))

    for name, kind in {"a disk's node": 0o060000, "a device's node": 0o020000}.items():
        for command, (source, words) in _WRITING.items():
            make = _written(source, words, lambda folder, kind=kind: node(folder, kind), "node")  # type: ignore[misc]
            yield BadCase("limits", f"{command} {name}", make, "refused", "device", in_namespace=True)
        for command in ("check", "fit", "predict"):
            from bad_images import met_by

            met = met_by(command, lambda birch, kind=kind: (node(birch, kind), (birch / "node").rename(birch / "bad.jpg")))  # type: ignore[misc]
            yield BadCase("limits", f"{name} as a photo, {command}", met, "named", r"bad\.jpg", in_namespace=True)


def cases() -> Iterator[BadCase]:
    yield from _of_places()
    yield from _of_targets()
    yield from _of_files()
    yield from _of_limits()
