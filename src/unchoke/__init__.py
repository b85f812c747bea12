"""unchoke: train image models fast on the machine you have, and know what holds a run back.

Every command is a function of the same name: `unchoke.fit("photos/")` does what `unchoke fit photos/` does, and options are
keywords with underscores. What is left out is what the workspace remembers, what a preset says, or the default, as on the command
line. Nothing but the standard library is loaded until a function is called, so `import unchoke` costs next to nothing.

The parameters that are settings, and their lines in the docstrings, are written by `python -m unchoke.cli.front_door` from the
table in `unchoke/core/settings.py`; everything else here is written by hand.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from unchoke.core import errors
from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from unchoke.cli.demo_scenes import SceneDemo as SceneDemo
    from unchoke.core.choices import Choice as Choice
    from unchoke.core.events import OnEvent
    from unchoke.core.findings import Finding as Finding
    from unchoke.core.presets import Preset as Preset
    from unchoke.core.record import RunRecord as RunRecord
    from unchoke.core.record import StoredRun as StoredRun
    from unchoke.curation.curation import Curation as Curation
    from unchoke.curation.data_finding import DataFinding as DataFinding
    from unchoke.data.check_samples import CheckResult as CheckResult
    from unchoke.exports.export_model import ExportedModel as ExportedModel
    from unchoke.features.cluster_check import ClusterCheck as ClusterCheck
    from unchoke.machine.doctor import DoctorReport as DoctorReport
    from unchoke.masks.draw_masks import SegmentPredictResult as SegmentPredictResult
    from unchoke.masks.segment_train import SegmentResult as SegmentResult
    from unchoke.page.ui import UiResult as UiResult
    from unchoke.runs.trace.profile_view import TraceView as TraceView
    from unchoke.scenes.tiling.tile_profile import TileProfile as TileProfile
    from unchoke.scenes.tiling.tile_result import TileResult as TileResult
    from unchoke.training.budget import BudgetResult as BudgetResult
    from unchoke.training.detach import BackgroundResult as BackgroundResult
    from unchoke.training.detach import BackgroundRun as BackgroundRun
    from unchoke.training.evaluate import Evaluation as Evaluation
    from unchoke.training.folds import FoldsResult as FoldsResult
    from unchoke.training.load_model import LoadedModel as LoadedModel
    from unchoke.training.predict import Predictions as Predictions
    from unchoke.training.profile_train import TrainingProfile as TrainingProfile
    from unchoke.training.results import ExtractResult as ExtractResult
    from unchoke.training.results import FitResult as FitResult
    from unchoke.training.results import Rehearsal as Rehearsal
    from unchoke.training.workspace_datasets import FeatureDataset as FeatureDataset
    from unchoke.training.workspace_datasets import PhotoDataset as PhotoDataset
    from unchoke.training.workspace_datasets import TileDataset as TileDataset
    from unchoke.tuning.encoder_result import EncodersResult as EncodersResult
    from unchoke.tuning.tune_result import TuneResult as TuneResult
    from unchoke_doctor.lint import LintResult as LintResult
    from unchoke_doctor.lint import lint as lint
    from unchoke_doctor.notebook import NotebookReport as NotebookReport
    from unchoke_doctor.notebook import notebook as notebook
    from unchoke_doctor.profile import ScriptProfile as ScriptProfile
    from unchoke_doctor.profile import profile as profile

__version__ = "0.1.0"
sys.modules[f"{__name__}.errors"] = errors  # `from unchoke.errors import DataError` is what people write


def fit(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    cache: Literal["ram", "disk", "none"] | None = None,
    job_size: int | None = None,
    head: Literal["linear", "mlp", "attention"] | None = None,
    fusion: Literal["mean", "film", "attention"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layer_decay: float | None = None,
    warmup: float | None = None,
    ema: float | None = None,
    clip: float | None = None,
    label_smoothing: float | None = None,
    mixup: float | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    class_weights: Literal["none", "gentle", "tempered", "balanced"] | None = None,
    batch_norm: Literal["frozen", "train"] | None = None,
    patience: int | None = None,
    sweep: int | None = None,
    refit: bool | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
    memory: str | None = None,
    sub_batch: int | None = None,
    eval_batch: int | None = None,
    grad_ckpt: bool | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    compile: bool | None = None,
    channels_last: bool | None = None,
    devices: int | None = None,
    log: Sequence[str] = (),
    checkpoint_every: float | None = None,
    profile: bool | None = None,
    profile_wait: int | None = None,
    profile_warmup: int | None = None,
    profile_active: int | None = None,
    profile_repeat: int | None = None,
) -> FitResult:
    """Check the data, extract features once, train, evaluate and report. Called again, it goes on, or says it is done.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be done; nothing is extracted or trained.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        cache: ram, disk or none: where decoded images are kept with `cut="none"`. Left out, chosen by what fits.
        job_size: Images per micro-job (default 64).

    Trained part:
        head: linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks.
        fusion: How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean).
        epochs: Passes over the training samples (default 20).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        lr: Learning rate: of the head, and of the last block that trains.
        weight_decay: AdamW weight decay.
        layer_decay: Learning rate of each layer as a share of that of the layer above it, up to 1.
        warmup: Epochs in which the learning rate rises to its full value.
        ema: Decay of the running average of the weights that is evaluated and kept, 0 for none.
        clip: Largest gradient norm, 0 for no limit.
        label_smoothing: Label smoothing, 0 to below 1.
        mixup: Mixup: alpha of its beta distribution, 0 for none.
        augment: none, light or strong: how much images are varied with `cut="none"`.
        class_weights: none, gentle, tempered or balanced: weigh rare classes up.
        batch_norm: frozen or train: whether batch statistics follow your images in the part that trains.
        patience: Stop after this many epochs without a better validation score, 0 for never.
        sweep: Train this many head configurations at once and pick by validation (default 0).
        refit: Train the head that val picked once more, on train and val together (default: yes); val figures are of before.
        minutes: How long you will wait: one way of training after the other, as long as that lasts, and a blend of what they
            gave.
        seed: Seed of everything that is random (default 0).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        sub_batch: Samples that go through the network at once; a step adds up several. Left out, what fits.
        eval_batch: Samples at once where no gradients are needed. Left out, what fits.
        grad_ckpt: Compute activations twice to save memory. Left out, only where it is needed.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        compile: Compile the network with torch.compile. Left out, only where it repays its time.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.
        devices: Processes that train together, one for each device. Left out, one; with --on, one on each node.
        log: Also send runs to mlflow, mlflow:URI or tensorboard; repeat it for both. Never unasked: it is not remembered.
        checkpoint_every: Seconds between checkpoints within an epoch (default 60).

    Profile:
        profile: Record the first steps with torch.profiler, into logs/profiler: traces, a page, the top operators (default no).
        profile_wait: Steps to let pass before the profiler begins (default 1).
        profile_warmup: Steps in which it runs and keeps nothing (default 1).
        profile_active: Steps that are recorded (default 3).
        profile_repeat: How often, one trace each (default 1).

    Returns:
        The run: its name, folder, report and record. A rehearsal (`dry_run`) is a `Rehearsal`, which has none of these; with
        `fold="all"` it is a `FoldsResult`, with the run of every fold.

    Example:
        >>> result = unchoke.fit("photos/", out="work", epochs=2)
        >>> result.run
        'exp_2'
        >>> sorted(result.record["metrics"])
        ['test', 'val']
    """
    options = dict(locals())
    from unchoke.training.fit import fit as run

    return run(**options)


def train(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    cache: Literal["ram", "disk", "none"] | None = None,
    job_size: int | None = None,
    head: Literal["linear", "mlp", "attention"] | None = None,
    fusion: Literal["mean", "film", "attention"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layer_decay: float | None = None,
    warmup: float | None = None,
    ema: float | None = None,
    clip: float | None = None,
    label_smoothing: float | None = None,
    mixup: float | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    class_weights: Literal["none", "gentle", "tempered", "balanced"] | None = None,
    batch_norm: Literal["frozen", "train"] | None = None,
    patience: int | None = None,
    sweep: int | None = None,
    refit: bool | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
    memory: str | None = None,
    sub_batch: int | None = None,
    eval_batch: int | None = None,
    grad_ckpt: bool | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    compile: bool | None = None,
    channels_last: bool | None = None,
    devices: int | None = None,
    log: Sequence[str] = (),
    checkpoint_every: float | None = None,
    profile: bool | None = None,
    profile_wait: int | None = None,
    profile_warmup: int | None = None,
    profile_active: int | None = None,
    profile_repeat: int | None = None,
) -> FitResult:
    """Train and evaluate, as `fit` does, without the gate in front: for the next experiment on data that was checked before.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        cache: ram, disk or none: where decoded images are kept with `cut="none"`. Left out, chosen by what fits.
        job_size: Images per micro-job (default 64).

    Trained part:
        head: linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks.
        fusion: How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean).
        epochs: Passes over the training samples (default 20).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        lr: Learning rate: of the head, and of the last block that trains.
        weight_decay: AdamW weight decay.
        layer_decay: Learning rate of each layer as a share of that of the layer above it, up to 1.
        warmup: Epochs in which the learning rate rises to its full value.
        ema: Decay of the running average of the weights that is evaluated and kept, 0 for none.
        clip: Largest gradient norm, 0 for no limit.
        label_smoothing: Label smoothing, 0 to below 1.
        mixup: Mixup: alpha of its beta distribution, 0 for none.
        augment: none, light or strong: how much images are varied with `cut="none"`.
        class_weights: none, gentle, tempered or balanced: weigh rare classes up.
        batch_norm: frozen or train: whether batch statistics follow your images in the part that trains.
        patience: Stop after this many epochs without a better validation score, 0 for never.
        sweep: Train this many head configurations at once and pick by validation (default 0).
        refit: Train the head that val picked once more, on train and val together (default: yes); val figures are of before.
        minutes: How long you will wait: one way of training after the other, as long as that lasts, and a blend of what they
            gave.
        seed: Seed of everything that is random (default 0).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        sub_batch: Samples that go through the network at once; a step adds up several. Left out, what fits.
        eval_batch: Samples at once where no gradients are needed. Left out, what fits.
        grad_ckpt: Compute activations twice to save memory. Left out, only where it is needed.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        compile: Compile the network with torch.compile. Left out, only where it repays its time.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.
        devices: Processes that train together, one for each device. Left out, one; with --on, one on each node.
        log: Also send runs to mlflow, mlflow:URI or tensorboard; repeat it for both. Never unasked: it is not remembered.
        checkpoint_every: Seconds between checkpoints within an epoch (default 60).

    Profile:
        profile: Record the first steps with torch.profiler, into logs/profiler: traces, a page, the top operators (default no).
        profile_wait: Steps to let pass before the profiler begins (default 1).
        profile_warmup: Steps in which it runs and keeps nothing (default 1).
        profile_active: Steps that are recorded (default 3).
        profile_repeat: How often, one trace each (default 1).

    Returns:
        The run: its name, folder, report and record. With `fold="all"` it is a `FoldsResult`, with the run of every fold.

    Example:
        >>> unchoke.train(out="work", head="linear", epochs=2).already_done
        False
    """
    options = dict(locals())
    from unchoke.training.fit import train as run

    return run(**options)


def check(
    data: str | Path | None = None,
    *,
    dataset: object | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    on: str | None = None,
) -> CheckResult:
    """Pre-flight gate: is this data sound, and can workers load it? Never writes inside the data.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        dataset: An object, a torch Dataset for instance, that is also sent to a spawned worker and loaded from; or its name,
            ``my_module:make_dataset``. Without `data`, that is all.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Machine:
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.

    Returns:
        Findings, and whether there is an error among them (`ok`).

    Example:
        >>> unchoke.check("photos/", out="work").ok
        True
    """
    options = dict(locals())
    from unchoke.data.check_samples import check as run

    return run(**options)


def extract(
    data: str | Path | None = None,
    *,
    job: str | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    cache: Literal["ram", "disk", "none"] | None = None,
    job_size: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
) -> ExtractResult:
    """The frozen part alone, in resumable micro-jobs.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        job: Run this one job of features/jobs_queue.csv, done or not.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be done; nothing is extracted or trained.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        cache: ram, disk or none: where decoded images are kept with `cut="none"`. Left out, chosen by what fits.
        job_size: Images per micro-job (default 64).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.

    Returns:
        How many images and jobs were run, how many are left, and where the features lie.

    Example:
        >>> unchoke.extract(out="work").num_jobs_left
        0
    """
    options = dict(locals())
    from unchoke.training.fit import extract as run

    return run(**options)


def detach(
    command: Literal["fit", "train"],
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    cache: Literal["ram", "disk", "none"] | None = None,
    job_size: int | None = None,
    head: Literal["linear", "mlp", "attention"] | None = None,
    fusion: Literal["mean", "film", "attention"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layer_decay: float | None = None,
    warmup: float | None = None,
    ema: float | None = None,
    clip: float | None = None,
    label_smoothing: float | None = None,
    mixup: float | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    class_weights: Literal["none", "gentle", "tempered", "balanced"] | None = None,
    batch_norm: Literal["frozen", "train"] | None = None,
    patience: int | None = None,
    sweep: int | None = None,
    refit: bool | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
    memory: str | None = None,
    sub_batch: int | None = None,
    eval_batch: int | None = None,
    grad_ckpt: bool | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    compile: bool | None = None,
    channels_last: bool | None = None,
    devices: int | None = None,
    log: Sequence[str] = (),
    checkpoint_every: float | None = None,
    profile: bool | None = None,
    profile_wait: int | None = None,
    profile_warmup: int | None = None,
    profile_active: int | None = None,
    profile_repeat: int | None = None,
) -> BackgroundRun:
    """Start `fit` or `train` in the background: it goes on when this terminal or notebook is closed. `watch_run` follows it.

    Args:
        command: Which of the two. What is wrong from the start is raised here.
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        cache: ram, disk or none: where decoded images are kept with `cut="none"`. Left out, chosen by what fits.
        job_size: Images per micro-job (default 64).

    Trained part:
        head: linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks.
        fusion: How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean).
        epochs: Passes over the training samples (default 20).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        lr: Learning rate: of the head, and of the last block that trains.
        weight_decay: AdamW weight decay.
        layer_decay: Learning rate of each layer as a share of that of the layer above it, up to 1.
        warmup: Epochs in which the learning rate rises to its full value.
        ema: Decay of the running average of the weights that is evaluated and kept, 0 for none.
        clip: Largest gradient norm, 0 for no limit.
        label_smoothing: Label smoothing, 0 to below 1.
        mixup: Mixup: alpha of its beta distribution, 0 for none.
        augment: none, light or strong: how much images are varied with `cut="none"`.
        class_weights: none, gentle, tempered or balanced: weigh rare classes up.
        batch_norm: frozen or train: whether batch statistics follow your images in the part that trains.
        patience: Stop after this many epochs without a better validation score, 0 for never.
        sweep: Train this many head configurations at once and pick by validation (default 0).
        refit: Train the head that val picked once more, on train and val together (default: yes); val figures are of before.
        minutes: How long you will wait: one way of training after the other, as long as that lasts, and a blend of what they
            gave.
        seed: Seed of everything that is random (default 0).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        sub_batch: Samples that go through the network at once; a step adds up several. Left out, what fits.
        eval_batch: Samples at once where no gradients are needed. Left out, what fits.
        grad_ckpt: Compute activations twice to save memory. Left out, only where it is needed.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        compile: Compile the network with torch.compile. Left out, only where it repays its time.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.
        devices: Processes that train together, one for each device. Left out, one; with --on, one on each node.
        log: Also send runs to mlflow, mlflow:URI or tensorboard; repeat it for both. Never unasked: it is not remembered.
        checkpoint_every: Seconds between checkpoints within an epoch (default 60).

    Profile:
        profile: Record the first steps with torch.profiler, into logs/profiler: traces, a page, the top operators (default no).
        profile_wait: Steps to let pass before the profiler begins (default 1).
        profile_warmup: Steps in which it runs and keeps nothing (default 1).
        profile_active: Steps that are recorded (default 3).
        profile_repeat: How often, one trace each (default 1).

    Returns:
        The process, and where it writes what it says.

    Example:
        >>> started = unchoke.detach("train", out="work", head="mlp", epochs=2)
        >>> unchoke.watch_run(out="work").ok
        True
    """
    options = dict(locals())
    from unchoke.training.detach import detach as run

    return run(**options)


def watch_run(
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    on_line: Callable[[str], None] | None = None,
) -> BackgroundResult:
    """Follow the newest detached command to its end, or tell how it ended; its error is raised as if it had run here.

    Interrupting stops the watching, not the run.

    Args:
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        on_line: Called with the lines as they were written, in the place of `on_event`.

    Returns:
        The result the command would have ended with.

    Example:
        >>> started = unchoke.detach("fit", "photos/", out="work", head="linear", epochs=3)
        >>> unchoke.watch_run(out="work").result["run"]
        'exp_2'
    """
    from unchoke.training.detach import watch_run as run

    return run(out=out, on_event=on_event, on_line=on_line)


def tune(
    data: str | Path | None = None,
    *,
    minutes: float = 2.0,
    again: bool = False,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    cache: Literal["ram", "disk", "none"] | None = None,
    job_size: int | None = None,
    head: Literal["linear", "mlp", "attention"] | None = None,
    fusion: Literal["mean", "film", "attention"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layer_decay: float | None = None,
    warmup: float | None = None,
    ema: float | None = None,
    clip: float | None = None,
    label_smoothing: float | None = None,
    mixup: float | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    class_weights: Literal["none", "gentle", "tempered", "balanced"] | None = None,
    batch_norm: Literal["frozen", "train"] | None = None,
    patience: int | None = None,
    sweep: int | None = None,
    refit: bool | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    memory: str | None = None,
    sub_batch: int | None = None,
    eval_batch: int | None = None,
    grad_ckpt: bool | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    compile: bool | None = None,
    channels_last: bool | None = None,
    devices: int | None = None,
    checkpoint_every: float | None = None,
) -> TuneResult:
    """Try the tricks on this machine, model and data; keep what is equal and faster. `train` and `fit` use what was kept.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        minutes: How long it may take, at most.
        again: Try everything anew, also what was tried here before.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be tried, and try nothing.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        cache: ram, disk or none: where decoded images are kept with `cut="none"`. Left out, chosen by what fits.
        job_size: Images per micro-job (default 64).

    Trained part:
        head: linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks.
        fusion: How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean).
        epochs: Passes over the training samples (default 20).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        lr: Learning rate: of the head, and of the last block that trains.
        weight_decay: AdamW weight decay.
        layer_decay: Learning rate of each layer as a share of that of the layer above it, up to 1.
        warmup: Epochs in which the learning rate rises to its full value.
        ema: Decay of the running average of the weights that is evaluated and kept, 0 for none.
        clip: Largest gradient norm, 0 for no limit.
        label_smoothing: Label smoothing, 0 to below 1.
        mixup: Mixup: alpha of its beta distribution, 0 for none.
        augment: none, light or strong: how much images are varied with `cut="none"`.
        class_weights: none, gentle, tempered or balanced: weigh rare classes up.
        batch_norm: frozen or train: whether batch statistics follow your images in the part that trains.
        patience: Stop after this many epochs without a better validation score, 0 for never.
        sweep: Train this many head configurations at once and pick by validation (default 0).
        refit: Train the head that val picked once more, on train and val together (default: yes); val figures are of before.
        seed: Seed of everything that is random (default 0).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        sub_batch: Samples that go through the network at once; a step adds up several. Left out, what fits.
        eval_batch: Samples at once where no gradients are needed. Left out, what fits.
        grad_ckpt: Compute activations twice to save memory. Left out, only where it is needed.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        compile: Compile the network with torch.compile. Left out, only where it repays its time.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.
        devices: Processes that train together, one for each device. Left out, one; with --on, one on each node.
        checkpoint_every: Seconds between checkpoints within an epoch (default 60).

    Returns:
        A verdict on every switch, with what was measured.

    Example:
        >>> unchoke.tune(out="work", cut="none", dry_run=True).dry_run
        True
    """
    options = dict(locals())
    from unchoke.tuning.tune import tune as run

    return run(**options)


def encoders(
    data: str | Path | None = None,
    *,
    encoders: Sequence[str] | str = (),
    minutes: float = 3.0,
    keep: bool = False,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    device: str | None = None,
    workers: int | None = None,
) -> EncodersResult:
    """Compare encoders on a sample of your photos: how well plain heads do on their features, and what those cost.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        encoders: timm model names, a list or separated by commas. Left out, those whose weights are installed.
        minutes: About how long it may take.
        keep: Let the next `fit` use the choice.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.

    Returns:
        Every candidate with its score, speed and size, and the one to take.

    Example:
        >>> unchoke.encoders(out="work", encoders=["test_resnet"]).figure
        'accuracy'
    """
    options = dict(locals())
    from unchoke.tuning.compare_encoders import encoders as run

    return run(**options)


def curate(
    data: str | Path | None = None,
    *,
    unlabelled: str | Path | None = None,
    num: int = 50,
    csv: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
) -> Curation:
    """What a person should look at in the data: likely wrong labels, near-copies, odd photos; ranked, with suggested decisions.

    Args:
        data: Class folders, a table, or a run: exp_3, latest or best. Left out, what this workspace was made for.
        unlabelled: Folder of photos without labels: those to label next come first.
        num: How many of them.
        csv: Write a row for each finding to this CSV file.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.

    Returns:
        Findings, the most pressing first, and the queue of those that wait for a decision.

    Example:
        >>> unchoke.curate(out="work").num_photos
        42
    """
    options = dict(locals())
    from unchoke.curation.curate import curate as run

    return run(**options)


def evaluate(run: str | Path = "latest", *, out: str | Path | None = None, on_event: OnEvent | None = None) -> Evaluation:
    """Score a run again from its files: what was cached and the saved weights, no training.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        Fresh scores of val and test, beside what the run's record says.

    Example:
        >>> sorted(unchoke.evaluate("best", out="work").to_dict()["metrics"])
        ['test', 'val']
    """
    from unchoke.training.evaluate import evaluate as score

    return score(run, out=out, on_event=on_event)


def predict(
    run: str | Path,
    images: Sequence[str | Path],
    *,
    to: str | Path | None = None,
    inputs: str | Path | None = None,
    probabilities: bool = False,
    top: int | None = None,
    unsure_below: float | None = None,
    level: float | None = None,
    corrections: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    on: str | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> Predictions:
    """Predict new images with a run, from its files alone.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        images: Image files or folders.
        to: Write the predictions to this CSV file.
        inputs: Table with the images' extra columns, for a run trained with `input`.
        probabilities: Give the probability of every class, as `p/NAME`.
        top: Give so many guesses, the likeliest first: `predicted_2`, `confidence_2` and so on.
        unsure_below: Call images "unsure" whose class is less probable than this; `guess` still has it.
        level: Of a run trained on values: how many of 1 their intervals, `NAME/low` to `NAME/high`, are to hold (default 0.9).
        corrections: CSV file with decisions about the run's own photos, for what `unsure_below` and `level` say of them. Left
            out, corrections.csv of the run's workspace, where there is one; "none" for no file.
        weights: The encoder's weights, where they are no longer found.
        device: cpu, cuda or mps.
        on: The Ray cluster that predicts: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        A row for each image, in order; one that could not be read has its reason under `error`, and nothing else.

    Example:
        >>> unchoke.predict("best", ["photos/apple"], out="work").rows[0]["predicted"]
        'apple'
    """
    from unchoke.training.predict import predict as predict_images

    shape: dict[str, Any] = {"probabilities": probabilities, "top": top, "unsure_below": unsure_below, "level": level}
    where: dict[str, Any] = {"corrections": corrections, "device": device, "on": on, "out": out}
    return predict_images(run, images, to=to, inputs=inputs, **shape, weights=weights, **where, on_event=on_event)


def load_model(
    run: str | Path,
    *,
    weights: str | Path | None = None,
    device: str | None = None,
    out: str | Path | None = None,
) -> LoadedModel:
    """The model of a run as a `torch.nn.Module`, from pixels to probabilities or values, with its preprocessing inside.

    Args:
        run: A run: exp_3, 3, latest, best, or the folder of one, exported or not.
        weights: The encoder's weights, where they are no longer found.
        device: Where to put it: cpu, cuda or mps (default cpu).
        out: Workspace folder (default unchoke-out).

    Returns:
        A module with `classes` (or `targets`), `predict_proba` and `predict`, for lists of files, PIL images or arrays.

    Example:
        >>> model = unchoke.load_model("best", out="work")
        >>> str(model.predict(["photos/apple/apple 00.jpg"])[0])
        'apple'
    """
    from unchoke.core.brief_waits import wait_briefly

    wait_briefly()
    from unchoke.training.load_model import load_model as load

    return load(run, weights=weights, device=device, out=out)


def report(run: str | Path = "latest", *, out: str | Path | None = None) -> Path:
    """Write report.html of a run again, from its files alone.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        out: Workspace folder (default unchoke-out).

    Returns:
        The page that was written.

    Example:
        >>> unchoke.report("latest", out="work").name
        'report.html'
    """
    from unchoke.runs.lookup import report as write_report

    return write_report(run, out=out)


def list_runs(*, out: str | Path | None = None, sort: str = "run") -> list[dict[str, Any]]:
    """All runs of the workspace, oldest first.

    Args:
        out: Workspace folder (default unchoke-out).
        sort: What to sort by: a column of `unchoke runs list`, or a metric, the best first.

    Returns:
        For each run its name, settings, status and final metrics, as `unchoke runs list --json` has them.

    Example:
        >>> [run["name"] for run in unchoke.list_runs(out="work")]
        ['exp_1']
    """
    from unchoke.runs.lookup import list_runs as find_runs

    return find_runs(out=out, sort=sort)


def show_run(run: str | Path = "latest", *, out: str | Path | None = None) -> RunRecord:
    """One run: settings, choices, metrics, timings, files.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        out: Workspace folder (default unchoke-out).

    Returns:
        The run's record, as `record.json` has it, without pictures, and the path of its report.

    Example:
        >>> unchoke.show_run("latest", out="work").run
        'exp_1'
    """
    from unchoke.runs.lookup import show_run as find_record

    return find_record(run, out=out)


def compare_runs(runs: Sequence[str], *, out: str | Path | None = None) -> list[StoredRun]:
    """Runs side by side: what differs in settings, and in results.

    Args:
        runs: Two or more runs.
        out: Workspace folder (default unchoke-out).

    Returns:
        Each run as the database knows it, in the order given.

    Example:
        >>> [run.name for run in unchoke.compare_runs(["exp_1", "best"], out="work")]
        ['exp_1', 'exp_1']
    """
    from unchoke.runs.lookup import compare_runs as find_records

    return find_records(runs, out=out)


def best_run(metric: str | None = None, *, out: str | Path | None = None) -> RunRecord:
    """The run with the best validation score.

    Args:
        metric: Which metric (default accuracy, or r2).
        out: Workspace folder (default unchoke-out).

    Returns:
        The run's record, as `show_run` gives it.

    Example:
        >>> unchoke.best_run("accuracy", out="work").run
        'exp_1'
    """
    from unchoke.runs.lookup import best_run as find_best

    return find_best(metric, out=out)


def export_run(
    run: str | Path,
    to: str | Path,
    *,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
) -> dict[str, Any]:
    """One folder with everything `evaluate`, `predict` and `report` need, to take to another machine.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        to: The folder to make, whole or not at all.
        weights: The encoder's weights, where they are no longer found.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The `folder`, the `run`, its `size_bytes`, and whether it draws `masks`.

    Example:
        >>> unchoke.export_run("best", "exported", out="work")["run"]
        'exp_1'
    """
    from unchoke.training.export_run import export_run as export

    return export(run, to, weights=weights, out=out, on_event=on_event)


def export(
    run: str | Path,
    *,
    to: str | Path,
    format: str = "onnx",
    precision: str = "f32",
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
    from unchoke.exports.export_model import export_model

    return export_model(run, to=to, format=format, precision=precision, units=units, weights=weights, out=out, on_event=on_event)


def list_presets() -> list[Preset]:
    """The presets, with what each is for and what it expects of the data.

    Returns:
        Every preset that comes with unchoke, by name.

    Example:
        >>> [preset.name for preset in unchoke.list_presets()][:2]
        ['biomass', 'ham10000']
    """
    from unchoke.core.presets import list_presets as find_presets

    return find_presets()


def show_preset(name: str) -> Preset:
    """A preset as it is written: every setting, and why.

    Args:
        name: A preset, or a TOML file.

    Returns:
        The preset: what it is for, its settings, and the text of its file.

    Example:
        >>> unchoke.show_preset("leaves-4gb").values["memory"]
        '4GB'
    """
    from unchoke.core.presets import load_preset

    return load_preset(name)


def tile(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    dry_run: bool = False,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    max_failures: float | None = None,
    bands: Sequence[str] = (),
    grid: str | None = None,
    resampling: Literal["nearest", "bilinear", "cubic", "average"] | None = None,
    tile_size: int | Literal["auto"] | None = None,
    overlap: int | None = None,
    edges: Literal["smaller", "padded"] | None = None,
    normalise: str | None = None,
    mask: str | None = None,
    polygons: str | Path | None = None,
    polygon_class: str | None = None,
    min_valid: float | None = None,
    compress: Literal["isal", "zlib", "none"] | None = None,
    store: Literal["float32", "raw"] | None = None,
    parallel: Literal["threads", "processes"] | None = None,
    block_px: int | None = None,
    classes: Sequence[str] = (),
    ignore: int | None = None,
    seed: int | None = None,
    workers: int | None = None,
    on: str | None = None,
) -> TileResult:
    """Scenes to training tiles: band files, multi-band files or large images, cut into NPZ windows with masks and a manifest.

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        dry_run: Say what would be done, and write no tile.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        group: Column that must not be torn apart by the split: scenes of one place or day. 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).

    Scenes:
        bands: Bands to use, in this order: B2,B3,B4. Left out, all bands every scene has.
        grid: Pixels to work on: finest, coarsest, the name of a band, or a pixel size (default finest).
        resampling: nearest, bilinear, cubic or average: how bands come onto the grid (default bilinear).
        tile_size: Side of a tile in pixels, or auto: measured on your scenes (default 512).
        overlap: Pixels that neighbouring windows share (default 0 for tiles, 64 for patches).
        edges: smaller or padded: what becomes of windows at the right and lower edge (default smaller).
        normalise: none, max (of a sample where a scene is large), max:all, percentile, percentile:2,98, a number, or
            B2=10000,B3=9000: what bands are divided by.
        mask: Expression over bands that is true inside the mask, for instance '(B3-B5)/(B3+B5) > 0'.
        polygons: Vector file (GeoJSON, GeoPackage, shapefile) whose polygons are the mask.
        polygon_class: Field of the polygons that holds their class number. Left out, every polygon is class 1.
        min_valid: Skip tiles with a smaller share of valid pixels; 0 skips none (default 0).
        compress: isal, zlib or none: how NPZ files are written. Left out, measured on your scenes.
        store: float32, normalised; or raw: as the files have it, with the constants beside it (default float32).
        parallel: threads or processes. Left out, threads, unless processes measure faster.
        block_px: Side of the blocks that go to train, val or test as a whole. Left out, chosen from the scenes.
        classes: Names of the classes 0, 1, …: clear,cloud.
        ignore: Label value that counts as unlabelled.

    Trained part:
        seed: Seed of everything that is random (default 0).

    Machine:
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.

    Returns:
        The tiles, the manifest that lists them, and the scenes that could not be read.

    Example:
        >>> unchoke.tile("scenes/", out="tiled", tile_size=64).ok
        True
    """
    options = dict(locals())
    from unchoke.scenes.tiling.tile import tile as run

    return run(**options)


def segment_train(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    notes: Sequence[str] = (),
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    max_failures: float | None = None,
    bands: Sequence[str] = (),
    grid: str | None = None,
    resampling: Literal["nearest", "bilinear", "cubic", "average"] | None = None,
    overlap: int | None = None,
    normalise: str | None = None,
    mask: str | None = None,
    polygons: str | Path | None = None,
    polygon_class: str | None = None,
    block_px: int | None = None,
    classes: Sequence[str] = (),
    ignore: int | None = None,
    patch_size: int | None = None,
    strides: Sequence[int] | str = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    job_size: int | None = None,
    baseline: str | None = None,
    decoder: Literal["unet", "fpn"] | None = None,
    dice: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layer_decay: float | None = None,
    warmup: float | None = None,
    ema: float | None = None,
    clip: float | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    class_weights: Literal["none", "gentle", "tempered", "balanced"] | None = None,
    batch_norm: Literal["frozen", "train"] | None = None,
    patience: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
    memory: str | None = None,
    sub_batch: int | None = None,
    eval_batch: int | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    compile: bool | None = None,
    channels_last: bool | None = None,
    devices: int | None = None,
    log: Sequence[str] = (),
    checkpoint_every: float | None = None,
    profile: bool | None = None,
    profile_wait: int | None = None,
    profile_warmup: int | None = None,
    profile_active: int | None = None,
    profile_repeat: int | None = None,
) -> FitResult:
    """Train a decoder on the encoder's cached pyramids of patches (or, with `cut="none"`, the whole network).

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        notes: Shown in the report: what a reader must know of the labels.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        group: Column that must not be torn apart by the split: scenes of one place or day. 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).

    Scenes:
        bands: Bands to use, in this order: B2,B3,B4. Left out, all bands every scene has.
        grid: Pixels to work on: finest, coarsest, the name of a band, or a pixel size (default finest).
        resampling: nearest, bilinear, cubic or average: how bands come onto the grid (default bilinear).
        overlap: Pixels that neighbouring windows share (default 0 for tiles, 64 for patches).
        normalise: none, max (of a sample where a scene is large), max:all, percentile, percentile:2,98, a number, or
            B2=10000,B3=9000: what bands are divided by.
        mask: Expression over bands that is true inside the mask, for instance '(B3-B5)/(B3+B5) > 0'.
        polygons: Vector file (GeoJSON, GeoPackage, shapefile) whose polygons are the mask.
        polygon_class: Field of the polygons that holds their class number. Left out, every polygon is class 1.
        block_px: Side of the blocks that go to train, val or test as a whole. Left out, chosen from the scenes.
        classes: Names of the classes 0, 1, …: clear,cloud.
        ignore: Label value that counts as unlabelled.

    Frozen part:
        patch_size: Side of a patch in pixels (default 256).
        strides: Levels of the encoder's pyramid that are kept (default 4,8,16,32).
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        job_size: Images per micro-job (default 64).

    Trained part:
        baseline: Expression to compare with on the test pixels, true for class 1: '(b3-b6)/(b3+b6) > 0'.
        decoder: unet or fpn, from segmentation-models-pytorch (default fpn; unet for other strides than 4,8,16,32).
        dice: Share of the Dice loss; the rest is cross-entropy (default 0.5).
        epochs: Passes over the training samples (default 20).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        lr: Learning rate: of the head, and of the last block that trains.
        weight_decay: AdamW weight decay.
        layer_decay: Learning rate of each layer as a share of that of the layer above it, up to 1.
        warmup: Epochs in which the learning rate rises to its full value.
        ema: Decay of the running average of the weights that is evaluated and kept, 0 for none.
        clip: Largest gradient norm, 0 for no limit.
        augment: none, light or strong: how much images are varied with `cut="none"`.
        class_weights: none, gentle, tempered or balanced: weigh rare classes up.
        batch_norm: frozen or train: whether batch statistics follow your images in the part that trains.
        patience: Stop after this many epochs without a better validation score, 0 for never.
        seed: Seed of everything that is random (default 0).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        sub_batch: Samples that go through the network at once; a step adds up several. Left out, what fits.
        eval_batch: Samples at once where no gradients are needed. Left out, what fits.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        compile: Compile the network with torch.compile. Left out, only where it repays its time.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.
        devices: Processes that train together, one for each device. Left out, one; with --on, one on each node.
        log: Also send runs to mlflow, mlflow:URI or tensorboard; repeat it for both. Never unasked: it is not remembered.
        checkpoint_every: Seconds between checkpoints within an epoch (default 60).

    Profile:
        profile: Record the first steps with torch.profiler, into logs/profiler: traces, a page, the top operators (default no).
        profile_wait: Steps to let pass before the profiler begins (default 1).
        profile_warmup: Steps in which it runs and keeps nothing (default 1).
        profile_active: Steps that are recorded (default 3).
        profile_repeat: How often, one trace each (default 1).

    Returns:
        The run, a `SegmentResult`: its name, folder, report and record.

    Example:
        >>> unchoke.segment_train("scenes/", out="drawn", mask="red > green", patch_size=64, overlap=0, epochs=1).run
        'exp_1'
    """
    options = dict(locals())
    from unchoke.masks.segment_train import segment_train as run

    return run(**options)


def segment_predict(
    run: str | Path,
    scenes: str | Path,
    *,
    to: str | Path | None = None,
    out: str | Path | None = None,
    probabilities: bool = True,
    overlap: int | None = None,
    memory: str | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    on: str | None = None,
    on_event: OnEvent | None = None,
) -> SegmentPredictResult:
    """Masks of whole scenes, stitched from patches in bounded memory: GeoTIFFs in the scene's place on the map, PNG for photos.

    Args:
        run: A run of `segment_train`: exp_3, 3, latest, best, or an exported folder.
        scenes: Scenes as for `tile`: a folder, a table, a file.
        to: Folder for the masks (default: masks/RUN in the workspace).
        out: Workspace folder (default unchoke-out).
        probabilities: Write the probability of each class as well.
        overlap: Pixels that patches share (default: as trained).
        memory: Memory it may take, for instance 2GB.
        weights: The encoder's weights, where they are no longer found.
        device: cpu, cuda or mps.
        on: The Ray cluster that predicts: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The masks that were written, and the scenes that could not be read.

    Example:
        >>> len(unchoke.segment_predict("mask_run", "scenes/", to="masks", out="drawn").masks)
        1
    """
    from unchoke.masks.segment_predict import segment_predict as draw

    return draw(
        run,
        scenes,
        to=to,
        out=out,
        probabilities=probabilities,
        overlap=overlap,
        memory=memory,
        weights=weights,
        device=device,
        on=on,
        on_event=on_event,
    )


def budget(
    *,
    benchmark: bool = False,
    on_event: OnEvent | None = None,
    encoder: str | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    fusion: Literal["mean", "film", "attention"] | None = None,
    batch_size: int | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    device: str | None = None,
    memory: str | None = None,
    grad_ckpt: bool | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    channels_last: bool | None = None,
) -> BudgetResult:
    """What batch fits here, and how fast it is: measured in processes of their own, without data. Left out, `cut` is none.

    Without `batch_size`, the largest batch is looked for; with one, how to run it under the limit.

    Args:
        benchmark: Time every batch size on the way, and name the fastest.
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).

    Trained part:
        fusion: How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        augment: none, light or strong: how much images are varied with `cut="none"`.

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        grad_ckpt: Compute activations twice to save memory. Left out, only where it is needed.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.

    Returns:
        The largest batch that fits, by way of running, and what its memory is made of.

    Example:
        >>> unchoke.budget(encoder="test_resnet", batch_size=2, device="cpu").fits["train"] >= 2
        True
    """
    options = dict(locals())
    from unchoke.training.budget import budget as run

    return run(**options)


def doctor(
    *,
    folder: str | Path = ".",
    overrides: Mapping[str, Any] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
) -> DoctorReport:
    """This machine: what it is, and what was chosen for it, each with its reason. Changes nothing.

    Args:
        folder: Which disk is meant.
        overrides: Further choices to make otherwise, by the names that `policy` has them under.

    Frozen part:
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.

    Returns:
        The facts of the machine and the policy chosen for it.

    Example:
        >>> unchoke.doctor(device="cpu").policy.device
        'cpu'
    """
    from unchoke.machine.doctor import doctor as run

    given = {"device": device, "workers": workers, "dtype": precision}
    return run(folder=folder, overrides={**given, **(overrides or {})}, on=on)


def cluster_check(
    address: str,
    data: str | Path | None = None,
    *,
    images: Sequence[str | Path] = (),
    on_event: OnEvent | None = None,
) -> ClusterCheck:
    """Can this Ray cluster do the work, and does every node give the same answer? Keeps nothing.

    Every node is asked what it is (versions, clock, token), whether it can read the photos, and to extract some of them.

    Args:
        address: The cluster, as `on` of other commands: ray://HOST:10001, HOST:6379 or auto.
        data: Photos as for `fit`; left out, some are made up.
        images: Folders with the images of a table.
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        What each node is, what it made of the photos, and findings.

    Example:
        >>> unchoke.cluster_check("127.0.0.1:1")
        Traceback (most recent call last):
        unchoke_doctor.errors.MachineError: nothing answers at 127.0.0.1:1
    """
    from unchoke.features.cluster_check import cluster_check as run

    return run(address, data, images=images, on_event=on_event)


def profile_train(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    exclude: Sequence[str] = (),
    corrections: str | Path | None = None,
    strict: bool | None = None,
    drop_duplicates: bool | None = None,
    target: Sequence[str] = (),
    long: tuple[str, str] | None = None,
    input: Sequence[str] = (),
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    folds: int | None = None,
    fold: int | Literal["all"] | None = None,
    fold_column: str | None = None,
    expect: str | None = None,
    max_failures: float | None = None,
    positive: bool | None = None,
    sums: Mapping[str, Sequence[str]] | Sequence[str] = (),
    target_weights: Mapping[str, float] | Sequence[str] = (),
    encoder: str | None = None,
    weights: str | Path | None = None,
    cut: str | None = None,
    input_px: int | None = None,
    streams: int | None = None,
    tiles: str | None = None,
    views: int | None = None,
    engine: Literal["torch", "openvino"] | None = None,
    precision: Literal["f32", "bf16", "f16", "int8"] | None = None,
    cache: Literal["ram", "disk", "none"] | None = None,
    job_size: int | None = None,
    head: Literal["linear", "mlp", "attention"] | None = None,
    fusion: Literal["mean", "film", "attention"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    layer_decay: float | None = None,
    warmup: float | None = None,
    ema: float | None = None,
    clip: float | None = None,
    label_smoothing: float | None = None,
    mixup: float | None = None,
    augment: Literal["none", "light", "strong"] | None = None,
    class_weights: Literal["none", "gentle", "tempered", "balanced"] | None = None,
    batch_norm: Literal["frozen", "train"] | None = None,
    patience: int | None = None,
    sweep: int | None = None,
    refit: bool | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    on: str | None = None,
    memory: str | None = None,
    sub_batch: int | None = None,
    eval_batch: int | None = None,
    grad_ckpt: bool | None = None,
    train_precision: Literal["f32", "bf16", "f16"] | None = None,
    compile: bool | None = None,
    channels_last: bool | None = None,
    devices: int | None = None,
    checkpoint_every: float | None = None,
    profile_wait: int | None = None,
    profile_warmup: int | None = None,
    profile_active: int | None = None,
    profile_repeat: int | None = None,
) -> TrainingProfile:
    """Some steps of `train` under torch.profiler: where a step's time went, the top operators, a page. Keeps no run.

    Args:
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        exclude: Photos to leave out: '*_mask.png' or 'old/*', for names or paths below DATA; repeat it for more. 'none' forgets
            all.
        corrections: CSV file with decisions about single photos: labels, photos to drop, groups. Left out, corrections.csv in the
            workspace, where there is one; 'none' for no file.
        strict: Table and files must match both ways: an image without a row or class folder, or a row without an image, stops fit
            (default no).
        drop_duplicates: Of photos with the same bytes and the same label, use one (default no).
        target: Numeric column to predict; one or several. For long tables: a target name to keep.
        long: NAME,VALUE columns of a table with one row per image and target.
        input: Numeric column the network sees beside the image (NDVI, height); one or several.
        group: Column that must not be torn apart by the split: all pictures of a lesion, a patient, a plant. path:plot reads it
            from names like plot12; 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        folds: Split into K folds instead; `fold` says which one is the test set.
        fold: Which fold is the test set, or all: one run for each, every sample predicted once (default 0).
        fold_column: Column that says each sample's fold; --fold counts its values from 0, in their order.
        expect: What every image should be, for instance '600x450 rgb'; 'any' drops what a preset expects.
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).
        positive: Targets are never negative: the outputs cannot be either (default no).
        sums: NAME=A+B: this target is the sum of others and is derived, not learned; one or several.
        target_weights: NAME=W: what this target counts in loss and score; one or several.

    Frozen part:
        encoder: Network: any timm model name (default tf_efficientnet_lite0).
        weights: Weights file for the encoder: safetensors, or a .pt with nothing but tensors.
        cut: Where the frozen part ends: end (all; for masks, pyramid), blocks (all, with pooled maps beside the end), -4 (the
            last 4 blocks train), none (everything trains).
        input_px: Side of the square the network sees, in pixels. Left out, the one it was made for.
        streams: Split each image side by side into this many streams (default 1).
        tiles: ROWSxCOLUMNS grid on each stream, every tile seen at full input size (default 1x1).
        views: Cache K augmented views of each image as well; training draws among them (default 0).
        engine: torch or openvino. Left out, the fastest that agrees with float32 torch on your images.
        precision: f32, bf16, f16 or int8 for the frozen part. Left out, chosen and checked.
        cache: ram, disk or none: where decoded images are kept with `cut="none"`. Left out, chosen by what fits.
        job_size: Images per micro-job (default 64).

    Trained part:
        head: linear, mlp or attention, on the frozen network. Left out, a few are tried and validation picks.
        fusion: How tiles become one: mean, film (each tile adjusted by their mean) or attention (default mean).
        epochs: Passes over the training samples (default 20).
        batch_size: Samples per step. Left out, chosen from the size of the train split.
        lr: Learning rate: of the head, and of the last block that trains.
        weight_decay: AdamW weight decay.
        layer_decay: Learning rate of each layer as a share of that of the layer above it, up to 1.
        warmup: Epochs in which the learning rate rises to its full value.
        ema: Decay of the running average of the weights that is evaluated and kept, 0 for none.
        clip: Largest gradient norm, 0 for no limit.
        label_smoothing: Label smoothing, 0 to below 1.
        mixup: Mixup: alpha of its beta distribution, 0 for none.
        augment: none, light or strong: how much images are varied with `cut="none"`.
        class_weights: none, gentle, tempered or balanced: weigh rare classes up.
        batch_norm: frozen or train: whether batch statistics follow your images in the part that trains.
        patience: Stop after this many epochs without a better validation score, 0 for never.
        sweep: Train this many head configurations at once and pick by validation (default 0).
        refit: Train the head that val picked once more, on train and val together (default: yes); val figures are of before.
        seed: Seed of everything that is random (default 0).

    Machine:
        device: cpu, cuda, cuda:N or mps. Left out, chosen by the rules of `doctor`.
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        memory: Memory that training may take, for instance 4GB; batches are measured and chosen to stay below.
        sub_batch: Samples that go through the network at once; a step adds up several. Left out, what fits.
        eval_batch: Samples at once where no gradients are needed. Left out, what fits.
        grad_ckpt: Compute activations twice to save memory. Left out, only where it is needed.
        train_precision: f32, bf16 or f16 for the part that trains. Left out, what is safe on this device.
        compile: Compile the network with torch.compile. Left out, only where it repays its time.
        channels_last: Channels-last memory layout. Left out, only where it is safe and faster.
        devices: Processes that train together, one for each device. Left out, one; with --on, one on each node.
        checkpoint_every: Seconds between checkpoints within an epoch (default 60).

    Profile:
        profile_wait: Steps to let pass before the profiler begins (default 1).
        profile_warmup: Steps in which it runs and keeps nothing (default 1).
        profile_active: Steps that are recorded (default 3).
        profile_repeat: How often, one trace each (default 1).

    Returns:
        The profile, a step divided into its stages, and findings.

    Example:
        >>> unchoke.profile_train(out="work", batch_size=4, head="linear").step["num_steps"] > 0
        True
    """
    options = dict(locals())
    from unchoke.training.profile_train import profile_train as run

    return run(**options)


def profile_tile(
    data: str | Path | None = None,
    *,
    windows: int = 24,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    preset: str | None = None,
    images: Sequence[str | Path] = (),
    id: str | None = None,
    path: str | None = None,
    label: str | Path | None = None,
    group: str | None = None,
    split: str | None = None,
    val_share: float | None = None,
    test_share: float | None = None,
    max_failures: float | None = None,
    bands: Sequence[str] = (),
    grid: str | None = None,
    resampling: Literal["nearest", "bilinear", "cubic", "average"] | None = None,
    tile_size: int | Literal["auto"] | None = None,
    overlap: int | None = None,
    edges: Literal["smaller", "padded"] | None = None,
    normalise: str | None = None,
    mask: str | None = None,
    polygons: str | Path | None = None,
    polygon_class: str | None = None,
    min_valid: float | None = None,
    compress: Literal["isal", "zlib", "none"] | None = None,
    store: Literal["float32", "raw"] | None = None,
    parallel: Literal["threads", "processes"] | None = None,
    block_px: int | None = None,
    classes: Sequence[str] = (),
    ignore: int | None = None,
    seed: int | None = None,
    workers: int | None = None,
    on: str | None = None,
) -> TileProfile:
    """Where tiling your scenes spends its time, the plain way and this one: a real profile, with .prof files for snakeviz.

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        windows: How many windows to measure.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Data:
        preset: Settings that belong together, see `list_presets`; what is typed wins. 'none' forgets one.
        images: Folder that holds the images of a table, also by URL; one or several.
        id: Column with image ids (file names with or without ending), looked up in the image folders.
        path: Column with image paths, relative to the image folders or to the table.
        label: Column with the class of each image. For scenes: a label raster, a folder of them, or a column.
        group: Column that must not be torn apart by the split: scenes of one place or day. 'none' forgets it.
        split: Column with train, val or test. Left out, a stratified split is made and kept.
        val_share: Share of the samples used to pick the best epoch or head (default 0.15).
        test_share: Share of the samples kept back for the final figures (default 0.15).
        max_failures: Share of images that cannot be read, are missing, or are copies that spoil a score, above which the run
            stops (default 0.05).

    Scenes:
        bands: Bands to use, in this order: B2,B3,B4. Left out, all bands every scene has.
        grid: Pixels to work on: finest, coarsest, the name of a band, or a pixel size (default finest).
        resampling: nearest, bilinear, cubic or average: how bands come onto the grid (default bilinear).
        tile_size: Side of a tile in pixels, or auto: measured on your scenes (default 512).
        overlap: Pixels that neighbouring windows share (default 0 for tiles, 64 for patches).
        edges: smaller or padded: what becomes of windows at the right and lower edge (default smaller).
        normalise: none, max (of a sample where a scene is large), max:all, percentile, percentile:2,98, a number, or
            B2=10000,B3=9000: what bands are divided by.
        mask: Expression over bands that is true inside the mask, for instance '(B3-B5)/(B3+B5) > 0'.
        polygons: Vector file (GeoJSON, GeoPackage, shapefile) whose polygons are the mask.
        polygon_class: Field of the polygons that holds their class number. Left out, every polygon is class 1.
        min_valid: Skip tiles with a smaller share of valid pixels; 0 skips none (default 0).
        compress: isal, zlib or none: how NPZ files are written. Left out, measured on your scenes.
        store: float32, normalised; or raw: as the files have it, with the constants beside it (default float32).
        parallel: threads or processes. Left out, threads, unless processes measure faster.
        block_px: Side of the blocks that go to train, val or test as a whole. Left out, chosen from the scenes.
        classes: Names of the classes 0, 1, …: clear,cloud.
        ignore: Label value that counts as unlabelled.

    Trained part:
        seed: Seed of everything that is random (default 0).

    Machine:
        workers: Threads or processes that load and encode.
        on: The Ray cluster that does the work: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.

    Returns:
        The stages of both ways with their seconds, and whether their tiles are equal.

    Example:
        >>> unchoke.profile_tile("scenes/", out="tiled", windows=4, tile_size=64).equal
        True
    """
    options = dict(locals())
    from unchoke.scenes.tiling.profile_tile import profile_tile as run

    return run(**options)


def profile_view(trace: str | Path, *, against: str | Path | None = None, to: str | Path | None = None) -> TraceView:
    """A trace of any run as one HTML page: steps, operators, kernels, a zoomable strip, memory; a diff of two. No network.

    Args:
        trace: A trace that torch.profiler wrote: *.pt.trace.json, or the same gzipped.
        against: An earlier trace: show what changed since.
        to: The page to write (default: beside the trace, as .html).

    Returns:
        The page that was written, and what it shows.

    Example:
        >>> unchoke.profile_view("run.pt.trace.json", to="run.html").html.name
        'run.html'
    """
    from unchoke.runs.trace.profile_view import profile_view as view

    return view(trace, against=against, to=to)


def demo(
    what: Literal["photos", "scenes"] = "photos", *, out: str | Path | None = None, on_event: OnEvent | None = None
) -> FitResult | SceneDemo:
    """All of it on real data that comes with a package: offline, a couple of minutes on two cores.

    Args:
        what: photos: grocery photos to classes; scenes: Landsat bands to a cloud mask.
        out: Folder for data and workspace (default unchoke-demo).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The run; of scenes, the tiles, the run and the mask together.

    Example:
        >>> unchoke.demo().run  # doctest: +SKIP
        'exp_1'
    """
    from unchoke.cli.demo import demo as show

    return show(what, out=out, on_event=on_event)


def ui(
    *,
    out: str | Path | None = None,
    port: int = 0,
    host: str = "127.0.0.1",
    browser: bool = True,
    on_ready: Callable[[str], object] | None = None,
    on_event: OnEvent | None = None,
) -> UiResult:
    """Serve the workspace as a local page until interrupted: runs as they train, photos, decisions about them.

    Args:
        out: Workspace folder (default unchoke-out); it may be empty, or in use.
        port: Port to listen on; 0 for one that is free.
        host: Address to listen on; another one than 127.0.0.1 lets other machines in.
        browser: Whether the page is opened in the browser.
        on_ready: Hears the address, which holds a token that is good once, as soon as requests are answered.
        on_event: Hears what happens, as values of `unchoke.core.events`; without it, lines are shown.

    Returns:
        How many decisions were written meanwhile.

    Example:
        >>> unchoke.ui(out="work").num_decisions  # doctest: +SKIP
        12
    """
    from unchoke.page.ui import ui as serve

    return serve(out=out, port=port, host=host, browser=browser, on_ready=on_ready, on_event=on_event)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext unchoke`: gives a notebook the cell magic `%%choke`."""
    import_module("unchoke_doctor.magic").register(shell)


_LAZY: dict[str, str] = {
    "BackgroundResult": "unchoke.training.detach",
    "BackgroundRun": "unchoke.training.detach",
    "BudgetResult": "unchoke.training.budget",
    "CheckResult": "unchoke.data.check_samples",
    "Choice": "unchoke.core.choices",
    "ClusterCheck": "unchoke.features.cluster_check",
    "Curation": "unchoke.curation.curation",
    "DataFinding": "unchoke.curation.data_finding",
    "DoctorReport": "unchoke.machine.doctor",
    "EncodersResult": "unchoke.tuning.encoder_result",
    "Evaluation": "unchoke.training.evaluate",
    "ExtractResult": "unchoke.training.results",
    "Finding": "unchoke.core.findings",
    "FeatureDataset": "unchoke.training.workspace_datasets",
    "FitResult": "unchoke.training.results",
    "ExportedModel": "unchoke.exports.export_model",
    "FoldsResult": "unchoke.training.folds",
    "LintResult": "unchoke_doctor.lint",
    "LoadedModel": "unchoke.training.load_model",
    "NotebookReport": "unchoke_doctor.notebook",
    "PhotoDataset": "unchoke.training.workspace_datasets",
    "Predictions": "unchoke.training.predict",
    "Preset": "unchoke.core.presets",
    "Rehearsal": "unchoke.training.results",
    "RunRecord": "unchoke.core.record",
    "SceneDemo": "unchoke.cli.demo_scenes",
    "ScriptProfile": "unchoke_doctor.profile",
    "SegmentPredictResult": "unchoke.masks.draw_masks",
    "SegmentResult": "unchoke.masks.segment_train",
    "StoredRun": "unchoke.core.record",
    "TileDataset": "unchoke.training.workspace_datasets",
    "TileProfile": "unchoke.scenes.tiling.tile_profile",
    "TileResult": "unchoke.scenes.tiling.tile_result",
    "TraceView": "unchoke.runs.trace.profile_view",
    "TrainingProfile": "unchoke.training.profile_train",
    "TuneResult": "unchoke.tuning.tune_result",
    "UiResult": "unchoke.page.ui",
    "lint": "unchoke_doctor.lint",
    "notebook": "unchoke_doctor.notebook",
    "profile": "unchoke_doctor.profile",
}
"""What is imported when it is first asked for: the name, and the module that holds it."""

__all__ = [
    "BackgroundResult",
    "BackgroundRun",
    "BudgetResult",
    "CheckResult",
    "Choice",
    "ClusterCheck",
    "Curation",
    "DataError",
    "DataFinding",
    "DoctorReport",
    "EncodersResult",
    "Evaluation",
    "ExportedModel",
    "ExtractResult",
    "FeatureDataset",
    "Finding",
    "FitResult",
    "FoldsResult",
    "Interrupted",
    "LintResult",
    "LoadedModel",
    "MachineError",
    "NotebookReport",
    "PhotoDataset",
    "Predictions",
    "Preset",
    "Rehearsal",
    "RunRecord",
    "SceneDemo",
    "ScriptProfile",
    "SegmentPredictResult",
    "SegmentResult",
    "StoredRun",
    "TileDataset",
    "TileProfile",
    "TileResult",
    "TraceView",
    "TrainingProfile",
    "TuneResult",
    "UiResult",
    "UnchokeError",
    "UsageError",
    "best_run",
    "budget",
    "check",
    "cluster_check",
    "compare_runs",
    "curate",
    "demo",
    "detach",
    "doctor",
    "encoders",
    "errors",
    "evaluate",
    "export",
    "export_run",
    "extract",
    "fit",
    "lint",
    "list_presets",
    "list_runs",
    "load_model",
    "notebook",
    "predict",
    "profile",
    "profile_tile",
    "profile_train",
    "profile_view",
    "report",
    "segment_predict",
    "segment_train",
    "show_preset",
    "show_run",
    "tile",
    "train",
    "tune",
    "ui",
    "watch_run",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'unchoke' has no attribute {name!r}")
        return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
