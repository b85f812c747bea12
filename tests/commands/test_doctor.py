from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from errors import refused
from unchoke.machine.doctor import DoctorReport, doctor, render_doctor
from unchoke.machine.evidence import _without_names
from unchoke.machine.machine_facts import Accelerator, MachineFacts
from unchoke.machine.policy import choose_policy

GIB = 2**30
FACTS = MachineFacts(
    "Linux", "x86_64", "AMD EPYC", 4, 8 * GIB, 6 * GIB, descriptor_limit=1024, descriptor_limit_hard=4096,
    accelerators=(Accelerator("cuda", "NVIDIA GeForce GTX 1650", 4 * GIB, (7, 5), driver="550.1"),),
    torch_version="2.13.0", notes=("could not determine the weather: OSError: rain",),
)  # fmt: skip


def test_report_holds_facts_and_choices(tmp_path: Path) -> None:
    report = json.loads(json.dumps(doctor(folder=tmp_path, workers=1).to_dict()))
    assert report["facts"]["disk_free_bytes"] > 0
    workers = next(choice for choice in report["choices"] if choice["name"] == "workers")
    assert (workers["value"], workers["reason"]) == (1, "given on the command line")


def test_the_doctor_refuses_a_device_that_is_not_here() -> None:
    with refused("device-not-available", "cuda:99"):
        doctor(device="cuda:99")


def test_a_report_holds_no_names_and_no_paths(tmp_path: Path) -> None:
    there = {"a": str(tmp_path / "photos"), "b": str(Path.home() / "x")}
    told = _without_names(json.dumps(there), tmp_path)
    assert not any(name in told for name in (str(tmp_path), str(Path.home())))
    assert json.loads(told)["a"].startswith("FOLDER")


def test_unwritable_report_is_refused_at_once(tmp_path: Path) -> None:
    with refused("output-not-writable", "--report"):
        doctor(device="cpu", report=tmp_path)


@pytest.mark.campaign
def test_the_whole_report(tmp_path: Path) -> None:
    doctor(device="cpu", report=tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["measured"]
    killed = told.pop("network, killed and resumed")
    assert killed["same_weights"] and killed["resumed"]["exit"] == 0
    assert {name: part["exit"] for name, part in told.items()} == dict.fromkeys(told, 0)


def render(facts: MachineFacts, *, width: int = 110) -> str:
    return render_doctor(DoctorReport(facts, choose_policy(facts)), width=width)


def test_every_choice_is_shown_with_its_value_and_reason() -> None:
    text = " ".join(render(FACTS).split())
    for choice in choose_policy(FACTS).choices:
        assert choice.name in text
        assert choice.reason in text
    assert "torch:f16, then torch:f32" in text


def test_facts_name_gpu_limits_and_what_is_unknown() -> None:
    text = render(FACTS)
    assert "cuda:0 NVIDIA GeForce GTX 1650, 4.3 GB, capability 7.5, driver 550.1" in text
    assert "1,024 at a time (may be raised to 4,096)" in text
    assert "could not determine the weather" in text
    assert "openvino" in text
    assert "not installed" in text


def test_no_line_is_wider_than_asked_for() -> None:
    assert max(len(line) for line in render(FACTS, width=80).splitlines()) <= 80


def test_a_machine_without_a_limit_on_open_files_says_so() -> None:
    assert "no limit" in render(replace(FACTS, descriptor_limit=None))
