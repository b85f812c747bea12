"""Tables that are broken, contradict themselves or the files they name: each met by `check` and by a rehearsal of `fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bad_case import BadCase, Due, Make, Stage, pipe, sparse
from bad_images import picture

NUM = 30
Rows = Callable[[int], str]


def table(header: str = "id,label,group,height,width", row: Rows | None = None, *more: str, num: int = NUM) -> bytes:
    """A sound table, or one whose rows are written by `row`; `more` lines follow."""
    lines = [header, *((row or usual)(number) for number in range(num)), *more]
    return ("\n".join(lines) + "\n").encode()


def usual(number: int) -> str:
    return f"i{number},{'abc'[number % 3]},g{number},{number}.5,{number + 1}"


CLASSES = ("--id", "id", "--label", "label")
NUMBERS = ("--id", "id", "--target", "height")
BOTH = ("--id", "id", "--target", "height", "--target", "width")
_QUOTED = table(row=lambda number: f'"i{number}","{"abc"[number % 3]}","g""{number}",{number},{number}')
# Name: (what the file holds, how it is typed, what is due, what must be said)
TABLES: dict[str, tuple[bytes, tuple[str, ...], Due, str]] = {
    "empty": (b"", CLASSES, "refused", "zero rows"),
    "only a header": (table(num=0), CLASSES, "refused", "zero rows"),
    "no header": (b"i0,a\ni1,b\n", CLASSES, "refused", "column"),
    "zeros": (bytes(5000), CLASSES, "refused", ""),
    "random bytes": (bytes(range(256)) * 20, CLASSES, "refused", ""),
    "utf-16": (table().decode().encode("utf-16"), CLASSES, "named", "UTF-16"),
    "utf-8 with a mark": (b"\xef\xbb\xbf" + table(), CLASSES, "fine", ""),
    "latin-1": (table(row=lambda n: f"i{n},gr\xfc{n % 3},g,1,1").decode().encode("latin-1"), CLASSES, "named", "cp1252"),
    "windows' line ends": (table().replace(b"\n", b"\r\n"), CLASSES, "fine", ""),
    "old line ends": (table().replace(b"\n", b"\r"), CLASSES, "handled", ""),
    "semicolons": (table().replace(b",", b";"), CLASSES, "handled", ""),
    "tabs": (table().replace(b",", b"\t"), CLASSES, "handled", ""),
    "quotes": (_QUOTED, CLASSES, "fine", ""),
    "a quote that never closes": (table("id,label,group,height,width", None, 'i1,"a,b,1,1'), CLASSES, "handled", ""),
    "rows too short": (table("id,label,group,height,width", None, "i1"), CLASSES, "handled", ""),
    "rows too long": (table("id,label,group,height,width", None, "i1,a,g,1,1,1,1,1"), CLASSES, "handled", ""),
    "the same column twice": (table("id,label,label,height,width"), CLASSES, "handled", ""),
    "columns without names": (table(",,,,"), CLASSES, "refused", ""),
    "a column that is not there": (table(), ("--id", "id", "--label", "species"), "refused", "species"),
    "an id column that is not there": (table(), ("--id", "name", "--label", "label"), "refused", "name"),
    "a group that is not there": (table(), (*CLASSES, "--group", "patient"), "refused", "patient"),
    "a split that is not there": (table(), (*CLASSES, "--split", "part"), "refused", "part"),
    "split words nobody knows": (table(), (*CLASSES, "--split", "group"), "refused", "split"),
    "an input that is not there": (table(), (*CLASSES, "--input", "ndvi"), "refused", "ndvi"),
    "an input of words": (table(), (*CLASSES, "--input", "group"), "named", "group"),
    "label and target at once": (table(), (*CLASSES, "--target", "height"), "refused", ""),
    "the id as label": (table(), ("--id", "id", "--label", "id"), "named", "not-classes|hardly classes"),
    "nothing said of columns": (table(), (), "handled", ""),
    "files that are not there": (table(row=lambda n: f"x{n},a,g,1,1"), CLASSES, "refused", "x0"),
    "one file that is not there": (table("id,label,group,height,width", None, "x99,a,g,1,1"), CLASSES, "named", "x99"),
    "half of the rows": (table(num=NUM // 2), CLASSES, "named", "no row names|files-without-row"),
    "an id twice": (table("id,label,group,height,width", None, "i0,a,g,1,1"), CLASSES, "named", "more than one row|duplicate"),
    "an id twice, labelled otherwise": (table("id,label,group,height,width", None, "i0,b,g,1,1"), CLASSES, "named", "i0"),
    "a label left empty": (table(row=lambda n: f"i{n},{'' if n == 4 else 'abc'[n % 3]},g{n},1,1"), CLASSES, "named", "label"),
    "every label empty": (table(row=lambda n: f"i{n},,g{n},1,1"), CLASSES, "refused", ""),
    "one class": (table(row=lambda n: f"i{n},a,g{n},1,1"), CLASSES, "named", "one-class|nothing to tell apart"),
    "a class of its own each": (table(row=lambda n: f"i{n},c{n},g{n},1,1"), CLASSES, "named", "classes"),
    "labels told apart by case": (table(row=lambda n: f"i{n},{('red', 'RED', 'blue')[n % 3]},g{n},1,1"), CLASSES, "named", "RED"),
    "labels told apart by space": (
        table(row=lambda n: f"i{n},{('red', 'red ', 'blue')[n % 3]},g{n},1,1"),
        CLASSES,
        "handled",
        "",
    ),
    "RED beside 'red '": (table(row=lambda n: f"i{n},{('RED', 'red ', 'blue')[n % 3]},g{n},1,1"), CLASSES, "named", "RED"),
    "a single group": (table(row=lambda n: f"i{n},{'abc'[n % 3]},g,1,1"), (*CLASSES, "--group", "group"), "named", "group"),
    "two groups": (table(row=lambda n: f"i{n},{'abc'[n % 3]},g{n % 2},1,1"), (*CLASSES, "--group", "group"), "handled", ""),
    "groups left empty": (table(row=lambda n: f"i{n},{'abc'[n % 3]},,1,1"), (*CLASSES, "--group", "group"), "handled", ""),
    "all on one side": (
        table(row=lambda n: f"i{n},{'abc'[n % 3]},train,1,1"),
        (*CLASSES, "--split", "group"),
        "named",
        "val|test",
    ),
    "no train": (table(row=lambda n: f"i{n},{'abc'[n % 3]},test,1,1"), (*CLASSES, "--split", "group"), "named", "train"),
    "a group on both sides": (
        table("id,label,group,split,width", lambda n: f"i{n},{'abc'[n % 3]},g{n % 5},{('train', 'val', 'test')[n % 3]},1"),
        (*CLASSES, "--group", "group", "--split", "split"),
        "named",
        "leak|several sides",
    ),
    "a target of words": (table(row=lambda n: f"i{n},a,g,tall,1"), NUMBERS, "refused", "height"),
    "a target with gaps": (table(row=lambda n: f"i{n},a,g,{'' if n == 3 else n},1"), NUMBERS, "named", "height"),
    "a target with nan": (table(row=lambda n: f"i{n},a,g,{'nan' if n == 3 else n},1"), NUMBERS, "named", "height"),
    "a target with inf": (table(row=lambda n: f"i{n},a,g,{'inf' if n == 3 else n},1"), NUMBERS, "named", "height"),
    "a target of 1e308": (table(row=lambda n: f"i{n},a,g,{'1e308' if n == 3 else n},1"), NUMBERS, "handled", ""),
    "a target of 1e400": (table(row=lambda n: f"i{n},a,g,{'1e400' if n == 3 else n},1"), NUMBERS, "named", "height"),
    "decimal commas": (table(row=lambda n: f'i{n},a,g,"{n},5",1'), NUMBERS, "named", "height"),
    "a constant target": (table(row=lambda n: f"i{n},a,g,7,{n}"), NUMBERS, "named", "height"),
    "one constant target of two": (table(row=lambda n: f"i{n},a,g,7,{n}"), BOTH, "named", "height"),
    "negatives with --positive": (table(row=lambda n: f"i{n},a,g,{n - 9},1"), (*NUMBERS, "--positive"), "named", "negative"),
    "a sum that is none": (
        table("id,height,width,total", lambda n: f"i{n},{n},{n + 1},{5 * n + 40}"),
        ("--id", "id", "--target", "height", "--target", "width", "--target", "total", "--sum", "total=height+width"),
        "named",
        "total",
    ),
    "a sum of what is not there": (table(), (*BOTH, "--sum", "total=height+depth"), "refused", "depth|total"),
    "a sum of itself": (table(), (*BOTH, "--sum", "height=height+width"), "refused", ""),
    "a sum of labels": (table(), (*CLASSES, "--sum", "a=b+c"), "refused", ""),
    "a weight for nobody": (table(), (*NUMBERS, "--target-weight", "depth=2"), "refused", "depth"),
    "weights of nothing": (table(), (*NUMBERS, "--target-weight", "height=0"), "handled", ""),
    "a long table of another form": (table(), ("--id", "id", "--long", "name,value"), "refused", "name"),
    "a cell of 3 MB": (table("id,label,group,height,width", None, "i1," + "x" * 3_000_000 + ",g,1,1"), CLASSES, "named", ""),
    "a million columns": (b",".join(b"c%d" % n for n in range(100_000)) + b"\n", CLASSES, "refused", ""),
    "paths that climb": (
        table(row=lambda n: f"../../../../etc/passwd{n},a,g,1,1"),
        ("--path", "id", "--label", "label"),
        "refused",
        "",
    ),
    "formulas": (table(row=lambda n: f"i{n},=cmd|'/C calc'!A{n % 3},g{n},1,1"), CLASSES, "handled", ""),
    "control characters": (table(row=lambda n: f"i{n},\x1b[31m{n % 3},g{n},1,1"), CLASSES, "handled", ""),
    "zero bytes in cells": (table(row=lambda n: f"i{n},a\0{n % 3},g{n},1,1"), CLASSES, "handled", ""),
    "folds beyond the rows": (table(), (*CLASSES, "--folds", "500"), "refused", ""),
    "a fold that is not there": (table(), (*CLASSES, "--folds", "3", "--fold", "7"), "refused", ""),
    "shares beyond all": (table(), (*CLASSES, "--val-share", "0.6", "--test-share", "0.6"), "refused", ""),
    "an expectation nobody meets": (table(), (*CLASSES, "--expect", "600x450 rgb"), "named", "600x450"),
}
OTHERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a pipe": ("t.csv", pipe),
    "a folder": ("t.csv", Path.mkdir),
    "/dev/zero": ("t.csv", lambda file: file.symlink_to("/dev/zero")),
    "a link to nothing": ("t.csv", lambda file: file.symlink_to("gone.csv")),
    "8 GB of nothing": ("t.csv", lambda file: sparse(file, 8_000_000_000)),
    "text as parquet": ("t.parquet", lambda file: file.write_bytes(table())),
    "a cut parquet": ("t.parquet", lambda file: _parquet(file, 0.5)),
    "a sound parquet": ("t.parquet", lambda file: _parquet(file, 1.0)),
    "a spreadsheet": ("t.xlsx", lambda file: file.write_bytes(b"PK\3\4" + bytes(500))),
    "an unknown ending": ("t.dat", lambda file: file.write_bytes(table())),
    "no ending": ("t", lambda file: file.write_bytes(table())),
    "a picture": ("t.jpg", lambda file: picture().save(file)),
    "broken gzip": ("t.csv.gz", lambda file: file.write_bytes(b"\x1f\x8b" + bytes(100))),
    "json": ("t.json", lambda file: file.write_text("[" * 100_000)),
}


def _parquet(file: Path, share: float) -> None:
    import io

    import pandas as pd

    stream = io.BytesIO()
    pd.read_csv(io.BytesIO(table())).to_parquet(stream)
    file.write_bytes(stream.getvalue()[: int(share * len(stream.getvalue()))])


def _pictures(folder: Path) -> None:
    folder.mkdir()
    for number in range(NUM):
        picture(size=(24, 24), seed=number).save(folder / f"i{number}.jpg")


def typed(command: str, name: str, write: Callable[[Path], object], words: tuple[str, ...]) -> Make:
    def make(stage: Stage, folder: Path) -> list[str]:
        _pictures(folder / "pictures")
        write(folder / name)
        rehearsal = [*stage.tiny, "--dry-run"] if command == "fit" else []
        return [command, name, "--images", "pictures", *words, *rehearsal, "--out", "out"]

    return make


def cases() -> Iterator[BadCase]:
    for name, (content, words, due, says) in TABLES.items():
        for command in ("check", "fit"):
            make = typed(command, "t.csv", lambda file, content=content: file.write_bytes(content), words)  # type: ignore[misc]
            yield BadCase("tables", f"{name}, {command}", make, due, says)
    for name, (file, write) in OTHERS.items():
        due: Due = "fine" if name == "a sound parquet" else "handled" if name in ("no ending", "an unknown ending") else "refused"
        for command in ("check", "fit"):
            yield BadCase("tables", f"{name}, {command}", typed(command, file, write, CLASSES), due)
