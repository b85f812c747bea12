"""stat-per-sample beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

HEAD = """import os
from os.path import exists as there
from pathlib import Path
from torch.utils.data import Dataset
class Photos(Dataset):
    def __init__(self, rows):
        self.rows, self.known = rows, {}
"""


lines = OneRule("stat-per-sample").lines


@each(
    ("body", "found"),
    [
        ("return there(self.rows[i])", 1),
        ("return Path.exists(self.rows[i])", 1),
        ("return Path(self.rows[i]).stat().st_size", 1),
        ("return self.size(i)\n    def size(self, i):\n        return os.path.getsize(self.rows[i])", 1),
        ("if not self.train:\n            assert os.path.exists(self.rows[i])", 1),
        (
            "k = self.rows[i]\n        if k not in self.known:\n"
            "            self.known[k] = there(k)\n        return self.known[k]",
            0,
        ),
        ("try:\n            return open(self.rows[i])\n        except OSError:\n            return there(self.rows[i])", 0),
        ("return self.stat()\n    def stat(self):\n        return 1", 0),
        ("return self.rows[i].exists(1)", 0),
    ],
)
def test_a_check_counts_where_it_runs_for_each_sample(body: str, found: int) -> None:
    assert len(lines(f"{HEAD}    def __getitem__(self, i):\n        {body}\n")) == found


def test_check_before_a_generators_loop_is_once_an_epoch() -> None:
    code = """import os
import cv2
def samples(root, names):
    assert os.path.isdir(root)
    while True:
        for name in names:
            if os.path.isfile(name):
                yield cv2.imread(name), 1
model.fit(samples("a", names), epochs=3)
"""
    assert lines(code) == [7]


def test_the_message_says_how_many_checks_there_are() -> None:
    code = f"{HEAD}    def __getitem__(self, i):\n        return there(self.rows[i]), os.path.isfile(self.rows[i])\n"
    found, _ = lint_source(parse_source("train.py", code.encode()), [load_rule("stat-per-sample")])
    assert "2 checks in `__getitem__`" in found[0].finding.message
    assert "Photos.__init__" in found[0].finding.fix
