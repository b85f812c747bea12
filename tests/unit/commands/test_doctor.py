from __future__ import annotations

import json
from pathlib import Path

import pytest

from unchoke.commands.doctor import doctor
from unchoke.core.errors import MachineError


def test_the_doctor_reports_facts_and_choices_as_plain_data(tmp_path: Path) -> None:
    report = json.loads(json.dumps(doctor(folder=tmp_path, overrides={"workers": 1}).to_dict()))
    assert report["facts"]["disk_free_bytes"] > 0
    workers = next(choice for choice in report["choices"] if choice["name"] == "workers")
    assert (workers["value"], workers["reason"]) == (1, "given on the command line")


def test_the_doctor_refuses_a_device_that_is_not_here() -> None:
    with pytest.raises(MachineError):
        doctor(overrides={"device": "cuda:99"})
