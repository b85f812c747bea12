"""The page of `unchoke ui` over 25,000 photos in a real Chromium: first paint, and frames while it is scrolled.

Photos are made (500 different ones, each under fifty names, all separate files), and the workspace has their manifest. The
command is started as a user would, in a process of its own; the browser is driven over its debugging pipe
(`tests/browser/cdp.py`). Frames are the distances between two calls of requestAnimationFrame. Three ways to scroll: as a person
reads (3,000 pixels a second), as the bar is dragged (all 25,000 in eight seconds), and in jumps of whole windows; each with
thumbnails that do not exist yet, and again with those that were kept. Beside them: the seconds until a decision is on the disk
and the next finding is on the screen.

Usage: python benches/bench_ui.py [FOLDER] [--photos 25000] [--chromium /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import say
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))
from cdp import Page, open_browser

BASES, CLASSES, FINDINGS = 500, 25, 200
FRAMES = """
(async () => {
  const box = document.querySelector('#grid'), deltas = [], longTasks = [];
  const observer = new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)));
  observer.observe({type: 'longtask'});
  const most = box.scrollHeight - box.clientHeight, began = performance.now();
  await new Promise(done => {
    let last = began;
    const frame = now => {
      deltas.push(now - last);
      last = now;
      const s = (now - began) / 1000;
      box.scrollTop = PLACE;
      if (s < SECONDS) requestAnimationFrame(frame); else done();
    };
    requestAnimationFrame(frame);
  });
  observer.disconnect();
  deltas.sort((a, b) => a - b);
  const at = share => deltas[Math.min(deltas.length - 1, Math.floor(share * deltas.length))];
  return {frames: deltas.length, median_ms: at(.5), p99_ms: at(.99), longest_ms: at(1),
          over_50_ms: deltas.filter(one => one > 50).length, over_100_ms: deltas.filter(one => one > 100).length,
          longest_task_ms: Math.max(0, ...longTasks), tiles: document.querySelectorAll('.tile').length,
          to_photo: Math.round(box.scrollTop / most * Number(box.dataset.total))};
})()
"""
WAYS = {
    "reading": ("3000 * s", 10),
    "dragging": ("most * Math.min(1, s / 8)", 8.2),
    "jumping": ("Math.floor(s * 4) * 5 * box.clientHeight", 8),
}
"""Where the grid is after `s` seconds, and for how many of them."""


def make_workspace(folder: Path, num_photos: int) -> Path:
    """Photos in class folders, their manifest, and findings to review."""
    from unchoke.core import atomic
    from unchoke.core.listing import walk
    from unchoke.data.manifest import save_manifest
    from unchoke.data.sample_set import TaskSpec, build_samples

    photos, root = folder / "photos", folder / "out"
    random = np.random.default_rng(7)
    rows, columns = np.mgrid[0:240, 0:320] / 320
    contents = []
    for _ in range(BASES):
        colours = random.uniform(30, 230, (3, 3))
        pixels = colours[0] + rows[..., None] * (colours[1] - colours[0]) + columns[..., None] * (colours[2] - colours[1])
        noisy = pixels + random.normal(0, 12, (240, 320, 1))
        buffer = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=85)
        contents.append(buffer.getvalue())
    for name in range(CLASSES):
        (photos / f"class {name:02d}").mkdir(parents=True, exist_ok=True)
    for number in range(num_photos):
        (photos / f"class {number % CLASSES:02d}" / f"{number:06d}.jpg").write_bytes(contents[number % BASES])
    entries = list(walk(photos))
    labels = [entry.relative.partition("/")[0] for entry in entries]
    splits = ["train" if number % 10 < 8 else "val" if number % 10 == 8 else "test" for number in range(len(entries))]
    ids = [entry.relative for entry in entries]
    task = TaskSpec("classification", tuple(sorted(set(labels))))
    save_manifest(build_samples(task, entries, sample_ids=ids, values={"label": labels}, splits=splits), root / "manifest.csv")
    findings = [_finding(ids[number * 7]) for number in range(FINDINGS)]
    atomic.write_json(root / "curation" / "findings.json", {"findings": findings})
    return root


def _finding(photo: str) -> dict[str, Any]:
    from unchoke.curation.data_finding import DataFinding
    from unchoke.data.corrections import Correction

    return DataFinding(
        "label", f"{photo!r} may be another class", (photo,), 0.9, {}, (Correction(photo, "label", "class 01"),)
    ).to_dict()


@contextmanager
def serve(root: Path) -> Iterator[str]:
    """The command in a process of its own; the address that lets in."""
    command = [sys.executable, "-m", "unchoke", "ui", "--out", str(root), "--no-browser", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline())["text"]
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield re.findall(r"http://\S+", told)[0]
    finally:
        process.terminate()
        process.wait(timeout=30)


def first_paint(page: Page, address: str) -> dict[str, float]:
    """Milliseconds from the request to the first paint, and until every thumbnail in sight is there."""
    page.visit(address)
    sight = "[...document.querySelectorAll('.tile img')].filter(p => p.getBoundingClientRect().top < innerHeight)"
    page.until(f"{sight}.length > 20 && {sight}.every(p => p.complete && p.naturalWidth)")
    return {
        "first_paint_ms": page.ask("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
        "thumbnails_ms": page.ask("Math.max(...performance.getEntriesByType('resource').map(one => one.responseEnd))"),
    }


def scroll(page: Page, way: str) -> dict[str, Any]:
    place, seconds = WAYS[way]
    page.ask("document.querySelector('#grid').scrollTop = 0")
    time.sleep(0.5)
    found: dict[str, Any] = page.ask(FRAMES.replace("PLACE", place).replace("SECONDS", str(seconds)))
    return {name: round(value, 1) for name, value in found.items()}


def decide(page: Page, base: str, num: int = 30) -> dict[str, float]:
    """Seconds from a key to the next finding: the decision is on the disk by then."""
    page.visit(f"{base}/review")
    seconds = []
    for number in range(num):
        before = time.perf_counter()
        page.press("d")
        page.until(f"document.documentElement.dataset.decisions === '{number + 1}'")
        seconds.append(time.perf_counter() - before)
    return {"median_ms": round(1000 * float(np.median(seconds)), 1), "longest_ms": round(1000 * max(seconds), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where photos and workspace go (default a temporary folder)")
    parser.add_argument("--photos", type=int, default=25_000)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        root = folder / "out"
        if not (root / "manifest.csv").exists():
            make_workspace(folder, given.photos)
        shutil.rmtree(root / "thumbnails", ignore_errors=True)
        figures: dict[str, Any] = {"photos": given.photos}
        with serve(root) as address, open_browser(given.chromium, Path(scratch) / "profile") as browser:
            page = browser.open(address)
            base = address.partition("/enter")[0]
            for state in ("cold", "kept"):
                figures[state] = first_paint(page, f"{base}/photos") | {way: scroll(page, way) for way in WAYS}
                page.send("Network.clearBrowserCache")
            figures["filtered"] = first_paint(page, f"{base}/photos?split=test")
            figures["decision"] = decide(page, base)
            figures["complaints"] = page.said
        say("ui", **figures)


if __name__ == "__main__":
    main()
