"""Pages over a finished workspace: what they show, what leads nowhere, and what an empty workspace says to type."""

from __future__ import annotations

import csv
import io
import json
from html import unescape
from pathlib import Path

import pytest
from PIL import Image

import records
import unchoke
from errors import refused
from pages import OWN, guest, make_guard, save_findings, stranger
from unchoke.core import atomic
from unchoke.curation.data_finding import DataFinding
from unchoke.data.corrections import Correction
from unchoke.page.catalogue import photo_id
from unchoke.page.stored_pages import serve_page
from unchoke.runs.report.html import render_report

LOADER = """
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
loader = DataLoader(ImageFolder("photos"), batch_size=32)
for epoch in range(90):
    for x, y in loader:
        model(x).sum().backward()
"""
HOSTILE = "<script>document.title='owned'</script>"


def manifest(root: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((root / "manifest.csv").read_text(encoding="utf-8"))))


def first_photo(root: Path) -> dict[str, str]:
    return manifest(root)[0]


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        ("/", "unchoke fit PHOTOS"),
        ("/photos", "unchoke fit PHOTOS"),
        ("/review", "unchoke curate"),
        ("/try", "unchoke fit PHOTOS"),
        ("/scenes", "unchoke segment train SCENES"),
        ("/speed", "unchoke profile -- python train.py"),
    ],
)
def test_an_empty_workspace_says_what_to_type(tmp_path: Path, path: str, typed: str) -> None:
    answer = guest(tmp_path / "none yet").get(path)
    assert answer.status_code == 200
    assert typed in answer.text
    assert not (tmp_path / "none yet").exists()


def test_runs_lead_to_their_page_and_report(workspace: Path) -> None:
    client = guest(workspace)
    assert 'href="/runs/exp_1"' in client.get("/").text
    page = client.get("/runs/exp_1").text
    assert "Validation accuracy" in page
    assert "<svg" in page
    report = client.get("/runs/exp_1/report")
    policy = report.headers["content-security-policy"]
    assert "<!doctype html>" in report.text
    assert "sandbox allow-scripts" in policy
    assert "sha256-" in policy
    assert "unsafe" not in policy


def test_two_runs_are_compared_and_one_is_not(workspace: Path) -> None:
    client = guest(workspace)
    assert client.get("/compare", params={"run": ["exp_1"]}).status_code == 400
    assert client.get("/compare", params={"run": ["exp_1", "exp_7"]}).status_code == 400


@pytest.mark.parametrize(
    "path", ["/runs/exp_9", "/runs/%2e%2e%2fmanifest.csv", "/static/../guard.py", "/static/%2e%2e%2fguard.py"]
)
def test_a_name_that_is_not_listed_leads_nowhere(workspace: Path, path: str) -> None:
    answer = guest(workspace).get(path)
    assert answer.status_code in (400, 404)
    assert "sample_id" not in answer.text


@pytest.mark.parametrize("one", ["0" * 16, "%2e%2e%2fmanifest.csv", "%2fetc%2fpasswd", "manifest.csv"])
def test_pictures_are_served_by_id_alone(workspace: Path, one: str) -> None:
    client = guest(workspace)
    for kind in ("small", "large", "photos"):
        assert client.get(f"/{kind}/{one}").status_code == 404


def test_thumbnail_is_made_again_when_the_photo_changes(own_photos: Path, workspace: Path) -> None:
    row = first_photo(workspace)
    text = (workspace / "manifest.csv").read_text(encoding="utf-8")
    mine = own_photos / row["sample_id"]
    (workspace / "manifest.csv").write_text(text.replace(row["path"], str(mine)), encoding="utf-8")
    (workspace / "SHA256SUMS").unlink()
    client = guest(workspace)
    answer = client.get(f"/small/{photo_id(row['sample_id'])}")
    assert answer.headers["content-type"] == "image/jpeg"
    assert max(Image.open(io.BytesIO(answer.content)).size) <= 192
    kept = list((workspace / "thumbnails").rglob("*.jpg"))
    assert [file.read_bytes() for file in kept] == [answer.content]
    Image.new("RGB", (50, 40), "red").save(mine)
    again = client.get(f"/small/{photo_id(row['sample_id'])}").content
    assert again != answer.content
    mine.write_bytes(b"no picture")
    assert client.get(f"/small/{photo_id(row['sample_id'])}").status_code == 422


def test_large_picture_is_encoded_again(workspace: Path) -> None:
    row = first_photo(workspace)
    answer = guest(workspace).get(f"/large/{photo_id(row['sample_id'])}")
    assert answer.content[:3] == b"\xff\xd8\xff"
    assert answer.content != Path(row["path"]).read_bytes()


def test_rows_come_in_pieces_and_filters_hold(workspace: Path) -> None:
    client, rows = guest(workspace), manifest(workspace)
    first = client.get("/photos/rows", params={"start": 0, "count": 10}).json()
    assert [row["name"] for row in first] == [row["sample_id"] for row in rows[:10]]
    plums = client.get("/photos/rows", params={"start": 0, "count": 500, "label": "plum", "split": "test"}).json()
    assert {(row["label"], row["split"]) for row in plums} == {("plum", "test")}
    judged = client.get("/photos/rows", params={"start": 0, "count": 500, "judged": "right"}).json()
    assert judged
    assert all(row["said"] == row["label"] for row in judged)
    assert client.get("/photos/rows", params={"start": "-1", "count": "x"}).json() == []


def test_a_photos_page_shows_those_most_like_it(workspace: Path) -> None:
    row = first_photo(workspace)
    page = guest(workspace).get(f"/photos/{photo_id(row['sample_id'])}").text
    assert page.count('<img src="/small/') == 24
    assert "exp_1 says" in page or row["split"] == "train"


def test_dropped_photo_gets_its_nearest_and_is_not_kept(workspace: Path) -> None:
    train = next(row for row in manifest(workspace) if row["split"] == "train")
    before = sorted(workspace.rglob("*"))
    client = guest(workspace)
    answer = client.post("/ask", content=Path(train["path"]).read_bytes(), headers=OWN)
    assert answer.status_code == 200, answer.text
    assert "exp_1 says" in answer.text
    assert train["label"] in answer.text
    first = answer.text.split('href="/photos/')[1][:16]
    assert first == photo_id(train["sample_id"])
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize("data", [b"", b"<svg onload=alert(1)>", b"\xff\xd8\xff\xe0 cut off"])
def test_what_is_no_picture_is_refused_in_words(workspace: Path, data: bytes) -> None:
    answer = guest(workspace).post("/ask", content=data, headers=OWN)
    assert answer.status_code == 422


def test_too_large_upload_is_refused_early(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unchoke.page import photo_views

    monkeypatch.setattr(photo_views, "_MOST_PHOTO_BYTES", 1000)
    answer = guest(workspace).post("/ask", content=b"x" * 1001, headers=OWN)
    assert answer.status_code == 400
    assert "1,000 bytes" in answer.text


def test_hostile_names_are_text_everywhere(workspace: Path) -> None:
    row = first_photo(workspace)
    text = (workspace / "manifest.csv").read_text(encoding="utf-8")
    (workspace / "manifest.csv").write_text(text.replace(f",{row['label']},", f",{HOSTILE},"), encoding="utf-8")
    (workspace / "SHA256SUMS").unlink()
    save_findings(
        workspace,
        [DataFinding("label", HOSTILE, (row["sample_id"],), 1.0, {}, (Correction(row["sample_id"], "label", HOSTILE),))],
    )
    client = guest(workspace)
    for path in ("/photos", "/review", f"/photos/{photo_id(row['sample_id'])}"):
        page = client.get(path).text
        assert HOSTILE not in page, path
        assert HOSTILE in unescape(page), path


def test_masks_are_served_by_run_place_and_layer(workspace: Path) -> None:
    folder = workspace / "experiments" / "exp_1"
    record = records.build_segmentation(num_samples=2) | {"run": "exp_1"}
    atomic.write_json(folder / "record.json", json.loads(json.dumps(records.as_record(record).to_dict())))
    (folder / "SHA256SUMS").unlink()
    client = guest(workspace)
    page = client.get("/scenes").text
    assert 'type="range"' in page
    assert page.count('class="stack"') == 2
    assert client.get("/scenes/exp_1/0/image").headers["content-type"].startswith("image/")
    assert client.get("/scenes/exp_1/0/prediction").status_code == 200
    for path in ("/scenes/exp_1/9/image", "/scenes/exp_1/0/title"):
        assert client.get(path).status_code == 404


def test_profiles_and_what_was_found_in_scripts_are_shown(workspace: Path) -> None:
    logs = workspace / "logs" / "profiler"
    finding = {"code": "slow-load", "message": "loading holds it back", "severity": "warning", "fix": "more workers"}
    atomic.write_json(logs / "script_1" / "findings.json", [finding])
    page = render_report(records.as_record(records.build_regression()))
    atomic.write_text(logs / "run.html", page)
    atomic.write_text(logs / "alien.html", "<script>alert(1)</script>")
    client = guest(workspace)
    shown = client.get("/speed").text
    assert "loading holds it back" in shown
    ids = {name: shown.split(f">{name}</a>")[0].rsplit("/speed/", 1)[1].split('"')[0] for name in ("run.html", "alien.html")}
    assert client.get(f"/speed/{ids['run.html']}").text == page
    refused = client.get(f"/speed/{ids['alien.html']}")
    assert refused.status_code == 400
    assert "<script>alert" not in refused.text


def test_what_lint_found_is_shown_with_file_line_and_kind(tmp_path: Path) -> None:
    root, script = tmp_path / "out", tmp_path / "<b>train.py"
    script.write_text(
        "import torch\nfor path in paths:\n    model.load_state_dict(torch.load(path, weights_only=False))\n" + LOADER
    )
    found = unchoke.lint([script], notes=True, out=root).findings
    assert found
    page = unescape(guest(root).get("/speed").text)
    for one in found:
        assert f"{script}:{one.line}" in page
        assert one.message in page
        assert f">{one.kind}</span>" in page
    assert "<b>train" not in guest(root).get("/speed").text
    assert "unchoke profile -- python" not in page
    unchoke.lint([script], select=["host-sync"], ignore=["host-sync"], out=root)
    assert not [one for one in found if one.message in unescape(guest(root).get("/speed").text)]


def test_findings_of_lint_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "logs" / "lint.json", '{"findings": [{"nonsense": 1}]}')
    answer = guest(tmp_path).get("/speed")
    assert answer.status_code == 400
    assert "lint.json" in answer.text


@pytest.mark.parametrize(
    "policy", ["", "script-src 'unsafe-inline'", "default-src *", "script-src 'self'", "default-src 'none'; script-src http:"]
)
def test_a_page_without_a_policy_of_ours_is_not_served(policy: str) -> None:
    with refused("not-our-page", "it"):
        serve_page(f'<meta http-equiv="Content-Security-Policy" content="{policy}"><p>', of="it")


def test_too_many_pixels_are_refused_before_decoding(workspace: Path) -> None:
    buffer = io.BytesIO()
    Image.new("1", (9000, 9000)).save(buffer, "PNG")
    answer = guest(workspace).post("/ask", content=buffer.getvalue(), headers=OWN)
    assert answer.status_code == 422
    assert "64,000,000" in answer.text


def test_problem_of_the_workspace_is_shown(workspace: Path) -> None:
    (workspace / "corrections.csv").write_text("photo,what,value\nx,nonsense,y\n")
    answer = guest(workspace).get("/review")
    assert answer.status_code == 400
    assert "nonsense" in answer.text


def test_the_guard_is_what_serves(workspace: Path) -> None:
    assert stranger(make_guard(workspace)).get("/").status_code == 401


def test_review_shows_the_nearest_photos_of_both_labels(workspace: Path) -> None:
    doubted = DataFinding(
        "label", "in doubt", ("apple/apple 00.jpg",), 1.0, {}, (Correction("apple/apple 00.jpg", "label", "plum"),)
    )
    later = DataFinding("outlier", "odd", ("plum/plum 00.jpg",), 0.5)
    save_findings(workspace, [doubted, later])
    text = unescape(guest(workspace).get("/review").text)
    own, other = (text.index(f"Nearest photos labelled {label}") for label in ("apple", "plum"))
    assert text[own:other].count('alt="apple/') == 4
    assert text[other:].count('alt="plum/') == 4
    assert "1 of 2" in text
