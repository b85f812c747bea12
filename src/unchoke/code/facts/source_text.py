"""Names of variables to words, and words to roles: is `val_loader` for training or for evaluation?"""

from __future__ import annotations

import re
from typing import Literal

Role = Literal["train", "eval", "unknown"]
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TRAIN = frozenset(
    {"train", "training", "trn", "tr", "trainloader", "trainset", "traindl", "fit", "trains", "traindata", "once"} - {"once"}
)
_EVAL = frozenset(
    {
        "val", "valid", "validation", "vali", "va", "vl", "test", "testing", "tst", "te", "dev", "eval", "evaluation",
        "holdout", "hold", "heldout", "held", "infer", "inference", "pred", "predict", "submission", "sub", "valloader",
        "testloader", "valset", "testset", "check", "query", "oof", "validloader", "unseen",
    }
)  # fmt: skip
_EVALUATING = re.compile(
    r"^_*(?:run_|do_|get_|compute_|calc_|full_|make_|my_|one_)?(?:eval|valid|val(?:_|$|\d)|test(?!_?loader|_?data|_?set|_?dl)|predict|infer|score(?:_|$)|submi)",
    re.IGNORECASE,
)
_EVALUATING_INSIDE = re.compile(
    r"_(?:eval|evaluate|evaluation|val|valid|validate|validation|test|predict|prediction|inference)(?:_|$)", re.IGNORECASE
)


def words(name: str) -> list[str]:
    """`valLoader_2` to `val`, `loader`, `2`."""
    return [word.lower() for word in _WORDS.findall(name)]


def role_of(name: str) -> Role:
    """What a variable, function or folder name says it is for."""
    found = words(name)
    for word in found:
        if word in _TRAIN:
            return "train"
        if word in _EVAL:
            return "eval"
    for word in found:
        if word.startswith("train"):
            return "train"
        if word.startswith(("val", "test")) and word not in ("value", "values"):
            return "eval"
    return "unknown"


def is_evaluating_name(name: str) -> bool:
    """Does a function's name say that it evaluates: eval*, valid*, test*, predict*, infer*?"""
    if name.lower().endswith(("loader", "_dl", "_data", "_set", "dataset", "_df", "_split")):
        return False
    if role_of(name) == "train" and not name.lower().startswith(("eval", "valid", "test", "predict", "infer")):
        return False
    return bool(_EVALUATING.match(name) or _EVALUATING_INSIDE.search(name))
