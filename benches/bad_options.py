"""Every option of the table of settings with values that nobody can mean, and the options that stand outside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from bad_case import ENCODER, BadCase, Due, Make, Stage

NO_NUMBERS = ("nan", "inf", "many", "")
HOSTILE_TEXTS = ("", "x" * 20_000, "\x1b[31m", "../../../etc")
_WORDS = {
    "fit": ["fit", "photos", "--dry-run"],
    "train": ["train", "photos"],
    "check": ["check", "photos"],
    "extract": ["extract", "photos", "--dry-run"],
    "tile": ["tile", "SCENES", "--dry-run"],
    "segment_train": ["segment", "train", "SCENES", "--mask", "red > green", "TINY"],
    "doctor": ["doctor"],
    "budget": ["budget"],
    "profile_train": ["profile", "train", "photos"],
}
_ANY_NUMBER = {"seed"}
"""Settings that take every whole number."""


def _typed(words: list[str], *more: str) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        stage.copy_photos(folder, per_class=4)
        stage.copy_workspace(folder)
        (folder / "train.py").write_text("print('trained')\n")
        (folder / "t.json").write_text('{"traceEvents": []}')
        (folder / "n.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
        small = [
            "--encoder",
            ENCODER,
            "--weights",
            str(stage.weights),
            "--engine",
            "torch",
            "--epochs",
            "1",
            "--patch-size",
            "64",
        ]
        meant = {"SCENES": [str(stage.scenes)], "TINY": small}
        return [part for word in (*words, *more) for part in meant.get(word, [word])]

    return make


def _is_numeric(kind: Any) -> bool:
    return {int, float} & {
        kind,
        *get_args(kind),
        *(part for one in get_args(kind) for part in get_args(one)),
    } != set() and bool not in (
        kind,
        *get_args(kind),
    )


def _of_settings() -> Iterator[BadCase]:
    from unchoke.core.settings import OPTIONS, TYPES, flag

    for name, option in OPTIONS.items():
        if name == "data":
            continue
        command = next(one for one in _WORDS if one in option.commands)
        kind = TYPES[name].__origin__
        words = [*_WORDS[command], *([] if command in ("doctor", "budget") else ["--out", "new"])]
        if _is_numeric(kind):
            values = [*NO_NUMBERS, "-1", "9" * 30]
            for value in values:
                free = name in _ANY_NUMBER and value in ("-1", "9" * 30)
                due: Due = "handled" if free or (name, value) in _MEANT else "refused"
                yield BadCase("options", f"{flag(name)} {value[:12]!r}, {command}", _typed(words, f"{flag(name)}={value}"), due)
        elif bool in (kind, *get_args(kind)):
            yield BadCase("options", f"{flag(name)} 'yes', {command}", _typed(words, f"{flag(name)}=yes"), "refused")
        else:
            for value in HOSTILE_TEXTS:
                yield BadCase(
                    "options", f"{flag(name)} {value[:12]!r}, {command}", _typed(words, f"{flag(name)}={value}"), "handled"
                )


_MEANT = {("cut", "-1"), ("strides", "4")}
_OUTSIDE: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "tune --minutes": (["tune", "photos", "--out", "new", "--minutes"], (*NO_NUMBERS, "-1", "0", "1e30")),
    "notebook --timeout": (["notebook", "n.ipynb", "--timeout"], (*NO_NUMBERS, "-1", "0", "1e30")),
    "profile --steps": (["profile", "--steps"], (*NO_NUMBERS, "-1", "0", "9" * 30)),
    "profile --seconds": (["profile", "--seconds"], (*NO_NUMBERS, "-1", "0", "1e30")),
    "profile tile --windows": (["profile", "tile", "SCENES", "--out", "new", "--windows"], (*NO_NUMBERS, "-1", "0", "9" * 30)),
    "segment predict --overlap": (
        ["segment", "predict", "exp_1", "SCENES", "--out", "out", "--overlap"],
        (*NO_NUMBERS, "-1", "9" * 30),
    ),
    "segment predict --memory": (["segment", "predict", "exp_1", "SCENES", "--out", "out", "--memory"], NO_NUMBERS),
    "extract --job": (["extract", "photos", "--out", "out", "--job"], ("", "nowhere", "../x", "9" * 30)),
    "runs best --metric": (["runs", "best", "--out", "out", "--metric"], ("", "nothing", "x" * 5000)),
    "runs show": (["runs", "show", "--out", "out"], ("", "nowhere", "../../x", "-5", "9" * 30, "\x1b[31m")),
    "evaluate": (["evaluate", "--out", "out"], ("", "nowhere", "../../x", "/dev/null", "/dev/zero")),
    "presets show": (["presets", "show"], ("", "nowhere", "/dev/null", "/etc/passwd")),
    "lint --select": (["lint", "train.py", "--select"], ("", "nothing", "x" * 5000)),
    "lint --format": (["lint", "train.py", "--format"], ("", "xml")),
    "lint": (["lint"], ("", "nowhere.py", "/dev/null", "\x1b[31m")),
    "profile view": (["profile", "view"], ("", "nowhere.json", "/dev/null", "photos")),
    "profile view --against": (["profile", "view", "t.json", "--against"], ("", "nowhere.json", "/dev/null")),
    "notebook": (["notebook"], ("", "nowhere.ipynb", "/dev/null", "photos")),
    "notebook --kernel": (["notebook", "n.ipynb", "--run", "--kernel"], ("", "nobody", "../x")),
    "notebook --cwd": (["notebook", "n.ipynb", "--run", "--cwd"], ("nowhere", "n.ipynb", "/dev/null")),
    "predict --inputs": (["predict", "exp_1", "photos", "--out", "out", "--inputs"], ("", "nowhere.csv", "/dev/null", "photos")),
    "predict --device": (
        ["predict", "exp_1", "photos", "--out", "out", "--device"],
        ("", "quantum", "cuda:99", "cuda:-1", "mps"),
    ),
    "fit --device": (["fit", "photos", "--out", "new", "--device"], ("quantum", "cuda:99", "cuda:-1", "cpu:5")),
    "fit DATA": (["fit", "--out", "new"], ("", "nowhere", "/dev/null", "/dev/zero", "/proc", "\x1b[31m", "x" * 5000)),
    "check DATA": (["check", "--out", "new"], ("", "nowhere", "/dev/null", "/dev/zero", "/proc/self/fd", "x" * 5000)),
    "tile DATA": (["tile", "--out", "new"], ("", "nowhere", "/dev/null", "/dev/zero", "photos", "x" * 5000)),
    "predict IMAGES": (["predict", "exp_1", "--out", "out"], ("", "nowhere", "/dev/null", "/dev/zero", "/dev/tty", "x" * 5000)),
    "demo": (["demo", "--out", "new"], ("", "music")),
    "runs compare": (["runs", "compare", "--out", "out", "exp_1"], ("", "nowhere")),
    "runs export": (["runs", "export", "exp_1", "--out", "out"], ("out", "/dev/null", "/dev/null/x", "/proc/x", "x" * 300)),
    "--nothing": ([], ("--nothing", "nothing", "fitt", "")),
}
_FINE = {
    ("tile DATA", "photos"),
    ("lint", "/dev/null"),
    ("predict --device", "mps"),
    ("predict IMAGES", "/dev/null"),
    ("extract --job", ""),
}


def cases() -> Iterator[BadCase]:
    yield from _of_settings()
    for name, (words, values) in _OUTSIDE.items():
        script = ["--", "python", "train.py"] if name.startswith("profile --") else []
        for value in values:
            due: Due = "handled" if (name, value) in _FINE or value == "" else "refused"
            yield BadCase("options", f"{name} {value[:16]!r}", _typed(words, value, *script), due)
