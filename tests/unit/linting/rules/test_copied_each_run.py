"""copied-each-run beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

RULE = OneRule("copied-each-run", "import os, shutil, tarfile, zipfile\n")


@each(
    ("body", "kinds"),
    [
        ("shutil.copytree('a', 'b')", ["nit"]),
        ("shutil.rmtree('b')\nshutil.copytree('a', 'b')", ["nit"]),
        ("shutil.unpack_archive('a.zip', 'b')", ["nit"]),
        ("with tarfile.open('a.tgz') as tar:\n    tar.extractall('b')", ["nit"]),
        ("if not os.path.exists('b'):\n    shutil.copytree('a', 'b')", []),
        ("def prepare():\n    shutil.copytree('a', 'b')", []),
        ("for fold in folds:\n    shutil.copytree('a', fold)", []),
        ("shutil.copy('a.txt', 'b.txt')", []),
    ],
)
def test_copies_that_nothing_asks_about(body: str, kinds: list[str]) -> None:
    assert [item.kind for item in RULE.found(RULE.whole(body))] == kinds
