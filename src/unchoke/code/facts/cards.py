"""How much memory the graphics card has, as the author states it: in markdown, comments, docstrings and strings.

In comes a program, out goes a `Card` or None. Counts only figures that belong to a card: what is said of disks, archives and the
machine's main memory is passed over. A known card without a figure counts with the largest memory it was sold with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from unchoke.code.program import Program

# Largest memory sold under that name, in GB. Longer names first.
_CARDS = {
    "1050 ?ti": 4, "1050": 4, "1060": 6, "1070 ?ti": 8, "1070": 8, "1080 ?ti": 11, "1080": 8, "1630": 4,
    "1650(?: ?ti| ?super)?": 4, "1660(?: ?ti| ?super)?": 6, "2060 ?super": 8, "2060": 12, "2070(?: ?super)?": 8, "2080 ?ti": 11,
    "2080(?: ?super)?": 8, "3050 ?ti": 4, "3050": 8, "3060 ?ti": 8, "3060": 12, "3070(?: ?ti)?": 8, "3080 ?ti": 12, "3080": 12,
    "3090(?: ?ti)?": 24, "4050": 6, "4060 ?ti": 16, "4060": 8, "4070(?: ?ti)?(?: ?super)?": 16, "4080(?: ?super)?": 16,
    "4090": 24, "5060(?: ?ti)?": 16, "5070(?: ?ti)?": 16, "5080": 16, "5090": 32,
}  # fmt: skip
_NAMED = {
    "mx ?1[35]0": 4, "mx ?[23][0-9]0": 4, "mx ?4[0-9]0": 4, "tesla ?t4": 16, r"\bt4\b": 16, "tesla ?k80": 12, r"\bk80\b": 12,
    r"\bp100\b": 16, r"\bv100\b": 32, r"\ba100\b": 80, r"\bh100\b": 80, r"\bh200\b": 141, r"\bl40s?\b": 48, r"\bl4\b": 24,
    r"\ba10g?\b": 24, r"\bp40\b": 24, r"\ba4000\b": 16, r"\ba5000\b": 24, r"\ba6000\b": 48, "jetson nano": 4, "titan ?x": 12,
    "titan ?xp": 12, "titan ?v": 12, "titan ?rtx": 24,
}  # fmt: skip
_GTX = r"(?:gtx|rtx|geforce)\s*-?\s*(?:gtx|rtx)?\s*"
_KNOWN = [(re.compile(_GTX + pattern + r"(?!\d)", re.IGNORECASE), memory) for pattern, memory in _CARDS.items()]
_KNOWN += [(re.compile(pattern, re.IGNORECASE), memory) for pattern, memory in _NAMED.items()]
_GB = r"(?P<gb>\d{1,3}(?:[.,]\d)?)\s?-?(?:GB|GiB|gigs?|G)\b"
_OTHER = r"RAM|disk|SSD|HDD|zip|data|storage|images?|photos?|swap|download|unpacked|on disk"
_NOT_OF_CARD = rf"(?!\s*(?:of\s+)?(?:system\s+|main\s+|cpu\s+|host\s+|ddr\d\s*)?(?:{_OTHER})\b)"
_CARD = r"GPUs?|VRAM|cards?|graphics|video memory|GPU[- ]memory|GPU RAM"
_FIGURE = re.compile(r"[^.;\n]{0,24}?" + _GB + _NOT_OF_CARD, re.IGNORECASE)
_STATED = (
    re.compile(_GB + rf"(?:\s+(?!ram\b|disk\b|zip\b|ssd\b|and\b)[\w-]+){{0,2}}\s+(?:{_CARD})\b", re.IGNORECASE),
    re.compile(_GB + r"\s*(?:of\s+)?(?:VRAM|GPU|video|graphics)\b", re.IGNORECASE),
    re.compile(
        r"\b(?:VRAM|GPU|graphics card|video card|card)(?:\s+memory)?\s*(?:\(|:|=|is|has|with|of|only|,|about|~|\s)*"
        + _GB
        + _NOT_OF_CARD,
        re.IGNORECASE,
    ),
)
_OTHER_CARDS = re.compile(r"\b(?:micro ?)?(?:SD|memory|flash|CF)[- ]cards?\b[^.;\n]*", re.IGNORECASE)
_SETTING = re.compile(r"gpu|tesla|colab|nvidia|kaggle|cuda|vram|\bcards?\b|\d\s?G", re.IGNORECASE)  # `T4` alone may be anything
_WORTH = re.compile(
    r"\d\s?-?g(?:b|ib|igs?)?\b|gtx|rtx|geforce|tesla|titan|jetson|\bmx ?\d|\b[tklpvah]\d{1,4}g?s?\b", re.IGNORECASE
)
_SHORTEST, _LONGEST = 4, 4000


@dataclass(frozen=True)
class Card:
    """`words` is what the author wrote."""

    gigabytes: float
    words: str


def stated_card(program: Program) -> Card | None:
    """The card of the run; of several that are named, the largest."""
    found = [card for text in _texts(program) if _WORTH.search(text) for card in _cards_in(text)]
    return max(found, key=lambda card: card.gigabytes, default=None)


def _texts(program: Program) -> Iterator[str]:
    yield from (text for _, text in program.prose)
    for node in program.nodes(ast.Constant):
        if (
            isinstance(node.value, str)
            and _SHORTEST < len(node.value) < _LONGEST
            and not isinstance(program.parent(node), ast.Expr)
        ):
            yield node.value


def _cards_in(text: str) -> Iterator[Card]:
    plain = _OTHER_CARDS.sub(" ", re.sub(r"[*_`]+", "", text))
    for name, memory in _KNOWN:
        for found in name.finditer(plain) if _SETTING.search(plain) or not name.pattern.startswith(r"\b") else ():
            figure = _FIGURE.match(plain, found.end())
            if figure is not None and not any(other.search(figure.group()) for other, _ in _KNOWN):
                yield Card(_number(figure), plain[found.start() : figure.end()].strip(" ,;:"))
            else:
                yield Card(memory, found.group().strip())
            break
    for pattern in _STATED:
        yield from (Card(_number(found), found.group().strip()) for found in pattern.finditer(plain))


def _number(found: re.Match[str]) -> float:
    return float(found.group("gb").replace(",", "."))
