"""Small programs for the tests of lint: from the text of a script, or of a notebook's cells."""

from __future__ import annotations

import json
from textwrap import dedent

from unchoke.code.program import Program
from unchoke.code.source import parse_source


def script(text: str) -> Program:
    return Program(parse_source("a.py", dedent(text).encode()))


def book(*cells: str) -> Program:
    found = [{"cell_type": "code", "source": dedent(cell)} for cell in cells]
    return Program(parse_source("a.ipynb", json.dumps({"cells": found}).encode()))
