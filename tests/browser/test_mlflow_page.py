"""MLflow's own page shows a run that was logged: its real server with SQLite, in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cdp import Browser, Page

import unchoke
from tracked import serve_mlflow
from unchoke.core.events import ignore


@pytest.fixture(scope="session")
def mlflow() -> str:
    """The command of a whole MLflow: the part that unchoke needs comes without its page."""
    command = os.environ.get("UNCHOKE_TEST_MLFLOW", "")
    if not command:
        pytest.skip("UNCHOKE_TEST_MLFLOW names no `mlflow` with a page (make mlflow-page)")
    return command


def test_run_figures_and_report_are_on_the_page(mlflow: str, browser: Browser, workspace: Path, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with serve_mlflow(tmp_path, mlflow) as address:
        unchoke.fit(out=workspace, log=[f"mlflow:{address}"], on_event=ignore)
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name("unchoke")
        assert experiment is not None
        run = client.search_runs([experiment.experiment_id])[0].info.run_id
        shown = f"{address}/#/experiments/{experiment.experiment_id}/runs/{run}"
        target = browser.send("Target.createTarget", url=shown)["targetId"]
        page = Page(browser, browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        page.until("document.body?.innerText?.includes('exp_1') && document.body?.innerText?.includes('test/accuracy')")
        assert page.ask("document.body?.innerText?.includes('chosen.engine')")
        page.send("Page.navigate", url=f"{shown}/artifacts/run")
        page.until("document.body?.innerText?.includes('report.html')")
