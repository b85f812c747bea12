"""unchoke: train image models fast on the machine you have, and know what holds a run back.

Every command is a function of the same name: `unchoke.fit("photos/")` does what `unchoke fit photos/` does, and options are
keywords with underscores. What is left out is what the workspace remembers, what a preset says, or the default, as on the command
line. Nothing but the standard library is loaded until a function is asked for, so `import unchoke` costs next to nothing.

Type checkers and editors read `__init__.pyi`, which `python docs/make_reference.py` writes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from unchoke.core import errors
from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError

__version__ = "0.1.0"
sys.modules[f"{__name__}.errors"] = errors  # `from unchoke.errors import DataError` is what people write

_HOMES = {
    "unchoke.cli.demo": "demo",
    "unchoke.cli.demo_scenes": "SceneDemo",
    "unchoke.core.choices": "Choice",
    "unchoke.core.findings": "Finding",
    "unchoke.core.presets": "Preset list_presets show_preset",
    "unchoke.core.record": "RunRecord StoredRun",
    "unchoke.curation.curate": "curate",
    "unchoke.curation.curation": "Curation",
    "unchoke.curation.data_finding": "DataFinding",
    "unchoke.data.check_samples": "CheckResult check",
    "unchoke.exports.export_model": "ExportedModel export",
    "unchoke.features.cluster_check": "ClusterCheck cluster_check",
    "unchoke.machine.doctor": "DoctorReport doctor",
    "unchoke.masks.draw_masks": "SegmentPredictResult",
    "unchoke.masks.segment_predict": "segment_predict",
    "unchoke.masks.segment_train": "SegmentResult segment_train",
    "unchoke.page.ui": "UiResult ui",
    "unchoke.runs.lookup": "best_run compare_runs list_runs report show_run",
    "unchoke.runs.trace.profile_view": "TraceView profile_view",
    "unchoke.scenes.tiling.profile_tile": "TileProfile profile_tile",
    "unchoke.scenes.tiling.tile": "tile",
    "unchoke.scenes.tiling.tile_result": "TileResult",
    "unchoke.training.budget": "BudgetResult budget",
    "unchoke.training.detach": "BackgroundResult BackgroundRun detach watch_run",
    "unchoke.training.evaluate": "Evaluation evaluate",
    "unchoke.training.export_run": "export_run",
    "unchoke.training.fit": "extract fit train",
    "unchoke.training.folds": "FoldsResult",
    "unchoke.training.load_model": "LoadedModel load_model",
    "unchoke.training.predict": "Predictions predict",
    "unchoke.training.profile_train": "TrainingProfile profile_train",
    "unchoke.training.results": "ExtractResult FitResult Rehearsal",
    "unchoke.training.workspace_datasets": "FeatureDataset PhotoDataset TileDataset",
    "unchoke.tuning.compare_encoders": "encoders",
    "unchoke.features.choose_encoder": "EncoderList list_encoders",
    "unchoke.tuning.encoder_result": "EncodersResult",
    "unchoke.tuning.tune": "tune",
    "unchoke.tuning.tune_result": "TuneResult",
    "unchoke_doctor.lint": "LintResult lint",
    "unchoke_doctor.notebook": "NotebookReport notebook",
    "unchoke_doctor.profile": "ScriptProfile profile",
}
"""Where the names of `import unchoke` are defined: they are imported when they are first asked for."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = ["DataError", "Interrupted", "MachineError", "UnchokeError", "UsageError", "errors", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'unchoke' has no attribute {name!r}")
    module = _HOME_OF[name]
    if ours := name.islower() and module.startswith("unchoke."):
        from unchoke.core.brief_waits import wait_briefly

        wait_briefly()  # before the module loads torch
    found = getattr(import_module(module), name)
    if ours:
        from unchoke.core.keywords import with_settings

        found = with_settings(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*sorted(__all__), "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext unchoke`: gives a notebook the cell magic `%%choke`."""
    import_module("unchoke_doctor.magic").register(shell)
