"""Findings of the trainer's own checks and runs: those of the doctor."""

from unchoke_doctor.finding import Finding as Finding
from unchoke_doctor.finding import Severity as Severity
from unchoke_doctor.finding import rank as rank
