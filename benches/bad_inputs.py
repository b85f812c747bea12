"""All bad inputs of `campaign_inputs.py`, by kind, and the sound things they are made of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bad_images
import bad_options
import bad_places
import bad_scenes
import bad_tables
from bad_case import BadCase, Stage
from kill_cases import make_inputs

KINDS = ("images", "tables", "scenes", "workspaces", "hostile files", "options", "limits")
CASES: tuple[BadCase, ...] = (
    *bad_images.cases(),
    *bad_tables.cases(),
    *bad_scenes.cases(),
    *bad_places.cases(),
    *bad_options.cases(),
)


def prepare_stage(root: Path) -> Stage:
    """Photos, scenes, weights, and a workspace in which `fit` ran: made once, by a process of its own, which may use torch."""
    stage = Stage(root)
    if stage.workspace.exists():
        return stage
    root.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            make_inputs(root / "inputs")
            photos = stage.copy_photos(root / "of_workspace")
            sys.argv = ["unchoke", "fit", str(photos), *stage.tiny, "--out", str(root / "workspace")]
            from unchoke.cli.main import main

            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0) if isinstance(ended.code, int | None) else 1
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("the workspace that the cases start from could not be made")
    return stage
