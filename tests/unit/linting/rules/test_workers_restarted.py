"""workers-restarted beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

RULE = OneRule("workers-restarted", "from torch.utils.data import DataLoader, Subset\n")
STEP = "loss = net(x).sum()\n        loss.backward()\n        opt.step()\n"


@each(
    ("body", "kinds"),
    [
        (
            "for epoch in range(9):\n    loader = DataLoader(data, 8, num_workers=2)\n    for x in loader:\n        " + STEP,
            ["choke"],
        ),
        ("for epoch in range(9):\n    for x in DataLoader(Table('a.csv'), 8):\n        " + STEP, ["nit"]),
        ("for epoch in range(9):\n    for x in DataLoader(data, 8):\n        " + STEP, []),
        (
            "def peek():\n    return next(iter(DataLoader(val, 8, num_workers=2)))\n"
            "for x in loader:\n    peek()\n    if 1:\n        " + STEP,
            ["choke"],
        ),
        (
            "for epoch in range(9):\n    loader = DataLoader(Subset(data, p(epoch)), 8)\n    for x in loader:\n        " + STEP,
            [],
        ),
        ("loader = DataLoader(data, 8, num_workers=4)\nfor epoch in range(9):\n    for x in loader:\n        " + STEP, ["nit"]),
        ("loader = DataLoader(data, 8, num_workers=4)\nfor epoch in range(2):\n    for x in loader:\n        " + STEP, []),
        ("loader = DataLoader(data, 8)\nfor epoch in range(9):\n    for x in loader:\n        " + STEP, []),
        (
            "loader = DataLoader(data, 8, num_workers=4, persistent_workers=True)\n"
            "for epoch in range(9):\n    for x in loader:\n        " + STEP,
            [],
        ),
    ],
)
def test_loaders_made_in_loop_and_workers_ended_by_epoch(body: str, kinds: list[str]) -> None:
    assert [item.kind for item in RULE.found(RULE.whole(body))] == kinds
