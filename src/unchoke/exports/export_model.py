"""`export`: the model of a run as one file for onnxruntime, OpenVINO or torch alone, checked before it is handed over.

In: a run, a format, a folder to make. Out: the folder, whole or not at all: the model, `model.json` with its facts, a model card,
a page that says what to install, and a short script. The script answers for the run's own test photos or windows first; where it
disagrees with the run, nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from numpy.typing import NDArray

from unchoke import __version__
from unchoke.core import atomic, listing
from unchoke.core.errors import UsageError, list_some
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.record import RunRecord
from unchoke.core.units import format_bytes
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.runs.session import default_listener

if TYPE_CHECKING:
    from unchoke.exports.agreement import ModelAgreement
    from unchoke.exports.model_files import Format, Precision
    from unchoke.exports.whole_model import PortableModel

_ENDINGS = ("mg", "kg", "g", "t", "mm", "cm", "km", "m", "ha", "ms", "s", "min", "h", "px", "pct", "percent", "ppm", "kpa", "pa")


@dataclass(frozen=True)
class ExportedModel:
    """A folder that was made, and how its model was found to agree with the run."""

    folder: Path
    """The folder with the model, its facts, its card and a script."""
    run: str
    """The run it is the model of."""
    facts: dict[str, Any]
    """What is written into the model: names, units, figures, weights and their licence, digest of the data."""
    agreement: ModelAgreement
    """How it compares with the run."""
    size_bytes: int
    """Of all files in the folder."""

    def to_dict(self) -> dict[str, Any]:
        agreement = self.agreement.to_dict()
        return {"folder": str(self.folder), "run": self.run, "size_bytes": self.size_bytes, **self.facts, "agreement": agreement}

    def to_text(self) -> str:
        from unchoke.exports.example_script import usage

        given = usage(self.facts["output"], self.facts.get("files", ()))
        return "\n".join(
            [
                f"exported  {self.folder / self.facts['file']} ({format_bytes(self.size_bytes)}, {self.facts['precision']})",
                f"agrees    {self.agreement.words()}",
                f"speed     a {self.agreement.unit} in {self.agreement.speed.words(self.agreement.unit)}",
                f"next      pip install {' '.join(self.facts['needs'])}; python {self.folder / 'predict.py'} {given}",
            ]
        )


class ModelExport(Protocol):
    """A kind of run on its way out."""

    @property
    def model(self) -> PortableModel: ...
    @property
    def compared_on(self) -> str: ...
    def facts(self) -> dict[str, Any]: ...
    def samples(self) -> list[NDArray[Any]]: ...
    def compare(self, built: Path) -> ModelAgreement: ...


def export(
    run: str | Path,
    *,
    to: str | Path,
    format: Literal["onnx", "openvino", "pt2"] = "onnx",
    precision: Literal["f32", "f16", "int8"] = "f32",
    units: str | None = None,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> ExportedModel:
    """The model of a run as one file, from pixels to answers or masks, for onnxruntime, OpenVINO or torch alone.

    It is handed over only if it answers as the run does, on the run's own test photos and on pictures of many sizes.

    Args:
        run: A run: exp_3, 3, latest or best.
        to: The folder to make, whole or not at all.
        format: onnx, openvino or pt2.
        precision: f32, f16 (weights in half the bytes) or int8 (fitted to photos of the train split).
        units: Units of targets, for the file's facts: "weight=g,height=cm". Left out, by the ends of their names.
        weights: The encoder's weights, where they are no longer found.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The folder, facts of the model, and its `agreement` with the run.

    Example:
        >>> unchoke.export("best", to="model", out="work").facts["file"]
        'model.onnx'
    """
    from unchoke.exports.model_files import check_format

    to, listener = Path(to), on_event or default_listener()
    check_format(format, precision)
    if to.exists():
        why, try_ = "an export never overwrites anything", f"choose another name, such as {to}-2"
        raise UsageError(f"{to} exists already", code="output-exists", why=why, try_=try_)
    if files := [place for place in to.parents if place.is_file()]:
        raise UsageError(
            f"{to} cannot be made", code="output-not-writable", why=f"{files[0]} is a file", try_="choose a folder with --to"
        )
    if to.parent.is_dir() and atomic.is_being_built(to):
        raise UsageError(
            f"another command is making {to}", code="output-in-use", why="it is not done yet", try_=f"wait for it, or --to {to}-2"
        )
    found = find_run(run, out=out)
    stated = _units(found.record, units)
    with _opened(found, weights) as work:
        listener(Note(f"{found.record.run}: writing {format}, then comparing it on {work.compared_on}"))
        atomic.sweep_temporaries(to.parent, of=to.name)
        with atomic.build_folder(to) as built:
            own = {"format": format, "precision": precision, "units": stated}
            facts, agreement = _write(work, found.record, built, own)
    size_bytes = sum(file.size_bytes for file in listing.walk(to))
    return ExportedModel(to, found.record.run, facts, agreement, size_bytes)


@contextmanager
def _opened(found: FoundRun, weights: str | Path | None) -> Iterator[ModelExport]:
    if found.record.draws_masks:
        from unchoke.exports.export_masks import opened_masks

        with opened_masks(found, weights) as work:
            yield work
    else:
        from unchoke.exports.export_photos import PhotoExport

        yield PhotoExport.of(found, weights)


def _write(work: ModelExport, record: RunRecord, built: Path, own: dict[str, Any]) -> tuple[dict[str, Any], ModelAgreement]:
    """All files, the model compared before the last of them."""
    from unchoke.exports.example_script import FACTS, SCRIPT, needed_packages, render_script
    from unchoke.exports.model_card import CARD, README, render_card, render_readme
    from unchoke.exports.model_files import MODEL_NAMES, FileOrder, write_model

    format_, precision, model = cast("Format", own["format"]), cast("Precision", own["precision"]), work.model
    facts = {
        "unchoke": __version__,
        "run": record.run,
        "file": MODEL_NAMES[format_],
        **own,
        "output": model.output,
        "needs": needed_packages(format_, model.output),
        **work.facts(),
        **_origin(record),
    }
    samples = work.samples() if precision == "int8" else []
    write_model(model, built, FileOrder(format_, precision, facts, samples))
    facts["sha256"] = {
        file.relative: digest_file(file.path) for file in listing.walk(built) if file.relative.startswith("model.")
    }
    atomic.write_text(built / SCRIPT, render_script(format_, model.output, facts.get("files", ())))
    atomic.write_json(built / FACTS, facts)
    agreement = work.compare(built)
    agreement.refuse_below(format_=format_, precision=precision)
    atomic.write_json(built / FACTS, {**facts, "agreement": agreement.to_dict()})
    atomic.write_text(built / CARD, render_card(record, facts, agreement))
    atomic.write_text(built / README, render_readme(facts))
    return facts, agreement


def _origin(record: RunRecord) -> dict[str, Any]:
    """The run's figures with their intervals, and what tells its data from any other."""
    data = record.data
    figures = {
        split: {name: [one.value, one.low, one.high] for name, one in named.items()} for split, named in record.metrics.items()
    }
    judged = digest([data.split_digests, data.content_digests, data.label_digests])
    return {
        "figures": figures,
        "data_digest": data.digest or judged,
        "data_digest_of": "all samples, their labels and splits" if data.digest else "the val and test samples: an older run",
        "num_samples": data.num_samples,
        "engine": f"{record.encoder.engine or 'torch'} {record.encoder.precision}".strip(),
    }


def _units(record: RunRecord, stated: str | None) -> dict[str, str]:
    """The unit of each target: as stated, else by the ending of its name, else that of the table."""
    names: Sequence[str] = record.task.names if record.task.kind == "regression" else []
    pairs = [part.partition("=") for part in stated.split(",")] if stated else []
    given = {name.strip(): unit.strip() for name, _, unit in pairs}
    unknown = [name for name, unit in given.items() if name not in names or not unit]
    if unknown:
        targets = f"its targets are {list_some(list(names))}" if names else "it has no targets: classes have no units"
        why, try_ = targets, "--units " + ",".join(f"{name}=g" for name in names[:2]) if names else "leave --units out"
        raise UsageError(
            f"--units {stated} does not fit {record.run}: {list_some(unknown)}", code="bad-units", why=why, try_=try_
        )
    endings = {name: name.rpartition("_")[2] for name in names}
    return {
        name: given.get(name) or (endings[name] if endings[name].lower() in _ENDINGS else "as in the table it was trained on")
        for name in names
    }
