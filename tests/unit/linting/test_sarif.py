"""SARIF 2.1.0: the properties each object may have, the rules with their pages, regions from 1, cells by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.linted import BAD, CODE, FIXABLE, folder_of_three

from unchoke.code.source import parse_source
from unchoke.linting.exchange import render_sarif, sarif_log
from unchoke.linting.lint_engine import LintResult, lint_source
from unchoke.linting.lint_session import run_lint
from unchoke.linting.rules import all_rules

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
FROM_1 = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}


def only(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these properties and no others, as the standard's schema has them."""
    properties = {**required, **optional}
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def each(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


REGION = only({"startLine": FROM_1}, startColumn=FROM_1, endLine=FROM_1, endColumn=FROM_1, snippet=TEXT)
ARTIFACT = only({"uri": {"type": "string", "format": "uri-reference", "pattern": r"^[^\s\\]+$"}})
LOCATION = only(
    {"physicalLocation": only({"artifactLocation": ARTIFACT}, region=REGION)},
    logicalLocations=each(
        only({"name": {"type": "string"}, "fullyQualifiedName": {"type": "string"}, "kind": {"type": "string"}})
    ),
)
REPLACEMENT = only({"deletedRegion": REGION, "insertedContent": TEXT})
CHANGE = only({"artifactLocation": ARTIFACT, "replacements": {**each(REPLACEMENT), "minItems": 1}})
BAG = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
RULE = only(
    {"id": {"type": "string"}, "help": TEXT},
    name={"type": "string"}, shortDescription=TEXT, fullDescription=TEXT, properties=BAG,
    defaultConfiguration=only({"level": LEVEL}),
)  # fmt: skip
RESULT = only(
    {"ruleId": {"type": "string"}, "message": TEXT, "locations": each(LOCATION)},
    ruleIndex={"type": "integer", "minimum": 0}, level=LEVEL, partialFingerprints={"type": "object"}, properties=BAG,
    fixes=each(only({"artifactChanges": {**each(CHANGE), "minItems": 1}}, description=TEXT)),
)  # fmt: skip
INVOCATION = only(
    {"executionSuccessful": {"type": "boolean"}},
    toolExecutionNotifications=each(only({"message": TEXT}, level=LEVEL, locations=each(LOCATION))),
)
DRIVER = only({"name": {"const": "unchoke"}}, semanticVersion={"type": "string"}, rules=each(RULE))
RUN = only(
    {"tool": only({"driver": DRIVER}), "results": each(RESULT)},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations=each(INVOCATION),
)
LOG = only({"version": {"const": "2.1.0"}, "runs": each(RUN)}, **{"$schema": {"type": "string"}})


def validated(result: LintResult) -> dict[str, Any]:
    """The log as a reader gets it, after a look at its shape; the one run of it."""
    jsonschema = pytest.importorskip("jsonschema")
    text = render_sarif(result, [*all_rules(), FIXABLE])
    assert text.isascii()
    log = json.loads(text)
    jsonschema.validate(log, LOG)
    run: dict[str, Any] = log["runs"][0]
    return run


def test_results_point_at_rules_with_pages(tmp_path: Path) -> None:
    run = validated(run_lint([str(folder_of_three(tmp_path))], select=[CODE]).result)
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [CODE, CODE]
    assert "When this is fine" in rules[run["results"][0]["ruleIndex"]]["help"]["markdown"]
    assert all(rule["fullDescription"]["text"].endswith(".") for rule in rules)


def test_lines_and_columns_count_from_1_in_the_cell(tmp_path: Path) -> None:
    run = validated(run_lint([str(folder_of_three(tmp_path))], select=[CODE]).result)
    book, script = (result["locations"][0] for result in run["results"])
    region = script["physicalLocation"]["region"]
    assert [region[key] for key in ("startLine", "startColumn", "endLine", "endColumn")] == [10, 12, 10, 41]
    assert region["snippet"]["text"] == BAD.splitlines()[9]
    assert "logicalLocations" not in script
    assert book["physicalLocation"]["region"] == region
    assert book["logicalLocations"][0]["name"] == "cell 3"
    assert book["logicalLocations"][0]["fullyQualifiedName"].endswith("leaves.ipynb:cell 3")


def test_what_could_not_be_read_is_a_notification(tmp_path: Path) -> None:
    (invocation,) = validated(run_lint([str(folder_of_three(tmp_path))], select=[CODE]).result)["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/broken.py")


@pytest.mark.parametrize(
    ("path", "uri"),
    [("a b/train.py", "a%20b/train.py"), ("x:y#1.py", "x%3Ay%231.py"), ("../ü.py", "../%C3%BC.py")],
)
def test_paths_become_relative_uris(path: str, uri: str) -> None:
    found, problems = lint_source(parse_source(path, b"slow()\n"), [FIXABLE])
    (result,) = validated(LintResult(found, problems, 1, 1))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_an_absolute_path_is_a_file_uri(tmp_path: Path) -> None:
    found, problems = lint_source(parse_source(str(tmp_path / "a.py"), b"slow()\n"), [FIXABLE])
    (result,) = validated(LintResult(found, problems, 1, 1))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == (tmp_path / "a.py").as_uri()


def test_a_mechanical_fix_of_a_script_goes_along() -> None:
    found, problems = lint_source(parse_source("a.py", b"x = slow()\n"), [FIXABLE])
    (result,) = validated(LintResult(found, problems, 1, 1))["results"]
    (replacement,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["insertedContent"]["text"] == "fast"
    assert replacement["deletedRegion"] == {"startLine": 1, "startColumn": 5, "endLine": 1, "endColumn": 9}


def test_fingerprints_survive_moves_and_tell_twins_apart() -> None:
    def prints(text: str) -> list[str]:
        found, problems = lint_source(parse_source("a.py", text.encode()), [FIXABLE])
        results = sarif_log(LintResult(found, problems, 1, 1), [FIXABLE])["runs"][0]["results"]
        return [result["partialFingerprints"]["chokePoint/v1"] for result in results]

    assert prints("slow()\n") == prints("x = 1\n\nslow()\n")
    assert len(set(prints("slow()\nslow()\n"))) == 2
