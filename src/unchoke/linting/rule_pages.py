"""The pages of `docs/lint`, made from the rules' docstrings: `python -m unchoke.linting.rule_pages [FOLDER]`.

In come the rules, out goes one Markdown page for each and an index; pages of rules that are gone are removed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.core import atomic, listing
from unchoke.core.errors import UsageError
from unchoke.linting.lint_text import rule_facts
from unchoke.linting.rule import Rule
from unchoke.linting.rules import GROUPS, LoadedRule, all_rules

FOLDER = Path("docs/lint")
_ABOUT = {
    "input": "what a sample costs before the network sees it",
    "device": "what keeps a device waiting, or breaks on another one",
    "resume": "what is lost when the run is",
    "process": "what breaks, or idles, with worker processes",
    "compute": "work that is done twice, one at a time, or for nothing",
}
_WORDS = {"--fix": "`--fix`"}
_INDEX = """\
# unchoke lint

Choke points in training code, found by reading it: notebooks (all cells as one program) and scripts, PyTorch and
TensorFlow/Keras. Nothing is run, and torch is not loaded.

    unchoke lint notebooks/ train.py
    unchoke lint train.py --diff              # what --fix would change
    unchoke lint . --select input,host-sync   # rules, or groups of them
    unchoke lint . --format sarif --output lint.sarif
    unchoke lint --explain {example}

It exits 0 where nothing is found, 1 on findings, 2 on wrong usage. A cell that does not parse is named and passed over; where
nothing at all could be read, it exits 1. A line marked `# noqa`, `# noqa: {example}` or
`# unchoke: ignore[{example}]` is left out. Each finding is a *choke* (it likely costs time or loses work), a
*risk* (it breaks elsewhere, or gives wrong results) or a *nit* (true, and it hardly matters). Chokes and risks are said only
where the rule has been right about code of strangers, or the file itself shows what is at stake; the tables say what a rule's
findings are at most, its page where they are nits. In a notebook that trains for five epochs and more on pictures decoded from
files, much is at stake: rules marked * are chokes there, whatever else their pages say. Nits are left out, and counted, unless
`--nits` asks for them, or `--select` with the rule's own name. A gain that was measured here names its heading in
[claims](../claims.md); any other is a commonly reported one, and says *unmeasured*.

These pages are the docstrings of the rules; `python -m unchoke.linting.rule_pages` writes them.
"""


def build_pages() -> dict[str, str]:
    """File name to text, for the index and every rule."""
    rules = all_rules()
    return {"index.md": _index(rules), **{f"{loaded.rule.code}.md": _page(loaded) for loaded in rules}}


def write_pages(folder: Path) -> list[str]:
    """Write what differs, remove what belongs to no rule; the names of the files that changed."""
    pages = build_pages()
    changed = atomic.write_changed(folder, pages)
    for name in listing.names(folder, suffix=".md"):
        if name not in pages:
            (folder / name).unlink()
            changed.append(name)
    return changed


def _index(rules: Sequence[LoadedRule]) -> str:
    parts = [_INDEX.format(example=rules[0].rule.code)]
    for group in GROUPS:
        own = [loaded.rule for loaded in rules if loaded.rule.group == group]
        rows = [
            f"| [{rule.code}]({rule.code}.md) | {rule.kind}{' *' if rule.in_training else ''} | {_cell(rule.title)} "
            f"| {'yes' if rule.fixable else ''} |"
            for rule in own
        ]
        if rows:
            heading = f"## {group}: {_ABOUT[group]}\n"
            parts.append("\n".join([heading, "| rule | kind | what it is | `--fix` |", "|---|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _page(loaded: LoadedRule) -> str:
    """The heading, the docstring, and what the rule says of itself."""
    rule = loaded.rule
    facts = "\n".join(f"| {word} | {text} |" for word, text in _facts(rule))
    return f"# {rule.code}\n\n{loaded.page}\n\n| | |\n|---|---|\n{facts}\n\n[All rules](index.md)\n"


def _facts(rule: Rule) -> list[tuple[str, str]]:
    anchor = re.sub(r"[^\w\- ]", "", rule.claim.lower()).replace(" ", "-")  # as GitHub makes them
    said = rule_facts(replace(rule, gain=_cell(rule.gain)), f"[{rule.claim}](../claims.md#{anchor})")
    rows = [("instead", f"`{_cell(text)}`") if word == "command" else (_WORDS.get(word, word), text) for word, text in said]
    return [*rows, ("leave out", f"`# noqa: {rule.code}` on the line")]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str]) -> None:
    """Write the pages to the folder named, or to docs/lint here."""
    folder = Path(arguments[0]) if arguments else FOLDER
    if not folder.parent.is_dir():
        why = f"there is no folder {folder.parent} here"
        raise UsageError(
            f"cannot write the pages to {folder}",
            code="output-not-writable",
            why=why,
            try_="run it in the root of the repository, or name a folder",
        )
    write_pages(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
