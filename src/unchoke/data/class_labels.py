"""What the labels alone say about the data: balance, classes too small, too few samples. Pure: samples to findings."""

from __future__ import annotations

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.data.sample_set import Samples

IMBALANCE_RATIO = 10
FEW_SAMPLES = 50
_FEWEST_TO_DOUBT = 8


def diagnose_labels(samples: Samples) -> list[Finding]:
    """Findings about counts; all of them."""
    findings = _few(samples)
    if samples.task.kind == "classification":
        counts = {str(name): int(count) for name, count in samples.frame["label"].value_counts().items()}
        counts = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        findings += _one_class(counts) + _not_classes(counts) + _singles(samples, counts) + _imbalance(counts)
    return findings


def _few(samples: Samples) -> list[Finding]:
    if len(samples) >= FEW_SAMPLES:
        return []
    return [
        Finding(
            "few-samples",
            f"there are only {format_count(len(samples), 'sample')}: the test figures will be rough",
            evidence={"samples": len(samples), "advised": FEW_SAMPLES},
            fix="read the intervals, not the figures; or give --folds 5 --fold all, so that every sample is tested once",
        )
    ]


def _one_class(counts: dict[str, int]) -> list[Finding]:
    if len(counts) >= 2:
        return []
    return [
        Finding(
            "one-class",
            f"every sample has the class {next(iter(counts), '')!r}: there is nothing to tell apart",
            severity="error",
            evidence={"classes": counts},
            fix="give the folder that holds one sub-folder per class, or another --label column",
        )
    ]


def _not_classes(counts: dict[str, int]) -> list[Finding]:
    """A column of which hardly any value comes twice holds names or numbers, not classes."""
    single = sum(count == 1 for count in counts.values())
    if single <= len(counts) / 2 or len(counts) < _FEWEST_TO_DOUBT:
        return []
    numeric = all(_is_number(name) for name in counts)
    return [
        Finding(
            "not-classes",
            f"{single} of {format_count(len(counts), 'class', 'classes')} have a single image: these are hardly classes",
            severity="error",
            evidence={"classes": len(counts), "with_one_image": single},
            fix="predict the number with --target instead of --label" if numeric else "name the class column with --label",
        )
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _singles(samples: Samples, counts: dict[str, int]) -> list[Finding]:
    single = sorted(name for name, count in counts.items() if count == 1)
    if not single:
        return []
    paths = tuple(str(path) for path in samples.frame.loc[samples.frame["label"].isin(single), "path"])
    return [
        Finding(
            "single-image-class",
            f"{format_count(len(single), 'class', 'classes')} with one image: {list_some([repr(name) for name in single])}",
            path=paths[0],
            paths=paths,
            evidence={"classes": single},
            fix="it is trained on but can be neither validated nor tested: add images, or merge it with another class",
        )
    ]


def _imbalance(counts: dict[str, int]) -> list[Finding]:
    ratio = max(counts.values(), default=0) / max(min(counts.values(), default=1), 1)
    if ratio < IMBALANCE_RATIO:
        return []
    largest, smallest = next(iter(counts)), list(counts)[-1]
    return [
        Finding(
            "class-imbalance",
            f"{largest!r} has {ratio:.0f} times as many images as {smallest!r} ({counts[largest]:,} and {counts[smallest]:,})",
            evidence={"ratio": round(ratio, 2), "classes": counts},
            fix="judge by balanced accuracy and macro F1, and keep class weights on",
        )
    ]
