from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_process import in_own_process, use_exports

from errors import refused
from small_training import NAMES, SIZE_PX, Small, encoder, small
from unchoke.core.checksums import save_checked_json
from unchoke.core.events import Event, Note, ignore
from unchoke.features.cut import cut_network
from unchoke.features.encoders import EncoderSpec
from unchoke.pixels.tile_grid import TilePlan
from unchoke.runs.lookup import find_run
from unchoke.training import export_run as export
from unchoke.training.checkpoints import save_tensors
from unchoke.training.evaluate import evaluate
from unchoke.training.export_run import export_run
from unchoke.training.fit import train
from unchoke.training.network.loop_config import LoopResult
from unchoke.training.network.photo_job import NetworkSpec
from unchoke.training.network.trained_network import RowsInMemory, TrainedNetwork, load_network, open_network
from unchoke.training.predict import predict
from unchoke.training.scoring.predictions import load_predictions

KINDS: dict[str, dict[str, Any]] = {
    "a block": {"cut": "-1"},
    "the whole network": {"cut": "none", "num_train": 12},
    "tiles of fixed features": {"cut": "end", "tiles": TilePlan(2, 1, 2), "kind": "values"},
    "convolutions and extra columns": {"name": "test_efficientnet", "cut": "-2", "num_inputs": 2, "kind": "values"},
}


def trained(options: dict[str, Any]) -> tuple[Small, LoopResult, TrainedNetwork]:
    made = small(**options)
    done = made.train(epochs=1)
    spec = NetworkSpec(options.get("name", "test_vit"), options["cut"], input_px=SIZE_PX, tiles=options.get("tiles", TilePlan()))
    network = TrainedNetwork(
        spec=spec,
        config=made.network.config,
        state=done.state,
        kind=made.problem.kind,
        names=made.problem.names,
        targets=made.objective.plan,
        input_names=("NDVI", "height")[: options.get("num_inputs", 0)],
        best_epoch=done.best_epoch,
        val=done.val,
    )
    return made, done, network


def outputs(made: Small, network: torch.nn.Module, split: str) -> np.ndarray:
    positions = made.problem.positions(split)
    x = made.source.prepare(made.source.read(positions, None), positions, None)
    inputs = None if made.inputs is None else torch.from_numpy(made.inputs[positions])
    with torch.inference_mode():
        return np.asarray(network(x, inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_network_same_outputs(kind, tmp_path):
    made, done, network = trained(KINDS[kind])
    network.save(tmp_path / "best_head.pt", extra={"temperature": 1.5})
    found, extra = load_network(tmp_path / "best_head.pt")
    assert extra == {"temperature": 1.5}
    for name in ("spec", "config", "kind", "names", "targets", "input_names", "best_epoch", "val"):
        assert getattr(found, name) == getattr(network, name), name
    built = found.build()
    assert not built.training
    assert not any(parameter.requires_grad for parameter in built.parameters())
    for split in ("val", "test"):
        np.testing.assert_allclose(outputs(made, built, split), done.outputs[split], rtol=1e-5, atol=1e-6)


def test_build_fills_given_cut(tmp_path):
    made, done, network = trained(KINDS["a block"])
    cut = cut_network(encoder("test_vit"), "-1", verify=False)
    built = network.build(cut)
    assert built.suffix is cut.suffix
    np.testing.assert_allclose(outputs(made, built, "test"), done.outputs["test"], rtol=1e-5, atol=1e-6)


def test_only_whole_network_needs_no_weights():
    assert {kind: trained(KINDS[kind])[2].is_whole for kind in ("a block", "the whole network")} == {
        "a block": False,
        "the whole network": True,
    }


def test_file_holds_only_trained_part(tmp_path):
    _, _, network = trained(KINDS["a block"])
    network.save(tmp_path / "best_head.pt", extra={})
    names = torch.load(tmp_path / "best_head.pt", weights_only=True)["state"]
    assert not any("patch_embed" in name or "blocks.0." in name for name in names)
    assert any(name.startswith("suffix.blocks.5.") for name in names)


def test_the_same_network_is_written_as_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        trained(KINDS["a block"])[2].save(tmp_path / name, extra={"names": list(NAMES)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    save_tensors(tmp_path / "head.pt", {"format": 1, "params": {}})
    with refused("wrong-model-file", "head.pt"):
        load_network(tmp_path / "head.pt")


TINY = "test_resnet"
WEIGHTS = {"clover": 0.1, "dead": 0.2, "total": 0.7}


@dataclass(frozen=True)
class Scene:
    """A workspace with one trained network, the pictures it saw, and the table of extra inputs where it takes some."""

    out: Path
    pictures: Path
    inputs: Path | None = None

    @property
    def run(self) -> Path:
        return self.out / "experiments" / "exp_1"

    @property
    def record(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.run / "record.json").read_text(encoding="utf-8"))
        return loaded

    def copy(self, folder: Path) -> Scene:
        return Scene(Path(shutil.copytree(self.out, folder / "copied")), self.pictures, self.inputs)

    def evaluate(self) -> dict[str, Any]:
        return evaluate(out=self.out, on_event=ignore).to_dict()

    def predict(self, *images: Path) -> list[dict[str, Any]]:
        return predict("exp_1", images or [self.pictures], out=self.out, inputs=self.inputs, on_event=ignore).rows


Build = Callable[[str], Scene]


@pytest.fixture(scope="module")
def scene(photos: Path, tiny_weights: Path, once: Callable[[str, Callable[[Path], object]], Path]) -> Build:
    """Networks trained on the photos: the last block, tiles of a frozen network with sums and inputs, or all of it."""
    common: dict[str, Any] = {"encoder": TINY, "weights": str(tiny_weights), "workers": 1, "epochs": 2, "job_size": 16}
    kinds: dict[str, dict[str, Any]] = {
        "cut": {"cut": "-1"},
        "views": {"cut": "-1", "views": 2, "input_px": 64, "engine": "torch", "precision": "f32"},
        "whole": {"cut": "none", "cache": "disk", "input_px": 64},
        "tiles": {
            "cut": "end",
            "input_px": 64,
            "streams": 2,
            "tiles": "1x2",
            "fusion": "film",
            "engine": "torch",
            "precision": "f32",
            "target": tuple(WEIGHTS),
            "sums": {"total": ("clover", "dead")},
            "target_weights": WEIGHTS,
            "positive": True,
            "input": ("ndvi", "height"),
        },
    }

    def build(kind: str, folder: Path) -> None:
        table = write_table(photos, folder) if kind == "tiles" else None
        data = {"images": (str(photos),), "path": "file"} if table else {}
        train(str(table or photos), out=folder / "out", on_event=ignore, **common, **data, **kinds[kind])

    def get(kind: str) -> Scene:
        folder = once(f"training-network-{kind}", lambda folder: build(kind, folder))
        return Scene(folder / "out", photos, folder / "table.csv" if kind == "tiles" else None)

    return get


def write_table(photos: Path, folder: Path) -> Path:
    """Targets and inputs that have something to do with the pictures."""
    import pandas as pd

    files = sorted(photos.rglob("*.jpg"))
    numbers = np.arange(len(files))
    clover, dead = 2.0 + numbers // 14, 5.0 - numbers // 14 + numbers / 50
    names = [file.relative_to(photos).as_posix() for file in files]
    columns = {"file": names, "clover": clover, "dead": dead, "total": clover + dead}
    extra = {"ndvi": 0.1 + numbers / 100, "height": 30 - numbers * 0.7}
    pd.DataFrame({**columns, **extra}).to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


RUN_KINDS = ["cut", "views", "tiles", "whole"]


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_an_evaluation_equals_the_record(scene: Build, kind: str) -> None:
    one = scene(kind)
    found, record = one.evaluate(), one.record
    assert set(found["metrics"]) == {"val", "test"}
    for split, metrics in record["metrics"].items():
        recorded = {name: interval["value"] for name, interval in metrics.items()}
        assert found["metrics"][split] == pytest.approx(recorded, rel=1e-5, abs=1e-6)


def test_weighted_score_uses_training_weights(scene: Build) -> None:
    one = scene("tiles")
    table = load_predictions(one.run / "predictions.csv").query("split == 'test'")
    truth, predicted = (table[[f"{what}/{name}" for name in WEIGHTS]].to_numpy() for what in ("truth", "predicted"))
    weights = np.broadcast_to(list(WEIGHTS.values()), truth.shape)
    mean = (weights * truth).sum() / weights.sum()
    expected = 1 - (weights * (truth - predicted) ** 2).sum() / (weights * (truth - mean) ** 2).sum()
    assert one.evaluate()["metrics"]["test"]["weighted_r2"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_predict_by_file_equals_record(scene: Build, kind: str) -> None:
    one = scene(kind)
    recorded = load_predictions(one.run / "predictions.csv").set_index("sample_id")
    by_id = {Path(row["path"]).relative_to(one.pictures).as_posix(): row for row in one.predict()}
    assert len(by_id) == 42
    for sample_id, row in recorded.iterrows():
        predicted = by_id[str(sample_id)]
        if kind == "tiles":
            values = [predicted[name] for name in WEIGHTS]
            assert values == pytest.approx([row[f"predicted/{name}"] for name in WEIGHTS], rel=1e-4)
        else:
            assert predicted["predicted"] == row["predicted"]
            assert predicted["confidence"] == pytest.approx(row["confidence"], abs=1e-4)


def test_predictions_carry_every_target_and_sums_add_up(scene: Build) -> None:
    for row in scene("tiles").predict():
        assert list(row) == ["path", *WEIGHTS, "error"]
        assert min(row["clover"], row["dead"]) >= 0
        assert row["total"] == pytest.approx(row["clover"] + row["dead"], rel=1e-6)


def test_values_come_with_the_interval_that_is_asked_for(scene: Build) -> None:
    one = scene("tiles")
    found = predict("exp_1", [one.pictures], out=one.out, inputs=one.inputs, level=0.5, on_event=ignore)
    assert found.intervals is not None
    widths = {name: round(found.intervals.half_widths[name], 4) for name in WEIGHTS}
    for row in found.rows:
        assert {name: round(row[f"{name}/high"] - row[name], 4) for name in WEIGHTS} == pytest.approx(widths, abs=1e-3)
        assert all(row[f"{name}/low"] <= row[name] for name in WEIGHTS)
    assert "50 %" in found.to_text()
    assert found.to_dict()["intervals"]["level"] == 0.5
    with refused("option-not-for-task", "--top"):
        predict("exp_1", [one.pictures], out=one.out, inputs=one.inputs, top=2, on_event=ignore)


def test_extra_inputs_kept_and_used(scene: Build, tmp_path: Path) -> None:
    import pandas as pd

    one = scene("tiles")
    assert one.inputs is not None
    table = pd.read_csv(one.inputs)
    kept = load_predictions(one.run / "predictions.csv").set_index("sample_id")
    given = table.set_index("file").loc[kept.index]
    assert kept["input/ndvi"].tolist() == given["ndvi"].tolist()
    assert kept["input/height"].tolist() == given["height"].tolist()
    table.assign(height=table["height"] + 40).to_csv(tmp_path / "other.csv", index=False)
    other = predict("exp_1", [one.pictures], out=one.out, inputs=tmp_path / "other.csv", on_event=ignore).rows
    assert [row["total"] for row in other] != [row["total"] for row in one.predict()]


def test_missing_or_needless_inputs_refused(scene: Build) -> None:
    one, plain = scene("tiles"), scene("cut")
    with refused("inputs-missing", "ndvi, height", "--inputs"):
        predict("exp_1", [one.pictures], out=one.out, on_event=ignore)
    with refused("inputs-not-used", str(one.inputs)):
        predict("exp_1", [one.pictures], out=plain.out, inputs=one.inputs, on_event=ignore)


def test_export_same_figures_offline(scene: Build, tmp_path: Path) -> None:
    scenes = {kind: scene(kind) for kind in ("cut", "tiles", "whole")}
    for kind, one in scenes.items():
        take_away(one.copy(tmp_path), tmp_path / kind, carries_encoder=kind != "whole")
    pictures, table = scenes["tiles"].pictures, scenes["tiles"].inputs
    for kind, there in in_own_process(use_exports, tmp_path, list(scenes), pictures, table).items():
        for split, metrics in scenes[kind].evaluate()["metrics"].items():
            assert there["metrics"][split] == pytest.approx(metrics, rel=1e-5, abs=1e-6)
        for ours, theirs in zip(scenes[kind].predict(), there["rows"], strict=True):
            numbers = {name: value for name, value in ours.items() if isinstance(value, float)}
            assert ours["path"] == theirs["path"]
            assert {name: theirs[name] for name in numbers} == pytest.approx(numbers, rel=1e-5, abs=1e-6)
        assert (tmp_path / there["report"]).is_file()


def take_away(one: Scene, folder: Path, *, carries_encoder: bool) -> None:
    """Export the run, look at what the export says, and destroy the workspace."""
    events: list[Event] = []
    result = export_run("exp_1", folder, out=one.out, on_event=events.append)
    assert result["size_bytes"] == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert (folder / "encoder.safetensors").exists() == carries_encoder
    assert "12 images" in "".join(event.text for event in events if isinstance(event, Note))
    shutil.rmtree(one.out)


def test_exported_activations_are_cached_plain_views(scene: Build, tmp_path: Path) -> None:
    one = scene("views")
    export_run("exp_1", tmp_path / "taken", out=one.out, on_event=ignore)
    with np.load(tmp_path / "taken" / "features.npz", allow_pickle=False) as shard:
        assert sorted(shard.files) == ["activations", "sample_id"]
        rows, ids = shard["activations"], shard["sample_id"]
    assert (rows.dtype, rows.shape[:2]) == (np.float16, (12, 1))
    cached = {}
    for file in (one.out / "features").rglob("*.npz"):
        with np.load(file, allow_pickle=False) as shard:
            cached |= dict(zip(shard["sample_id"].tolist(), shard["activations"], strict=True))
    assert all(np.array_equal(row, cached[str(sample_id)]) for row, sample_id in zip(rows, ids, strict=True))


def test_an_export_of_an_export_is_as_good(scene: Build, tmp_path: Path) -> None:
    for kind in ("cut", "whole"):
        one = scene(kind)
        export_run("exp_1", tmp_path / kind, out=one.out, on_event=ignore)
        export_run(tmp_path / kind, tmp_path / f"{kind} again", on_event=ignore)
        again = evaluate(tmp_path / f"{kind} again", on_event=ignore).to_dict()
        assert again["metrics"] == evaluate(tmp_path / kind, on_event=ignore).to_dict()["metrics"]


def test_pixels_too_large_stay_out_of_export(scene: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, events = scene("whole"), list[Event]()
    monkeypatch.setattr(export, "MOST_PIXEL_BYTES", 12 * 64 * 64 * 3 - 1)
    export_run("exp_1", tmp_path / "taken", out=one.out, on_event=events.append)
    warnings = [event.text for event in events if isinstance(event, Note) and event.level == "warning"]
    assert len(warnings) == 1
    assert "147.5 kB" in warnings[0]
    with refused("pictures-not-exported", "unchoke predict"):
        evaluate(tmp_path / "taken", on_event=ignore)
    there = predict(tmp_path / "taken", [one.pictures], on_event=ignore).rows
    assert [row["predicted"] for row in there] == [row["predicted"] for row in one.predict()]


def test_pictures_that_are_gone_or_changed_are_named(scene: Build, own_photos: Path, tmp_path: Path) -> None:
    one = scene("whole").copy(tmp_path)
    manifest = one.out / "manifest.csv"
    manifest.write_text(manifest.read_text().replace(str(one.pictures), str(own_photos)))
    (one.out / "SHA256SUMS").unlink()  # changed on purpose
    (one.out / "checked.parquet").unlink()
    before = one.evaluate()
    assert before["metrics"] == scene("whole").evaluate()["metrics"]
    sample_id = load_predictions(one.run / "predictions.csv")["sample_id"].iloc[0]
    (own_photos / sample_id).unlink()
    with refused("unreadable-photos", sample_id):
        one.evaluate()
    lines = [line for line in manifest.read_text().splitlines(keepends=True) if not line.startswith(sample_id)]
    manifest.write_text("".join(lines))
    with refused("unreadable-photos", f"{sample_id} (not in manifest.csv)"):
        one.evaluate()


def test_a_picture_that_is_not_the_one_judged_is_refused(scene: Build, tmp_path: Path) -> None:
    import pandas as pd

    one = scene("whole").copy(tmp_path)
    checked = pd.read_parquet(one.out / "checked.parquet")
    checked.assign(content="0" * 64).to_parquet(one.out / "checked.parquet", index=False)
    (one.out / "SHA256SUMS").unlink()
    with refused("photos-changed", "val and test"):
        one.evaluate()
    older = one.record
    del older["data"]["content_digests"]
    save_checked_json(one.run / "record.json", older)
    with refused("unreadable-photos", "changed"):
        one.evaluate()


def test_activations_that_are_gone_are_named(scene: Build, tmp_path: Path) -> None:
    one = scene("cut").copy(tmp_path)
    for shard in (one.out / "features").rglob("*.npz"):
        shard.unlink()
    with refused("features-gone", "12 samples"):
        one.evaluate()


def test_evaluate_cached_without_images_or_weights(scene: Build, tmp_path: Path) -> None:
    one = scene("cut").copy(tmp_path)
    for name in ("engines", "manifest.csv", "unchoke.toml", "checked.parquet"):
        path = one.out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert one.evaluate()["metrics"] == scene("cut").evaluate()["metrics"]


def test_what_does_not_fit_in_memory_is_run_again_in_halves(scene: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    one, events = scene("cut"), list[Event]()
    found = find_run("exp_1", out=one.out)
    trained, extra = load_network(found.head_file)
    ready = open_network(found, trained, on_event=events.append, device="cpu")
    random = np.random.default_rng(0)
    shard = next((one.out / "features").rglob("*.npz"))
    with np.load(shard, allow_pickle=False) as held:
        shape = held["activations"].shape[1:]
    preprocess = EncoderSpec.from_dict(extra["encoder"]).preprocess
    rows = RowsInMemory(random.standard_normal((7, *shape)).astype(np.float16), preprocess)
    wanted = ready.outputs(rows, np.arange(7))
    forward = ready.network.forward

    def too_small(x: torch.Tensor, inputs: torch.Tensor | None = None) -> torch.Tensor:
        if len(x) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(x, inputs)

    monkeypatch.setattr(ready.network, "forward", too_small)
    assert ready.outputs(rows, np.arange(7)) == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert ready.size.value == 2
    assert any(isinstance(event, Note) and "7 samples" in event.text for event in events)


def test_float16_network_runs_in_float32_on_cpu(scene: Build, tmp_path: Path) -> None:
    one, events = scene("cut").copy(tmp_path), list[Event]()
    record = one.record
    record["training"]["loop"] |= {"dtype": "float16", "from_a_later_version": 1}
    (one.run / "record.json").write_text(json.dumps(record))
    (one.run / "SHA256SUMS").unlink()  # it would not let a changed record pass
    predict("exp_1", [next(one.pictures.rglob("*.jpg"))], out=one.out, device="cpu", on_event=events.append)
    assert any(isinstance(event, Note) and "float16" in event.text for event in events)


def test_bad_picture_named_others_predicted(scene: Build, tmp_path: Path) -> None:
    import pandas as pd

    one = scene("tiles")
    files = sorted(one.pictures.rglob("*.jpg"))[:2]
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"nothing like a picture")
    assert one.inputs is not None
    table = pd.read_csv(one.inputs)
    table.loc[len(table)] = {"file": "bad.jpg", "ndvi": 99, "height": 99}
    table.to_csv(tmp_path / "inputs.csv", index=False)
    found = predict("1", [files[0], bad, files[1]], out=one.out, inputs=tmp_path / "inputs.csv", on_event=ignore)
    assert list(found.failed) == [str(bad)]
    alone = [one.predict(file)[0]["total"] for file in files]
    assert [row["total"] for row in found.rows if not row["error"]] == pytest.approx(alone, rel=1e-5)
    assert found.rows[1]["total"] is None
