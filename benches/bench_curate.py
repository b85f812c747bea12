"""`unchoke curate` against planted faults: flipped labels, near-copies, bad photos; how long it takes, and what mending brings.

    python benches/bench_curate.py flips --folder /tmp/bench --leaves LEAVES --skin SKIN
    python benches/bench_curate.py gain --folder /tmp/bench --leaves LEAVES --seeds 5
    python benches/bench_curate.py copies --folder /tmp/bench --leaves LEAVES
    python benches/bench_curate.py checks --folder /tmp/bench
    python benches/bench_curate.py scale --rows 25000

The demo's photos are used (extra `demo`), and class folders and a table of skin lesions where they are named. Flips are written
into a table, so that the command sees nothing but wrong labels. cleanlab ranks the same probabilities, CleanVision looks at the
same files, where they are installed.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import say
from PIL import Image, ImageEnhance, ImageFilter

import unchoke
from unchoke.cli.demo import write_photos
from unchoke.core.events import Event
from unchoke.data.corrections import LABEL, Correction, append_corrections
from unchoke.features.feature_store import map_member, open_stored
from unchoke.jobs.queue import JobQueue

SHARE, LOOKED_AT = 0.05, 0.1
COPIES = ("resized", "recompressed", "cropped", "brightness", "mirrored")
FAULTS = ("dark", "bright", "blurred", "blank", "shape", "tiny")


def quiet(_: Event) -> None:
    """Nobody listens."""


class Photos:
    """A set of photos with a workspace whose features are cached, and its samples as a table."""

    def __init__(self, name: str, folder: Path, data: Path, **options: Any) -> None:
        self.name, self.workspace, self.data, self.options = name, folder / name, data, options
        unchoke.extract(data, out=self.workspace, on_event=quiet, **options)
        manifest = pd.read_csv(self.workspace / "manifest.csv", dtype=str, na_filter=False)
        queue = JobQueue.load(self.workspace / "features")
        stored = open_stored(queue, queue.jobs()[-1].fingerprint, manifest["sample_id"].tolist())
        shards = [np.asarray(map_member(file)) for file in stored.placement.shards]
        self.table = manifest[stored.present].reset_index(drop=True)
        pairs = zip(stored.placement.shard_of, stored.placement.row_of, strict=True)
        self.feats = np.stack([shards[shard][row] for shard, row in pairs])
        self.names = sorted(self.table["label"].unique())
        self.targets = np.array([self.names.index(label) for label in self.table["label"]])

    def flipped(self, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Targets of which one in twenty is wrong, and which: at random, or the class most like it."""
        random = np.random.default_rng(seed)
        rows = random.choice(len(self.targets), round(SHARE * len(self.targets)), replace=False)
        targets = self.targets.copy()
        if kind == "random":
            targets[rows] = (targets[rows] + random.integers(1, len(self.names), len(rows))) % len(self.names)
        else:
            feats = (self.feats - self.feats.mean(axis=0, dtype=np.float32)) / (self.feats.std(axis=0, dtype=np.float32) + 1e-6)
            middles = np.stack([feats[self.targets == number].mean(axis=0) for number in range(len(self.names))])
            middles /= np.linalg.norm(middles, axis=1, keepdims=True)
            alike = middles @ middles.T
            np.fill_diagonal(alike, -9)
            targets[rows] = alike.argmax(axis=1)[self.targets[rows]]
        return targets, rows

    def with_labels(self, targets: np.ndarray, workspace: Path) -> dict[str, Any]:
        """The same photos as a table with other labels, and a workspace that has their features."""
        shutil.rmtree(workspace, ignore_errors=True)
        shutil.copytree(
            self.workspace, workspace, ignore=shutil.ignore_patterns("experiments", "corrections.csv", "unchoke.toml")
        )
        table = self.table.assign(label=[self.names[target] for target in targets])
        file = workspace / "labels.csv"
        grouped = {"group": "group"} if table["group"].ne("").any() else {"group": "none"}
        table.to_csv(file, index=False)
        return {"data": file, "path": "path", "id": "sample_id", "label": "label", **grouped, "out": workspace, "on_event": quiet}


def datasets(given: argparse.Namespace) -> list[Photos]:
    """What was named, and the demo."""
    folder = Path(given.folder)
    photos = folder / "photos"
    if not photos.exists() and not given.without_demo:
        write_photos(photos)
    found = [Photos("demo", folder, photos)] if not given.without_demo else []
    if given.leaves:
        found.append(Photos("leaves", folder, Path(given.leaves)))
    if given.skin:
        parts = [Path(given.skin) / "images_part_1", Path(given.skin) / "images_part_2"]
        columns = {"images": parts, "id": "image_id", "label": "dx", "group": "lesion_id"}
        found.append(Photos("skin", folder, Path(given.skin) / "metadata.csv", **columns))
    return found


def first_of_queue(result: unchoke.Curation, num: int) -> set[str]:
    """The photos of the first `num` entries of the queue whose label is doubted."""
    by_id = {finding.id: finding for finding in result.findings}
    first = [by_id[one] for one in result.queue[:num]]
    return {photo for one in first if one.kind in ("label", "copies-labels") for photo in one.photos}


def flips(given: argparse.Namespace) -> None:
    """Which share of the flips is in the first tenth of the queue, beside cleanlab on the same probabilities."""
    for photos in datasets(given):
        for kind in ("random", "similar"):
            ours, theirs = [], []
            for seed in range(given.seeds):
                targets, rows = photos.flipped(kind, seed)
                result = unchoke.curate(**photos.with_labels(targets, Path(given.folder) / "flips"))
                num = int(LOOKED_AT * len(targets))
                seen = first_of_queue(result, num)
                ours.append(np.mean([photos.table["sample_id"][row] in seen for row in rows]))
                theirs.append(cleanlab_recall(photos, targets, rows, num))
            say(
                "bench_curate flips",
                data=photos.name,
                photos=len(photos.targets),
                kind=kind,
                recall=round(float(np.mean(ours)), 3),
                cleanlab={name: round(float(np.mean([one[name] for one in theirs])), 3) for name in theirs[0]},
                seeds=given.seeds,
            )


def cleanlab_recall(photos: Photos, targets: np.ndarray, rows: np.ndarray, num: int) -> dict[str, float]:
    """The same by cleanlab's ways of ranking, from heads as ours."""
    from unchoke.curation.wrong_labels import hold_out_classes
    from unchoke.training.heads.linear_path import deal_folds

    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return {}
    pairs = zip(photos.table["sample_id"], photos.table["group"], strict=True)
    folds = deal_folds(targets.tolist(), [group or f"photo {name}" for name, group in pairs])
    probs = hold_out_classes(photos.feats, targets, photos.names, folds).probs
    found = {}
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        ranked = np.argsort(get_label_quality_scores(targets, probs.astype(np.float64), method=method), kind="stable")[:num]
        found[method] = float(np.isin(rows, ranked).mean())
    return found


def gain(given: argparse.Namespace) -> None:
    """What `fit` says before and after the flips in the first tenth of the queue are mended. Other flips and splits for each
    seed; a 95 % interval (Student's t) of the mean difference. Splits share photos, so it is a little too narrow.
    """
    for photos in datasets(given):
        held = [gain_of(photos, given, seed) for seed in range(given.seeds)]
        differences = np.array([one["after"] - one["before"] for one in held])
        half = (
            student_t(len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
            if len(differences) > 1
            else None
        )
        say(
            "bench_curate gain",
            data=photos.name,
            kind=given.kind,
            seeds=given.seeds,
            before=round(float(np.mean([one["before"] for one in held])), 4),
            after=round(float(np.mean([one["after"] for one in held])), 4),
            gain=round(float(differences.mean()), 4),
            interval=None if half is None else [round(float(differences.mean() + sign * half), 4) for sign in (-1, 1)],
            each=[{name: round(value, 4) for name, value in one.items()} for one in held],
        )


def gain_of(photos: Photos, given: argparse.Namespace, seed: int) -> dict[str, float]:
    """The same for one draw of flips and one of splits."""
    workspace = Path(given.folder) / "gain"
    targets, rows = photos.flipped(given.kind, seed)
    options = photos.with_labels(targets, workspace)
    for name in ("manifest.csv", "SHA256SUMS"):
        (workspace / name).unlink(missing_ok=True)
    unchoke.fit(**options, seed=seed)
    result = unchoke.curate(**options)
    seen = first_of_queue(result, int(LOOKED_AT * len(targets)))
    truth = {photos.table["sample_id"][row]: photos.names[photos.targets[row]] for row in rows}
    mended = [Correction(photo, LABEL, label, "bench") for photo, label in truth.items() if photo in seen]
    append_corrections(workspace / "corrections.csv", mended)
    held = unchoke.fit(**options, seed=seed).record["corrections"]
    figures = {name: held[name] for name in ("before", "after", "num_test")}
    return {**figures, "flips": len(rows), "mended": len(mended)}


def student_t(freedom: int) -> float:
    """The 97.5 % point."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def plant_copy(kind: str, image: Image.Image, random: np.random.Generator) -> tuple[Image.Image, int]:
    """A photo as people pass it on, and the quality of its JPEG."""
    width, height = image.size
    if kind == "resized":
        share = random.uniform(0.4, 0.8)
        return image.resize((int(width * share), int(height * share))), 92
    if kind == "recompressed":
        return image, int(random.integers(20, 50))
    if kind == "cropped":
        cut = int(width * 0.05), int(height * 0.05)
        left, top = (int(random.integers(0, one + 1)) for one in cut)
        return image.crop((left, top, left + width - cut[0], top + height - cut[1])), 92
    if kind == "mirrored":
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), 92
    return ImageEnhance.Brightness(image).enhance(float(random.choice([0.6, 0.7, 1.3, 1.4]))), 92


def plant(source: Path, target: Path, kinds: tuple[str, ...], num: int, make: Callable[..., tuple[Image.Image, int]]) -> None:
    """All photos, and `num` of each kind beside them: `NAME__KIND.jpg`."""
    if target.exists():
        return
    files = sorted(file for file in source.rglob("*.*") if file.suffix.lower() == ".jpg")
    shutil.copytree(source, target)
    random = np.random.default_rng(0)
    for kind in kinds:
        for place in random.choice(len(files), min(num, len(files)), replace=False):
            image, quality = make(kind, Image.open(files[place]).convert("RGB"), random)
            copy = target / files[place].relative_to(source).parent / f"{files[place].stem}__{kind}.jpg"
            copy.parent.chmod(0o755)
            image.save(copy, quality=quality)


def planted_kind(name: str) -> str:
    """Which fault a file has, by its name."""
    stem = Path(name).stem
    return stem.rsplit("__", 1)[1] if "__" in stem and stem.rsplit("__", 1)[1] in (*COPIES, *FAULTS) else ""


def copies(given: argparse.Namespace) -> None:
    """How many planted copies are found with their original, and how many other photos are taken for copies."""
    for name, source in (("demo", Path(given.folder) / "photos"), ("leaves", given.leaves and Path(given.leaves))):
        if not source:
            continue
        if name == "demo" and not source.exists():
            write_photos(source)
        target = Path(given.folder) / f"copies_{name}"
        plant(source, target, COPIES, 100 if name == "demo" else 50, plant_copy)
        result = unchoke.curate(target, out=Path(given.folder) / f"copies_{name}_out", on_event=quiet)
        sets = [one.photos for one in result.findings if one.kind.startswith("copies")]
        origin = {photo: _origin(photo) for one in sets for photo in one}
        hit = {photo for one in sets for photo in one if sum(origin[other] == origin[photo] for other in one) > 1}
        planted = {kind: [file for file in _names(target) if planted_kind(file) == kind] for kind in COPIES}
        others = [photo for photo in origin if photo not in hit]
        say(
            "bench_curate copies",
            data=name,
            photos=result.num_photos,
            other_photos_taken_for_copies=len(others),
            others=sorted(others),
            found={kind: round(float(np.mean([file in hit for file in files])), 3) for kind, files in planted.items()},
            cleanvision=cleanvision_copies(target, planted),
        )


def _origin(name: str) -> str:
    return Path(name).stem.rsplit("__", 1)[0] if planted_kind(name) else Path(name).stem


def _names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*.*"))]


def cleanvision_copies(folder: Path, planted: dict[str, list[str]]) -> dict[str, float]:
    """What CleanVision's perceptual hash finds of them."""
    try:
        from cleanvision import Imagelab
    except ImportError:
        return {}
    lab = Imagelab(data_path=str(folder))
    lab.find_issues({"near_duplicates": {}, "exact_duplicates": {}}, n_jobs=1, verbose=False)
    sets = [one for kind in lab.info if kind.endswith("duplicates") for one in lab.info[kind].get("sets", [])]
    hit = {Path(file).relative_to(folder.resolve()).as_posix() for one in sets for file in one}
    return {kind: round(float(np.mean([file in hit for file in files])), 3) for kind, files in planted.items()}


def plant_fault(kind: str, image: Image.Image, random: np.random.Generator) -> tuple[Image.Image, int]:
    """A photo that went wrong."""
    width, height = image.size
    if kind == "dark":
        return ImageEnhance.Brightness(image).enhance(float(random.uniform(0.02, 0.1))), 92
    if kind == "bright":
        return Image.fromarray(255 - (np.asarray(255 - np.asarray(image)) * random.uniform(0.01, 0.06)).astype(np.uint8)), 92
    if kind == "blurred":
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.02, 0.04) * min(width, height))), 92
    if kind == "blank":
        return Image.new("RGB", (width, height), tuple(int(one) for one in random.integers(0, 256, 3))), 92
    if kind == "shape":
        return image.resize((width, max(8, height // 8))), 92
    return image.resize((24, max(8, 24 * height // width))), 92


def checks(given: argparse.Namespace) -> None:
    """Planted faults of single photos: how many are found, and how many sound photos are blamed; beside CleanVision."""
    source, target = Path(given.folder) / "photos", Path(given.folder) / "faults"
    if not source.exists():
        write_photos(source)
    plant(source, target, FAULTS, 30, plant_fault)
    result = unchoke.curate(target, out=Path(given.folder) / "faults_out", on_event=quiet)
    ours = {(photo, one.kind) for one in result.findings if one.kind in FAULTS for photo in one.photos}
    files = _names(target)
    planted = {kind: [file for file in files if planted_kind(file) == kind] for kind in FAULTS}
    sound = {file for file in files if not planted_kind(file)}
    any_of = {photo for photo, _ in ours}
    say(
        "bench_curate checks",
        photos=len(files),
        sound=len(sound),
        blamed=len(sound & any_of),
        found={kind: round(float(np.mean([file in any_of for file in some])), 3) for kind, some in planted.items()},
        found_as_such={kind: round(float(np.mean([(file, kind) in ours for file in some])), 3) for kind, some in planted.items()},
        cleanvision=cleanvision_checks(target, planted, sound),
    )


def cleanvision_checks(folder: Path, planted: dict[str, list[str]], sound: set[str]) -> dict[str, Any]:
    try:
        from cleanvision import Imagelab
    except ImportError:
        return {}
    lab = Imagelab(data_path=str(folder))
    kinds = ("dark", "light", "blurry", "low_information", "odd_aspect_ratio", "odd_size", "grayscale")
    lab.find_issues({kind: {} for kind in kinds}, n_jobs=1, verbose=False)
    columns = [f"is_{kind}_issue" for kind in kinds]
    blamed = lab.issues[lab.issues[columns].any(axis=1)].index
    hit = {Path(file).relative_to(folder.resolve()).as_posix() for file in blamed}
    found = {kind: round(float(np.mean([file in hit for file in some])), 3) for kind, some in planted.items()}
    return {"found": found, "blamed": len(sound & hit)}


def scale(given: argparse.Namespace) -> None:
    """Everything after features and measures are cached, for so many photos of 1,280 features, and the memory it takes."""
    from unchoke.curation.diagnose_data import CurationMaterial, diagnose_data
    from unchoke.curation.measure_photos import MeasureTable

    random, rows, classes = np.random.default_rng(0), given.rows, 40
    middles = random.normal(size=(classes, 1280)).astype(np.float32)
    targets = random.integers(0, classes, rows)
    feats = np.empty((rows, 1280), np.float16)
    measures = MeasureTable.empty(rows)
    for start in range(0, rows, 2048):
        part = slice(start, min(rows, start + 2048))
        feats[part] = 0.12 * middles[targets[part]] + random.normal(size=feats[part].shape).astype(np.float32)
        measures.looks[part] = random.integers(0, 256, measures.looks[part].shape, np.uint8)
        measures.numbers[part] = random.uniform(20, 200, measures.numbers[part].shape)
    measures.known[:] = True
    copied = random.choice(rows // 2, rows // 100, replace=False)
    feats[rows - 1 - copied], measures.looks[rows - 1 - copied] = feats[copied], measures.looks[copied]
    names = tuple(f"class {number}" for number in range(classes))
    ids = [f"{names[target]}/{row:06d}.jpg" for row, target in enumerate(targets.tolist())]
    sizes = np.full((rows, 2), 640, np.int64)
    folders = [one.partition("/")[0] for one in ids]
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    found = diagnose_data(
        CurationMaterial(
            "classification",
            names,
            ids,
            ids,
            targets,
            feats,
            measures,
            sizes,
            ["train"] * rows,
            [""] * rows,
            folders,
            [""] * rows,
        )
    )
    say(
        "bench_curate scale",
        rows=rows,
        wall_s=round(time.perf_counter() - wall_s, 1),
        cpu_s=round(time.process_time() - cpu_s, 1),
        peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        before_mb=round(before_mb),
        findings=len(found.findings),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("flips", "gain", "copies", "checks", "scale"))
    parser.add_argument("--folder", default="bench_curate_out")
    parser.add_argument("--leaves")
    parser.add_argument("--skin")
    parser.add_argument("--without-demo", action="store_true", help="only the data sets that are named")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kind", default="random", choices=("random", "similar"))
    parser.add_argument("--rows", type=int, default=25_000)
    given = parser.parse_args()
    {"flips": flips, "gain": gain, "copies": copies, "checks": checks, "scale": scale}[given.part](given)


if __name__ == "__main__":
    main()
