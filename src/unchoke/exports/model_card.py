"""The page beside an exported model: what it is, how good it was on photos it did not learn from, and how it was checked.

In: the run's record, facts of the model and its `ModelAgreement`. Out: Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unchoke.core.record import RunRecord
from unchoke.exports.agreement import ModelAgreement
from unchoke.exports.example_script import FACTS, SCRIPT, usage
from unchoke.runs.report.summary import (
    baseline_sentence,
    curve_sentence,
    gap_sentence,
    metrics_of,
    split_size,
    value_interval_sentence,
)

CARD, README = "MODEL_CARD.md", "README.md"
_WHAT = {
    "probabilities": "Tells photos apart",
    "values": "Estimates numbers from photos",
    "masks": "Names the class of each pixel of a scene",
}
_MOST_NAMES = 40


def render_card(record: RunRecord, facts: Mapping[str, Any], agreement: ModelAgreement) -> str:
    """The whole page."""
    parts = [
        [f"# {record.title or record.run}", "", *_about(record, facts)],
        ["## How good it is", "", *_figures(record, facts)],
        ["## What goes in and comes out", "", *_contract(facts)],
        ["## How this file was checked", "", *_checked(facts, agreement)],
        ["## Where it comes from", "", *_origin(record, facts)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _about(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    names: Sequence[str] = facts["names"]
    shown = ", ".join(map(_plain, names[:_MOST_NAMES])) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )
    yield f"{_WHAT[facts['output']]}: {shown}."
    yield f"`{facts['file']}`, {facts['precision']}, written by unchoke {facts['unchoke']} from {record.run}."


def _plain(name: str) -> str:
    """A name as it is, whatever Markdown would make of it."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", name)


def _figures(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    split = "test" if metrics_of(record, "test") else "val"
    size = split_size(record, split)
    unseen = "that it neither learnt from nor was chosen by" if split == "test" else "that it was chosen by, which is too good"
    of = "patches" if facts["output"] == "masks" else "photos"
    yield f"On {size or 'the'} {split} {of} {unseen}:"
    yield ""
    yield "| figure | value | 95 % interval |"
    yield "|---|---|---|"
    for metric in metrics_of(record, split):
        yield f"| {_plain(metric.label)} | {metric.text} | {metric.interval or '–'} |"
    sentences = (baseline_sentence(record), value_interval_sentence(record), gap_sentence(record), curve_sentence(record))
    told = [sentence for sentence in sentences if sentence] + (list(record.notes) if facts["output"] == "masks" else [])
    if told:
        yield ""
        yield from told


def _contract(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from (_window_contract(facts) if facts["output"] == "masks" else _photo_contract(facts))
    for name, unit in facts["units"].items():
        yield f"- unit of {_plain(name)}: {unit}."


def _photo_contract(facts: Mapping[str, Any]) -> Iterator[str]:
    wide, high = facts["least_px"]
    size = "any size" if (wide, high) == (1, 1) else f"any size from {wide}×{high} pixels"
    yield f"- in: `pixels`, uint8, photos of one size (n × height × width × RGB); any n, {size}, upright."
    yield f"- out: `{facts['output']}`, float32 (n × {len(facts['names'])}), in the order of `names` in `{FACTS}`."
    last = ", calibration" if facts["output"] == "probabilities" else ""
    yield f"- inside: antialiased resize, crop, normalisation, network{last}."
    cover = facts["jpeg_cover_px"]
    shrunk = f", a JPEG at 1/2, 1/4 or 1/8 of its size while its short side keeps {cover:,} pixels" if cover else ""
    yield f"- outside: decoding and turning upright{shrunk}: `read_pixels` in `{SCRIPT}` does both."


def _window_contract(facts: Mapping[str, Any]) -> Iterator[str]:
    side, bands = facts["window_px"], facts["bands"]
    yield f"- in: `pixels`, float32, windows of a scene (n × {len(bands)} × {side} × {side}); NaN where a pixel has no value."
    yield f"- its bands, in this order: {', '.join(bands)}; on the scale {facts['scale']['kind']} (`scale` in `{FACTS}`)."
    yield f"- out: `masks`, float32 (n × {len(facts['names'])} × {side} × {side}): probabilities in the order of `names`."
    yield "- inside: standardising, what single pixels' spectra say, network, softmax."
    yield (
        f"- outside, as code in `{SCRIPT}`: reading files (`read_scene`; bands of one grid), the scene's scale (`put_on_scale`), "
        f"cutting windows that share {facts['overlap_px']} pixels and blending them (`predict`). Scenes of any size."
    )
    if facts["scale"]["kind"] != "fixed":
        yield "- of scenes beyond 4 million pixels unchoke measures the scale on a sample, the script on all: masks may differ."


def _checked(facts: Mapping[str, Any], agreement: ModelAgreement) -> Iterator[str]:
    yield f"Against the run in float32 torch, by `{SCRIPT}`, before it was handed over:"
    yield ""
    yield f"- {agreement.words()}"
    sizes = ", ".join(f"{width}×{height}" for width, height in agreement.sizes)
    yield f"- pictures of {sizes}: {agreement.other_sizes.words()}"
    yield f"- {facts['precision']} promises {agreement.promise(facts['precision'])}; it would have been refused otherwise"
    if agreement.recorded is not None:
        yield f"- beside what the run said when it was judged ({facts['engine']}): {agreement.recorded.words()}"
    what = "a window" if facts["output"] == "masks" else "a photo, from its file to the answer"
    yield f"- speed on the machine that wrote it, {what}: {agreement.speed.words(agreement.unit)}"


def _origin(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"- command: `{record.command}`, {record.created_at}"
    yield f"- data: {facts['num_samples']} samples, digest `{facts['data_digest']}` of {facts['data_digest_of']}"
    for weights in facts["weights"]:
        yield f"- weights of {weights['encoder']}: from {weights['from']}, SHA-256 `{weights['sha256'][:16]}`"
        yield f"- licence of these weights: {weights['licence']}"


def render_readme(facts: Mapping[str, Any]) -> str:
    """What to install, what to type, which file is what."""
    given = usage(facts["output"], facts.get("files", ()))
    weights = f"`{facts['file']}`" + (" with `model.bin`" if facts["format"] == "openvino" else "")
    without = "no unchoke" if facts["format"] == "pt2" else "no torch, no unchoke"
    return (
        f"# {facts['run']} as {facts['file']}\n\n"
        f"```bash\npip install {' '.join(facts['needs'])}\npython {SCRIPT} {given}\n```\n\n"
        f"Nothing else is needed: {without}. {weights} is the model, `{FACTS}` what is known of it (names, units, figures, "
        f"licence of the weights), `{CARD}` the same for people: how good it is, what goes in and comes out, how it was checked. "
        f"`{SCRIPT}` is short: take from it what you need.\n"
    )
