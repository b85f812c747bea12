"""The pictures of the manual, taken of real pages in a real browser: `python tests/manual/make_pictures.py [PHOTOS SCENES]`.

In: a workspace of photos that `curate` has looked at and one of scenes; left out, both demos are run in a folder that is removed
again. Their reports and `unchoke ui` are opened and photographed. Out: small WebP files in `docs/pictures/`.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

import unchoke

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "browser")]  # as pytest has them
from cdp import Browser, open_browser  # noqa: E402

from pages import serve  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
LOADED = "document.readyState === 'complete'"


def keep(name: str, png: bytes, *, top: float = 0, height: int = 760) -> None:
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.crop((0, round(top), picture.width, round(top) + height)).save(PICTURES / f"{name}.webp", quality=80, method=6)


def photograph(browser: Browser, photos: Path, scenes: Path) -> None:
    """All pictures, of the two workspaces."""
    report = browser.open(photos / "experiments" / "exp_1" / "report.html", width=1000, height=760, ready=LOADED)
    keep("report", report.picture())
    masks = browser.open(scenes / "experiments" / "exp_1" / "report.html", width=1000, height=700, ready=LOADED)
    top = masks.ask("document.querySelector('#gallery').getBoundingClientRect().top + scrollY")
    keep("masks", masks.picture(whole=True), top=top, height=560)
    with serve(photos) as served:
        page = browser.open(served.address, width=1100, height=760)
        for name in ("photos", "review"):
            page.visit(f"{served.base}/{name}")
            page.until("[...document.images].every(one => one.complete)")
            keep(name, page.picture())


def run_demos(folder: Path) -> tuple[Path, Path]:
    unchoke.demo(out=folder / "photos")
    unchoke.curate(out=folder / "photos" / "workspace")
    unchoke.demo("scenes", out=folder / "scenes")
    return folder / "photos" / "workspace", folder / "scenes" / "workspace"


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("error  no chromium was found\nwhy    pictures are taken in a browser\ntry    apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        photos, scenes = map(Path, sys.argv[1:]) if sys.argv[1:] else run_demos(Path(name))
        with open_browser(chromium, Path(name) / "profile") as browser:
            photograph(browser, photos, scenes)


if __name__ == "__main__":
    main()
