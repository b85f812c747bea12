"""`export`: the model of a run as one file for onnxruntime, OpenVINO or torch alone, checked before it is handed over.

In: a run, a format, a folder to make. Out: the folder, whole or not at all: the model, `model.json` with its facts, a model card
and a short script. The script answers for the run's own test photos first; where it disagrees with the run, nothing is left.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke import __version__
from unchoke.core import atomic, listing
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.events import Note, OnEvent, ignore
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes
from unchoke.photos.manifest import load_manifest
from unchoke.photos.pixels.image import Pixels, read_bytes
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.runs.session import default_listener
from unchoke.training.scoring.figures import softmax
from unchoke.training.scoring.predictions_file import load_predictions

if TYPE_CHECKING:
    from unchoke.commands.assemble_model import AssembledModel
    from unchoke.commands.open_models import OpenModel
    from unchoke.portable.agreement import ModelAgreement
    from unchoke.portable.model_files import Format, Precision

MOST_CHECKED = 1000
"""Of more test photos so many are compared, at even distances."""
_CALIBRATION_PHOTOS = 100


@dataclass(frozen=True)
class ExportedModel:
    """A folder that was made, and how its model was found to agree with the run."""

    folder: Path
    """The folder with the model, its facts, its card and a script."""
    run: str
    """The run it is the model of."""
    facts: dict[str, Any]
    """What is written into the model: names, figures, weights and their licence, digest of the data."""
    agreement: ModelAgreement
    """How it compares with the run."""
    size_bytes: int
    """Of all files in the folder."""

    def to_dict(self) -> dict[str, Any]:
        agreement = self.agreement.to_dict()
        return {"folder": str(self.folder), "run": self.run, "size_bytes": self.size_bytes, **self.facts, "agreement": agreement}

    def to_text(self) -> str:
        ours, torch_s = self.agreement.photo_s * 1000, self.agreement.torch_photo_s * 1000
        return "\n".join(
            [
                f"exported  {self.folder / self.facts['file']} ({format_bytes(self.size_bytes)}, {self.facts['precision']})",
                f"agrees    {self.agreement.words()}",
                f"speed     {ours:.1f} ms a photo, {torch_s:.1f} ms by torch",
                f"next      python {self.folder / 'predict.py'} PHOTO",
            ]
        )


def export_model(
    run: str | Path,
    *,
    to: str | Path,
    format: str = "onnx",
    precision: str = "f32",
    weights: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> ExportedModel:
    """Write the model of `run` into the folder `to`, which must not exist yet, and hand it over if it agrees with the run."""
    from unchoke.portable.model_files import check_format

    to, listener = Path(to), on_event or default_listener()
    check_format(format, precision)
    if to.exists():
        why, try_ = "an export never overwrites anything", f"choose another name, such as {to}-2"
        raise UsageError(f"{to} exists already", why=why, try_=try_)
    found = find_run(run, out=out)
    photos = _judged_photos(found)
    from unchoke.commands.assemble_model import assemble

    assembled = assemble(found, weights=weights)
    listener(Note(f"{found.record.run}: writing {format}, then comparing it on {len(photos.paths)} {photos.split} photos"))
    atomic.sweep_temporaries(to.parent, of=to.name)
    with atomic.build_folder(to) as built:
        work = _Export(found, assembled, photos, cast("Format", format), cast("Precision", precision), weights)
        facts, agreement = work.write(built)
    size_bytes = sum(file.size_bytes for file in listing.walk(to))
    return ExportedModel(to, found.record.run, facts, agreement, size_bytes)


@dataclass(frozen=True, eq=False)
class _JudgedPhotos:
    """Photos the run was judged on, with its own rows of `predictions.csv`."""

    split: str
    paths: list[str]
    rows: pd.DataFrame
    train_paths: list[str]


def _judged_photos(found: FoundRun) -> _JudgedPhotos:
    found.refuse_masks("export")
    if found.workspace is None:
        raise UsageError(
            f"{found.record.run} is away from its photos",
            why="a file is handed over only after it answered for the photos the run was tested on",
            try_="unchoke export in the workspace where it was trained",
        )
    table = load_predictions(found.folder / "predictions.csv")
    split = next((split for split in ("test", "val") if (table["split"] == split).any()), None)
    manifest = load_manifest(found.workspace.manifest_file)
    if split is None or manifest is None:
        raise DataError(
            f"{found.record.run} was judged on no photos",
            why="a file is handed over only after it answered for some of them",
            try_="train with a test or val split",
        )
    rows = table[table["split"] == split]
    rows = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_CHECKED)).round().astype(int))]
    known = dict(zip(manifest["sample_id"], manifest["path"], strict=True))
    lost = [sample_id for sample_id in rows["sample_id"] if sample_id not in known or not Path(known[sample_id]).is_file()]
    if lost:
        raise DataError(
            f"photos the run was judged on are gone: {list_some(lost)}",
            why="a file is handed over only after it answered for them",
            try_="put the files back where manifest.csv says they are",
        )
    train = manifest[manifest["split"] == "train"]["path"] if "split" in manifest else manifest["path"]
    return _JudgedPhotos(split, [str(known[sample_id]) for sample_id in rows["sample_id"]], rows, [str(path) for path in train])


@dataclass(frozen=True, eq=False)
class _Export:
    found: FoundRun
    assembled: AssembledModel
    photos: _JudgedPhotos
    format: Format
    precision: Precision
    weights: str | Path | None

    def write(self, built: Path) -> tuple[dict[str, Any], ModelAgreement]:
        """All files, the model compared before the last of them."""
        from unchoke.portable.agreement import LIMITS
        from unchoke.portable.example_script import FACTS, SCRIPT, render_script
        from unchoke.portable.model_card import CARD, render_card
        from unchoke.portable.model_files import write_model

        facts = self._facts()
        write_model(self.assembled.model, built, self.format, self.precision, facts, self._calibration())
        atomic.write_text(built / SCRIPT, render_script(self.format, self.assembled.model.output))
        atomic.write_json(built / FACTS, facts)
        agreement = self._compare(built)
        agreement.refuse_below(LIMITS[self.precision], format_=self.format, precision=self.precision)
        atomic.write_json(built / FACTS, {**facts, "agreement": agreement.to_dict()})
        atomic.write_text(built / CARD, render_card(self.found.record, facts, agreement))
        return facts, agreement

    def _facts(self) -> dict[str, Any]:
        from unchoke.portable.model_files import MODEL_NAMES

        record, assembled = self.found.record, self.assembled
        data = record.data
        figures = {
            split: {name: [one.value, one.low, one.high] for name, one in named.items()}
            for split, named in record.metrics.items()
        }
        return {
            "unchoke": __version__,
            "run": record.run,
            "file": MODEL_NAMES[self.format],
            "precision": self.precision,
            "output": assembled.model.output,
            "names": list(assembled.names),
            "jpeg_cover_px": assembled.cover_px,
            "figures": figures,
            "data_digest": digest([data.split_digests, data.content_digests, data.label_digests]),
            "weights": list(assembled.weights),
            "engine": f"{record.encoder.engine or 'torch'} {record.encoder.precision}".strip(),
        }

    def _calibration(self) -> list[Pixels]:
        if self.precision != "int8":
            return []
        from unchoke.photos.pixels.image import decode_image

        paths = self.photos.train_paths
        places = np.unique(np.linspace(0, len(paths) - 1, min(len(paths), _CALIBRATION_PHOTOS)).round().astype(int))
        return [decode_image(read_bytes(paths[place]), cover_px=self.assembled.cover_px) for place in places]

    def _compare(self, built: Path) -> ModelAgreement:
        """The shipped script beside the run in plain torch: on photos as files, and on one of them in many sizes."""
        import torch

        from unchoke.portable.agreement import TRIED_SIZES, ModelAgreement, compare, measure_photo_s
        from unchoke.portable.example_script import load_script

        script, is_class = load_script(built), self.assembled.model.is_class
        resized = {f"{width}x{height}.ppm": _resized(self.photos.paths[0], (width, height)) for width, height in TRIED_SIZES}
        ours = self._answers_of_the_run(self.photos.paths, {})
        ours_of_sizes = self._answers_of_the_run(list(resized), resized)
        pixels = [script.read_pixels(path) for path in self.photos.paths[:_CALIBRATION_PHOTOS]]
        theirs = [script.predict(script.read_pixels(path)[None])[0] for path in self.photos.paths]
        theirs_of_sizes = [script.predict(script.read_pixels(io.BytesIO(data))[None])[0] for data in resized.values()]  # type: ignore[arg-type]
        scale = 1.0 if is_class else self._spread()
        top1, difference = compare(ours, _as_array(theirs), is_class=is_class, scale=scale)
        sizes_top1, sizes_difference = compare(ours_of_sizes, _as_array(theirs_of_sizes), is_class=is_class, scale=scale)
        recorded = self._recorded()
        beside = (None, None) if recorded is None else compare(recorded, _as_array(theirs), is_class=is_class, scale=scale)
        with torch.inference_mode():
            torch_photo_s = measure_photo_s(lambda photo: self.assembled.model(torch.from_numpy(photo[None])), pixels)
        return ModelAgreement(
            split=self.photos.split,
            num_photos=len(theirs),
            top1=top1,
            difference=difference,
            sizes=[list(size) for size in TRIED_SIZES],
            sizes_top1=sizes_top1,
            sizes_difference=sizes_difference,
            recorded_top1=beside[0],
            recorded_difference=beside[1],
            photo_s=measure_photo_s(lambda photo: script.predict(photo[None]), pixels),
            torch_photo_s=torch_photo_s,
        )

    def _answers_of_the_run(self, paths: Sequence[str], contents: dict[str, bytes]) -> NDArray[np.float64]:
        """What `predict` answers with plain torch; `contents` are files that exist in memory only."""
        from unchoke.commands.open_models import OpenOptions, open_model
        from unchoke.commands.picture_chunks import answer_chunk, cut_chunks, show_picture

        def read(path: str) -> bytes:
            return contents[path] if path in contents else read_bytes(path)

        options = OpenOptions(None, self.weights, None, ignore, read=read, plain=True)
        model = open_model(self.found, paths, options)
        found = []
        for chunk in cut_chunks(paths, model.chunk):
            answer = answer_chunk(model, chunk, [show_picture(model, path, read) for path in chunk.paths])
            if answer.broken:
                raise DataError(
                    f"photos the run was judged on cannot be read: {list_some(list(answer.broken))}",
                    why=next(iter(answer.broken.values())),
                    try_="put them back as they were",
                )
            found.append(_answers(model, answer.outputs))
        return np.concatenate(found)

    def _recorded(self) -> NDArray[np.float64] | None:
        """What the run said of the same photos when it was judged; None where there are too many classes to have kept that."""
        prefix = "p/" if self.assembled.model.is_class else "predicted/"
        columns = [f"{prefix}{name}" for name in self.assembled.names]
        rows = self.photos.rows
        return rows[columns].to_numpy(np.float64) if set(columns) <= set(rows.columns) else None

    def _spread(self) -> NDArray[np.float64]:
        truth = self.photos.rows[[f"truth/{name}" for name in self.assembled.names]].to_numpy(np.float64)
        spread: NDArray[np.float64] = np.maximum(truth.std(axis=0), 1e-9)
        return spread


def _answers(model: OpenModel, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    said = softmax(outputs / model.temperature) if model.kind == "classification" else outputs
    return said.astype(np.float64)


def _as_array(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    return np.stack(rows).astype(np.float64)


def _resized(path: str, size: tuple[int, int]) -> bytes:
    """The photo in another size, as a file that every decoder reads to the same pixels."""
    from PIL import Image

    from unchoke.photos.pixels.image import decode_image

    file = io.BytesIO()
    Image.fromarray(decode_image(read_bytes(path))).resize(size).save(file, "PPM")
    return file.getvalue()
