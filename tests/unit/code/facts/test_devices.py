"""Which devices a program states."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from programs import script


@pytest.mark.parametrize(
    ("text", "stated", "only"),
    [
        ("model.cuda()", ["cuda"], "cuda"),
        ("x = x.to('cuda:0')", ["cuda"], "cuda"),
        ("device = 'mps'", ["mps"], "mps"),
        ("device = torch.device('cpu')", ["cpu"], "cpu"),
        ("device = torch.device('mps')\ny = model(x).cpu()", ["cpu", "mps"], "mps"),
        ("torch.load(p, map_location='cpu')\nmodel.to('cuda')", ["cpu", "cuda"], "cuda"),
        ("t = Trainer(accelerator='gpu')", ["cuda"], "cuda"),
        ("with tf.device('/GPU:0'):\n  pass", ["cuda"], "cuda"),
        ("p.add_argument('--device', default='cuda')", ["cuda"], "cuda"),
        ("def train(device='cuda'):\n  pass", ["cuda"], "cuda"),
        ("x = torch.zeros(3, device='mps')", ["mps"], "mps"),
        ("title = 'cuda is fast'", [], None),
        ("names = ['cuda', 'cpu']", [], None),
    ],
)
def test_devices_by_name_and_by_call(text: str, stated: list[str], only: str | None) -> None:
    found = script(text).facts.devices
    assert sorted(found.stated) == stated
    assert found.only == only


@pytest.mark.parametrize(
    "text",
    [
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "if torch.cuda.is_available():\n  model.cuda()",
        "gpus = tf.config.list_physical_devices('GPU')\nwith tf.device('/GPU:0'):\n  pass",
    ],
)
def test_a_program_that_looks_first_is_guarded_and_states_no_only_device(text: str) -> None:
    found = script(text).facts.devices
    assert found.states_cuda
    assert found.cuda_guarded
    assert found.only is None
