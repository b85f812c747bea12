"""The page beside an exported model: what it is, how good it was on photos it did not learn from, and how it was checked.

In: the run's record, facts of the model and its `ModelAgreement`. Out: Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unchoke.core.record import RunRecord
from unchoke.portable.agreement import LIMITS, ModelAgreement
from unchoke.portable.example_script import SCRIPT
from unchoke.reports.summary import (
    baseline_sentence,
    curve_sentence,
    gap_sentence,
    metrics_of,
    split_size,
    value_interval_sentence,
)

CARD = "MODEL_CARD.md"
_MOST_NAMES = 40


def render_card(record: RunRecord, facts: Mapping[str, Any], agreement: ModelAgreement) -> str:
    """The whole page."""
    parts = [
        [f"# {record.title or record.run}", "", *_about(record, facts)],
        ["## How good it is", "", *_figures(record)],
        ["## What goes in and comes out", "", *_contract(facts)],
        ["## How this file was checked", "", *_checked(facts, agreement)],
        ["## Where it comes from", "", *_origin(record, facts)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _about(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    names: Sequence[str] = facts["names"]
    shown = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
    what = "Tells photos apart" if facts["output"] == "probabilities" else "Estimates numbers from photos"
    yield f"{what}: {shown}."
    yield f"`{facts['file']}`, {facts['precision']}, written by unchoke {facts['unchoke']} from {record.run}."


def _figures(record: RunRecord) -> Iterator[str]:
    split = "test" if metrics_of(record, "test") else "val"
    size = split_size(record, split)
    unseen = "that it neither learnt from nor was chosen by" if split == "test" else "that it was chosen by, which flatters it"
    yield f"On {size or 'the'} {split} photos {unseen}:"
    yield ""
    yield "| figure | value | 95 % interval |"
    yield "|---|---|---|"
    for metric in metrics_of(record, split):
        name = metric.label + (f" of {metric.target}" if metric.target else "")
        yield f"| {name} | {metric.text} | {metric.interval or '–'} |"
    sentences = (baseline_sentence(record), value_interval_sentence(record), gap_sentence(record), curve_sentence(record))
    told = [sentence for sentence in sentences if sentence]
    if told:
        yield ""
        yield from told


def _contract(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "- in: `pixels`, uint8, photos of one size (n × height × width × RGB); any n, any size, upright."
    yield f"- out: `{facts['output']}`, float32 (n × {len(facts['names'])}), in the order of `names` in `model.json`."
    yield "- inside: antialiased resize, crop, normalisation, network, calibration."
    cover = facts["jpeg_cover_px"]
    shrunk = f", a JPEG at 1/2, 1/4 or 1/8 of its size while its short side keeps {cover:,} pixels" if cover else ""
    yield f"- outside: decoding and turning upright{shrunk}: `read_pixels` in `{SCRIPT}` does both."


def _checked(facts: Mapping[str, Any], agreement: ModelAgreement) -> Iterator[str]:
    limit = LIMITS[facts["precision"]]
    yield f"Against the run in float32 torch, by `{SCRIPT}`, before it was handed over:"
    yield ""
    yield f"- {agreement.words()}"
    sizes = ", ".join(f"{width}×{height}" for width, height in agreement.sizes)
    same = "" if agreement.sizes_top1 is None else f"{100 * agreement.sizes_top1:.1f} % the same first class, "
    yield f"- pictures of {sizes}: {same}largest difference {agreement.sizes_difference:.1e}"
    yield f"- it would have been refused below {100 * limit.top1:g} % or above a difference of {limit.difference:g}"
    if agreement.recorded_difference is not None:
        same = "" if agreement.recorded_top1 is None else f"{100 * agreement.recorded_top1:.1f} % the same first class, "
        yield f"- beside what the run said when it was judged ({facts['engine']}): {same}{agreement.recorded_difference:.1e}"
    times = f"{1000 * agreement.photo_s:.1f} ms a photo, {1000 * agreement.torch_photo_s:.1f} ms by torch"
    yield f"- speed, one photo at a time, decoded already, on the machine that wrote it: {times}"


def _origin(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"- command: `{record.command}`, {record.created_at}"
    yield f"- data: digest `{facts['data_digest']}`, {record.data.num_samples} samples"
    for weights in facts["weights"]:
        yield f"- weights of {weights['encoder']}: from {weights['from']}, SHA-256 `{weights['sha256'][:16]}`"
        yield f"- licence of these weights: {weights['licence']}"
