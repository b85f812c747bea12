"""The record of a run: everything a report, a comparison or another machine needs to know of it, typed.

In: JSON types, from `record.json` or from a run that has just ended. Out: a `RunRecord`, and by `to_dict` the same JSON again:
what was absent stays absent, what a later version added is kept. From a file anything may be missing or odd; such a part counts
as missing, so that readers need not ask. Runs write it, the database and reports read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core.core_schema import ValidationInfo, ValidatorFunctionWrapHandler

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.timeline import Timeline

_LENIENT = {"lenient": True}


def _finite(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


T = TypeVar("T")
Number = Annotated[int | float, BeforeValidator(_finite)]
Named = dict[str, T]
"""Values by name."""


class RecordPart(BaseModel):
    """A part of a record. Read with `of`, an odd field has its default; made in code, it is an error."""

    model_config = ConfigDict(extra="allow", validate_by_name=True, validate_by_alias=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _default_where_odd(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError:
            if not info.context or info.field_name is None:
                raise
            return cls.model_fields[info.field_name].get_default(call_default_factory=True)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From JSON types that may be damaged."""
        return cls.model_validate(dict(plain), context=_LENIENT)

    def to_dict(self) -> dict[str, Any]:
        """What was given, under the names of the file."""
        return self.model_dump(exclude_unset=True, by_alias=True)


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % interval; None where it is undefined."""

    value: Annotated[float | None, BeforeValidator(lambda value: None if value is None else _finite(value))] = None
    low: float | None = None
    high: float | None = None


Figures = Named[Annotated[Interval, BeforeValidator(lambda value: {"value": value} if isinstance(value, int | float) else value)]]
"""Metrics of one split by name: ``accuracy``, ``r2/height``."""


class TaskRecord(RecordPart):
    """What is learnt: the names are those of classes or targets."""

    kind: str = ""
    names: list[str] = []


class PatchesRecord(RecordPart):
    patch_px: Number | None = None
    overlap_px: Number | None = None
    manifest: str = ""


class DataRecord(RecordPart):
    """What it was learnt from. Classes are counted and values described by split or name; scenes and patches are of masks."""

    source: str = ""
    num_samples: Number | None = None
    num_quarantined: Number | None = None
    splits: Named[Number] = {}
    digest: str = ""
    """What tells all samples, their contents, labels and splits from others; absent in older records."""
    split_digests: Named[str] = {}
    """What tells the photos that were validated and tested on from others; absent in older records."""
    content_digests: Named[str] = {}
    """What tells the contents of those photos from others under the same ids; absent in older records."""
    label_digests: Named[str] = {}
    """What tells their labels or values from others; absent in older records."""
    class_counts: Named[Named[Number]] | None = None
    targets_summary: Named[Named[Number | None]] | None = None
    inputs_summary: Named[Named[Number | None]] | None = None
    scenes: list[str] = []
    bands: list[str] = []
    patches: PatchesRecord | None = None


class GroupGapRecord(RecordPart):
    """How much a random split leaks: a quick linear model's score in random folds and in folds that keep the values of a column
    together, and the 95 % interval of the difference.
    """

    column: str = ""
    metric: str = ""
    random: Number | None = None
    grouped: Number | None = None
    low: Number | None = None
    high: Number | None = None
    num_samples: Number | None = None
    num_groups: Number | None = None


class CorrectionsRecord(RecordPart):
    """How many decisions about single photos were used, by kind, and what they brought: `before` is what the `run` before them
    scores, `after` what this one does, on the same test photos with the corrected truth.
    """

    used: Named[Number] = {}
    key: str = ""
    run: str = ""
    metric: str = ""
    before: Number | None = None
    after: Number | None = None
    num_test: Number | None = None


class EncoderRecord(RecordPart):
    """The network that was used, and how; every key is shown, also those that are not named here."""

    name: str = ""
    engine: str = ""
    precision: str = ""
    fingerprint: str = ""
    num_augmented: Number | None = None
    image_px: Number | None = None


class MemoryPlanRecord(RecordPart):
    limit_bytes: Number | None = None
    parts: Named[Number] = {}
    counted: bool = False


class MemoryRecord(RecordPart):
    """Bytes, planned and measured; `process_bytes` is the peak over all stages."""

    planned_bytes: int | None = None
    measured_bytes: int | None = None
    process_bytes: int | None = None
    device: str | None = None
    plan: MemoryPlanRecord | None = None


class MachineRecord(RecordPart):
    """What a run was given of the machine; `workers` are the threads that read."""

    cores: int = 1
    device: str = ""
    on_cpu: bool = True
    workers: int = 0


class ClassRecord(RecordPart):
    """The figures of one class; IoU for masks alone."""

    name: str = ""
    iou: Number | None = None
    precision: Number | None = None
    recall: Number | None = None
    recall_low: Number | None = None
    recall_high: Number | None = None
    f1: Number | None = None
    support: Number | None = None


class BinRecord(RecordPart):
    """Answers of like confidence: how many, how sure, and how many of them right."""

    low: Number | None = None
    high: Number | None = None
    count: Number = 0
    confidence: Number | None = None
    accuracy: Number | None = None


class CalibrationRecord(RecordPart):
    """Expected calibration error (ECE) and log loss before and after temperature scaling, and bins for a diagram."""

    temperature: Number | None = None
    reason: str = ""
    ece_before: Number | None = None
    ece_after: Number | None = None
    log_loss_before: Number | None = None
    log_loss_after: Number | None = None
    bins_before: list[BinRecord] = []
    bins_after: list[BinRecord] = []
    bins: list[BinRecord] = []


class SweepRecord(RecordPart):
    """One configuration that was tried; `config` is as wide as its kind of training."""

    config: dict[str, Any] = {}
    val_metric: Number | None = None
    val_loss: Number | None = None
    best_epoch: Number | None = None
    num_epochs: Number | None = None
    diverged: bool = False
    picked: bool = False


class RungRecord(RecordPart):
    """One way of training that was tried within given minutes, what it took, and its share in the blend."""

    name: str = ""
    seconds: Number | None = None
    val_loss: Number | None = None
    together: Number | None = None
    """The loss on val of this one and all before it."""
    share: Number | None = None


class MistakeRecord(RecordPart):
    """A picture the model was wrong about; the thumbnail is a data URI."""

    sample_id: str = ""
    path: str = ""
    truth: str | Number | None = None
    predicted: str | Number | None = None
    confidence: Number | None = None
    thumbnail: str | None = None


class ScatterRecord(RecordPart):
    """Truth against prediction of one target."""

    target: str = ""
    truth: list[Number | None] = []
    predicted: list[Number | None] = []


class ValueIntervalRecord(RecordPart):
    """By how much predicted values are widened to hold the truth in `level` of cases, from errors on val, and in how many of test
    they did, by target.
    """

    level: Number = 0.0
    num_val: int = 0
    num_test: int = 0
    half_widths: Named[Number] = {}
    coverage: Figures = {}


class CurvePoint(RecordPart):
    """What so many photos to learn from gave, as the mean of several draws."""

    num_photos: int = 0
    value: float = 0.0
    num_repeats: int = 1


class LearningCurveRecord(RecordPart):
    """A figure against the number of photos, what the last doubling brought and about what the next one would; or why there is
    none.
    """

    metric: str = ""
    num_judged: int = 0
    points: list[CurvePoint] = []
    gain: Interval | None = None
    next_gain: Interval | None = None
    skipped: str = ""


class GalleryRecord(RecordPart):
    """A piece of a stitched mask in five pictures, as data URIs."""

    title: str = ""
    note: str = ""
    image: str | None = None
    overlay: str | None = None
    prediction: str | None = None
    truth: str | None = None
    error: str | None = None


class LegendRecord(RecordPart):
    name: str = ""
    colour: str = ""


class BaselineScore(RecordPart):
    class_: str = Field("", alias="class")
    iou: Number | None = None
    mean_iou: Number | None = None
    confusion: list[list[int]] = []
    """Pixels of each class (rows) by what they were taken for (columns)."""


class BaselineRecord(RecordPart):
    """What is reached without any training: for masks by a rule over bands, else by always answering the commonest class of the
    train split (`answer`), or the train mean of each target (`answers`). `gains` are the model's, by split and metric.
    """

    name: str = ""
    val: BaselineScore | None = None
    test: BaselineScore | None = None
    answer: str = ""
    answers: Named[Number] = {}
    metrics: Named[Figures] = {}
    gains: Named[Figures] = {}


class TargetsRecord(RecordPart):
    """Which targets are learnt and which follow, as `TargetPlan` has it."""

    names: list[str] = []
    learned: list[str] = []
    sums: Named[list[str]] = {}
    weights: list[Number] | None = None
    positive: bool = False


class LoopRecord(RecordPart):
    """The settings of a training loop that reports speak of; all of them are kept."""

    batch_size: Number | None = None
    sub_batch: Number | None = None
    eval_batch: Number | None = None
    lr: Number | None = None
    body_lr: Number | None = None
    layer_decay: Number | None = None
    warmup_epochs: Number | None = None
    weight_decay: Number | None = None
    ema_decay: Number | None = None
    clip: Number | None = None
    mixup: Number | None = None
    label_smoothing: Number | None = None
    class_weights: str | None = None
    dtype: str = ""
    memory_format: str = ""
    compile: bool = False
    grad_ckpt: bool = False
    batch_norm: str = ""


class TrainingRecord(RecordPart):
    """How a network was trained; `seconds` of older records say what for, newer ones have a timeline."""

    cut: str = ""
    num_blocks: Number | None = None
    tiles: str = ""
    fusion: str = ""
    decoder: str = "unet"
    loop: LoopRecord | None = None
    targets: TargetsRecord | None = None
    num_steps: Number | None = None
    resumed_step: Number | None = None
    seconds: Named[Number] = {}
    out_of_memory_halvings: Number | None = None
    sub_batch_at_the_end: Number | None = None


class OperatorRecord(RecordPart):
    """What torch.profiler measured of one operator."""

    name: str = ""
    calls: int = 0
    self_cpu_s: float = 0.0
    cpu_s: float = 0.0
    self_device_s: float = 0.0
    device_s: float = 0.0
    self_cpu_bytes: Number = 0
    self_device_bytes: Number = 0


class ProfileRecord(RecordPart):
    """The steps that were profiled on the way, the operators that took most, and the files, relative to the workspace."""

    schedule: Named[Number] = {}
    num_steps: int = 0
    traces: list[str] = []
    pages: list[str] = []
    cpu_s: float = 0.0
    device_s: float = 0.0
    num_operators: int = 0
    operators: list[OperatorRecord] = []


class QuarantineRecord(RecordPart):
    """A file that was set aside, and why."""

    sample_id: str = ""
    path: str = ""
    reason: str = ""


class UnscoredRecord(RecordPart):
    """A sample of val or test that no score counts, with the code of the finding that says so."""

    sample_id: str = ""
    path: str = ""
    split: str = ""
    code: str = ""
    reason: str = ""


def join_versions(contents: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """By split, what changes with the contents of its samples or with their labels; nothing where either is unknown."""
    return {split: contents[split] + labels[split] for split in contents if split in labels}


def stored_versions(data: Mapping[str, Any]) -> dict[str, str]:
    """The same from what the database knows of a run's data."""
    return join_versions(data.get("content_digests", {}), data.get("label_digests", {}))


class RunFacts(RecordPart):
    """What a run's own file and the database both know of it."""

    status: str = ""
    created_at: str = ""
    command: str = ""
    metrics: Named[Figures] = {}
    timings: Named[Number] = {}
    choices: list[Choice] = []
    settings: dict[str, Any] = {}
    selection_metric: str = ""
    task: TaskRecord = TaskRecord()


class RunRecord(RunFacts):
    """`record.json`. Where the kind of run has no such part (masks have no calibration), it is absent or empty."""

    run: str = ""
    title: str = ""
    versions: Named[str] = {}
    data: DataRecord = DataRecord()
    encoder: EncoderRecord = EncoderRecord()
    findings: list[Finding] | None = None
    quarantine: list[QuarantineRecord] | None = None
    unscored: list[UnscoredRecord] | None = None
    """Absent in records of before copies were left out of the score."""
    images_per_s: Number | None = None
    memory: MemoryRecord = MemoryRecord()
    stretches: list[Named[Number]] = []
    """Where a run was stopped and went on: the timings of each stretch, which `timings` adds up. `timeline` is of the last."""
    timeline: Named[Timeline] = {}
    machine: MachineRecord = MachineRecord()
    chokes: list[Finding] = []
    per_class: Named[list[ClassRecord]] = {}
    confusion: Named[list[list[int]]] = {}
    calibration: CalibrationRecord | None = None
    history: list[Named[Number | None]] = []
    sweep: list[SweepRecord] = []
    mistakes: list[MistakeRecord] = []
    scatter: list[ScatterRecord] = []
    value_intervals: ValueIntervalRecord | None = None
    thresholds: Named[Number] = {}
    """Of several labels: the probability from which on each counts as given, chosen on val."""
    learning_curve: LearningCurveRecord | None = None
    notes: list[str] = []
    ladder: list[RungRecord] = []
    training: TrainingRecord | None = None
    profile: ProfileRecord | None = None
    gallery: list[GalleryRecord] = []
    legend: list[LegendRecord] = []
    baseline: BaselineRecord | None = None
    group_gap: GroupGapRecord | None = None
    """Where a column looks like a group and none was named."""
    corrections: CorrectionsRecord | None = None
    """Where people decided about single photos."""
    pixel_baselines: list[BaselineRecord] = []
    """Of masks: what the spectrum of single pixels reaches without a network."""
    planned_epochs: int | None = None
    """Of a record of a few steps: how many epochs the training they belong to would have."""
    report: str = ""
    """Where its report is, in what `runs show` answers."""

    @property
    def called(self) -> str:
        """What the run is called: ``exp_3``."""
        return self.run or "?"

    @property
    def judged_sets(self) -> dict[str, str]:
        """A digest of the samples of val and of test, where it is known: equal ones have the same ids."""
        return self.data.split_digests

    @property
    def judged_versions(self) -> dict[str, str]:
        """Beside it, of the contents and labels of those samples, where they are known: the same ids may stand for others."""
        return join_versions(self.data.content_digests, self.data.label_digests)

    @property
    def encoder_facts(self) -> dict[str, Any]:
        """The encoder's name and what is known of its use."""
        return self.encoder.to_dict()

    @property
    def last_timings(self) -> dict[str, int | float]:
        """Of the stretch that the timeline is about."""
        return self.stretches[-1] if self.stretches else self.timings

    @property
    def draws_masks(self) -> bool:
        """Whether the run names the class of each pixel."""
        return self.task.kind == "segmentation"


class StepValue(RecordPart):
    split: str
    name: str
    step: int
    value: float | None


class ArtefactRecord(RecordPart):
    path: str
    sha256: str
    size_bytes: int


class StoredRun(RunFacts):
    """A run as the database knows it, also one that has not ended: the row, what was measured, and its files."""

    number: int
    name: str
    key: str
    finished_at: str | None = None
    data: dict[str, Any] = {}
    encoder: str = ""
    fingerprint: str = ""
    history: list[StepValue] = []
    memory: dict[str, MemoryRecord] = {}
    artefacts: list[ArtefactRecord] = []

    @property
    def called(self) -> str:
        return self.name

    @property
    def judged_sets(self) -> dict[str, str]:
        found: dict[str, str] = self.data.get("split_digests", {})
        return found

    @property
    def judged_versions(self) -> dict[str, str]:
        return stored_versions(self.data)

    @property
    def encoder_facts(self) -> dict[str, Any]:
        return {"name": self.encoder}


RecordedRun = RunRecord | StoredRun
"""A run as its own file or the database knows it."""
