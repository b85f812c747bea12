"""Files that are no pictures, broken ones, and odd ones that are sound: each among sound photos, met by three commands."""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bad_case import BadCase, Due, Make, Stage, pipe, sparse

Spoil = Callable[[Path], object]
"""Writes something to the path of a picture."""


def picture(*, size: tuple[int, int] = (40, 30), mode: str = "RGB", seed: int = 0) -> Any:
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encoded(kind: str = "JPEG", *, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    picture(size=size, mode=mode).save(stream, kind, **options)
    return stream.getvalue()


def png(width: int, height: int, *, rows: bytes = b"", colour: int = 2) -> bytes:
    """A PNG whose header says what it likes; `rows` are compressed as they are."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def strip(width: int, height: int) -> bytes:
    """A sound grey PNG of these sides, in a hundred bytes."""
    return png(width, height, rows=(b"\0" * (width + 1)) * height, colour=0)


def data(content: bytes) -> Spoil:
    return lambda file: file.write_bytes(content)


def lazily(make: Callable[[], bytes]) -> Spoil:
    return lambda file: file.write_bytes(make())


def cut(kind: str, share: float) -> Spoil:
    def spoil(file: Path) -> None:
        whole = encoded(kind, size=(64, 64))
        file.write_bytes(whole[: max(1, int(len(whole) * share))])

    return spoil


def flipped(kind: str, place: float) -> Spoil:
    def spoil(file: Path) -> None:
        whole = bytearray(encoded(kind, size=(64, 64)))
        for number in range(int(len(whole) * place), min(len(whole), int(len(whole) * place) + 12)):
            whole[number] ^= 0xFF
        file.write_bytes(bytes(whole))

    return spoil


def link(target: str) -> Spoil:
    return lambda file: file.symlink_to(target)


def bound_socket(file: Path) -> None:
    here = Path.cwd()
    os.chdir(file.parent)  # such names may be no longer than a hundred letters
    socket.socket(socket.AF_UNIX).bind(file.name)
    os.chdir(here)


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 1_000_000)
    return stream.getvalue()


def evil_pickle() -> bytes:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch pwned",)

    return pickle.dumps(Evil())


def tiff_loop() -> bytes:
    """A TIFF whose only directory has no entries and leads to itself."""
    return b"II*\0" + struct.pack("<IHI", 8, 0, 8)


_HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200)
_EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\n(pwned) run\n"
BROKEN: dict[str, Spoil] = {
    "empty": data(b""),
    "one byte": data(b"\xff"),
    "text": data(b"this is no picture\n" * 30),
    "a web page": data(b"<!doctype html><title>404</title>" * 20),
    "zeros": data(bytes(5000)),
    "random bytes": lazily(lambda: os.urandom(5000)),
    "only a jpeg header": data(b"\xff\xd8\xff\xe0\0\x10JFIF\0"),
    "only a png header": data(b"\x89PNG\r\n\x1a\n"),
    **{f"{kind} cut at {share:.0%}": cut(kind, share) for kind in ("PNG", "WEBP", "GIF", "TIFF", "BMP") for share in (0.1, 0.5)},
    "JPEG cut at 10%": cut("JPEG", 0.1),
    "JPEG cut at 60%": cut("JPEG", 0.6),
    "PNG with flipped bytes": flipped("PNG", 0.5),
    "WEBP with flipped bytes": flipped("WEBP", 0.05),
    "png of no width": lazily(lambda: png(0, 10)),
    "png of 30,000 a side": lazily(lambda: png(30_000, 30_000)),
    "png of 2 billion a side": lazily(lambda: png(2**31 - 1, 2**31 - 1)),
    "strip of 1x20000": lazily(lambda: strip(1, 20_000)),
    "strip of 20000x1": lazily(lambda: strip(20_000, 1)),
    "strip of 3x200000": lazily(lambda: strip(3, 200_000)),
    "tiff that leads to itself": lazily(tiff_loop),
    "tiff of floats": lazily(lambda: _float_tiff()),
    "ppm of a million a side": data(b"P6 1000000 1000000 255\n"),
    "ppm that ends early": data(b"P6 100 100 255\n" + bytes(50)),
    "heic under a jpeg's name": data(_HEIC),
    "pdf": data(b"%PDF-1.7\n" + bytes(500)),
    "eps with a program": data(_EPS),
    "svg under a jpeg's name": data(b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
    "zip": lazily(zipped),
    "pickle": lazily(evil_pickle),
    "elf": data(b"\x7fELF" + bytes(300)),
    "link to nothing": link("nowhere.jpg"),
    "link to itself": link("bad.jpg"),
    "link to /dev/zero": link("/dev/zero"),
    "link to /dev/urandom": link("/dev/urandom"),
    "link to /dev/tty": link("/dev/tty"),
    "pipe": pipe,
    "socket": bound_socket,
    "8 GB of nothing": lambda file: sparse(file, 8_000_000_000),
    "a folder": lambda file: file.mkdir(),
}


def _float_tiff() -> bytes:
    import numpy as np
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.linspace(-1, 1, 900, dtype=np.float32).reshape(30, 30)).save(stream, "TIFF")
    return stream.getvalue()


def _deep_png() -> bytes:
    import numpy as np
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30) * 70).save(stream, "PNG")
    return stream.getvalue()


def _animated(kind: str) -> bytes:
    stream = io.BytesIO()
    first, *others = [picture(seed=seed) for seed in range(3)]
    first.save(stream, kind, save_all=True, append_images=others)
    return stream.getvalue()


def _turned(code: int) -> bytes:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = code
    return encoded(exif=exif)


SOUND: dict[str, tuple[str, Callable[[], bytes]]] = {
    "cmyk jpeg": ("odd.jpg", lambda: encoded(mode="CMYK")),
    "grey jpeg": ("odd.jpg", lambda: encoded(mode="L")),
    "progressive jpeg": ("odd.jpg", lambda: encoded(progressive=True)),
    "jpeg with more behind it": ("odd.jpg", lambda: encoded() + b"more" * 100),
    "jpeg with a broken colour profile": ("odd.jpg", lambda: encoded(icc_profile=b"broken" * 20)),
    "jpeg with broken exif": ("odd.jpg", lambda: encoded(exif=b"Exif\0\0broken" * 3)),
    "jpeg with a long comment": ("odd.jpg", lambda: encoded(comment=b"x" * 60_000)),
    **{f"jpeg turned by {code}": ("odd.jpg", partial(_turned, code)) for code in (2, 5, 8, 9, 255)},
    "png with a palette": ("odd.png", lambda: encoded("PNG", mode="P")),
    "png with transparency": ("odd.png", lambda: encoded("PNG", mode="RGBA")),
    "grey png with transparency": ("odd.png", lambda: encoded("PNG", mode="LA")),
    "png of one bit": ("odd.png", lambda: encoded("PNG", mode="1")),
    "png of 16 bits": ("odd.png", _deep_png),
    "one pixel": ("odd.png", lambda: encoded("PNG", size=(1, 1))),
    "strip of 1x500": ("odd.png", lambda: strip(1, 500)),
    "animated gif": ("odd.gif", lambda: _animated("GIF")),
    "animated webp": ("odd.webp", lambda: _animated("WEBP")),
    "bmp": ("odd.bmp", lambda: encoded("BMP")),
    "jpeg 2000": ("odd.jp2", lambda: encoded("JPEG2000")),
    **{
        f"named {name!r}": (name, encoded)
        for name in (
            *(
                "-rf.jpg",
                " spaces .jpg",
                "new\nline.jpg",
                "tab\t.jpg",
                "quo'te\".jpg",
                "$(reboot).jpg",
                "%s%n.jpg",
                "ünïcödé.jpg",
            ),
            *("日本.JPG", "😀.jpeg", "a" * 240 + ".jpg", "<script>.jpg", "\x1b[31mred.jpg", "a,b;c.jpg", "x.tar.jpg", "CON.jpg"),
            *("\u202egpj.jpg", "#.jpg", "..jpg", "back\\slash.jpg", "*.jpg", "e\u0301.jpg"),
        )
    },
}
_COMMANDS = ("check", "fit", "predict")


def met_by(command: str, put: Callable[[Path], object]) -> Make:
    """Thirty sound photos and what `put` adds to one class of them, met by a command."""

    def make(stage: Stage, folder: Path) -> list[str]:
        photos = stage.copy_photos(folder)
        put(photos / "birch")
        if command == "predict":
            return ["predict", "exp_1", "photos/birch", "--out", str(stage.copy_workspace(folder))]
        return [command, "photos", "--out", "out", *(stage.tiny if command == "fit" else [])]

    return make


def _spoilt(spoil: Spoil, name: str, birch: Path) -> None:
    spoil(birch / name)


def _written(name: str, content: Callable[[], bytes], birch: Path) -> None:
    (birch / name).write_bytes(content())


def cases() -> Iterator[BadCase]:
    for number, (name, spoil) in enumerate(BROKEN.items()):
        for command in ("predict", ("check", "fit", "fit")[number % 3]):
            nothing_said = name == "a folder"
            due: Due = "handled" if nothing_said else "named"
            put = partial(_spoilt, spoil, "bad.jpg")
            yield BadCase(
                "images", f"{name}, {command}", met_by(command, put), due, "" if nothing_said else r"bad\.jpg|set aside"
            )
    for number, (name, (file, content)) in enumerate(SOUND.items()):
        for command in ("fit", "predict") if number % 4 == 0 else ("predict",):
            yield BadCase("images", f"{name}, {command}", met_by(command, partial(_written, file, content)), "fine")
    for name, says in {"b.heic": r"heic", "b.dng": "dng", "b.psd": "psd", "b.jxl": "jxl"}.items():
        for command in _COMMANDS:
            yield BadCase("images", f"{name}, {command}", met_by(command, partial(_spoilt, data(_HEIC), name)), "named", says)
    unnameable = partial(_spoilt, lambda file: _unnameable(file), "x")
    for command in ("check", "fit"):
        yield BadCase("images", f"a name that is no text, {command}", met_by(command, unnameable), "named", "unicode|xff")
    yield from _whole_folders()


def _unnameable(file: Path) -> None:
    (file.parent / os.fsdecode(b"\xff\xfe.jpg")).write_bytes(encoded())


def _whole_folders() -> Iterator[BadCase]:
    """Folders as a whole."""

    def typed(command: str, build: Callable[[Path], object]) -> Make:
        def make(stage: Stage, folder: Path) -> list[str]:
            (folder / "d").mkdir()
            build(folder / "d")
            if command == "predict":
                return ["predict", "exp_1", "d", "--out", str(stage.copy_workspace(folder))]
            return [command, "d", "--out", "out", *(stage.tiny if command == "fit" else [])]

        return make

    folders: dict[str, Callable[[Path], object]] = {
        "empty folder": lambda folder: None,
        "only text": lambda folder: (folder / "a.txt").write_text("x"),
        "empty class folders": lambda folder: [(folder / name).mkdir() for name in "ab"],
        "every picture broken": lambda folder: _fill(folder, b"broken"),
        "one picture": lambda folder: _fill(folder, encoded(), per_class=1, classes="a"),
        "one class": lambda folder: _fill(folder, None, per_class=12, classes="a"),
        "two of each": lambda folder: _fill(folder, None, per_class=1, classes="ab"),
        "the same picture everywhere": lambda folder: _fill(folder, encoded(), per_class=8),
        "half of them broken": lambda folder: [_fill(folder, None), _fill(folder, b"x", first=100)],
        "links in a circle": lambda folder: [_fill(folder, None), (folder / "a" / "up").symlink_to("..")],
        "hidden alone": lambda folder: [(folder / ".h").mkdir(), (folder / ".h" / "a.jpg").write_bytes(encoded())],
    }
    for name, build in folders.items():
        for command in _COMMANDS:
            yield BadCase("images", f"{name}, {command}", typed(command, build), "handled")


def _fill(folder: Path, content: bytes | None, *, per_class: int = 10, classes: str = "ab", first: int = 0) -> None:
    for number, name in enumerate(classes):
        (folder / name).mkdir(exist_ok=True)
        for index in range(first, first + per_class):
            stream = io.BytesIO()
            picture(seed=1000 * number + index).save(stream, "JPEG")
            (folder / name / f"{name}{index}.jpg").write_bytes(stream.getvalue() if content is None else content)
