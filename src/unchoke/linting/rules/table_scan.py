"""A table searched for each sample.

`df[df.name == name]`, `df.query(…)` and `df.loc[mask]` compare every row to find one, and make a new table of it: tenths of a
millisecond for thousands of rows, many milliseconds for millions, for each sample and in every epoch. The answer never
changes.

**Write instead.** Sort it out once, in `__init__`, into something that is looked up:

    self.boxes = {name: rows.to_numpy() for name, rows in table.groupby("name")}    # then self.boxes[name]
    self.table = table.set_index("name")                                            # then self.table.at[name, "label"]

**When this is fine.** In code that runs once: that is not reported. Always a nit: it takes hundreds of thousands of rows to cost
as much as decoding a picture, and how many there are, the file does not tell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.facts.origins import is_of_sample
from unchoke.code.program import Program
from unchoke.linting.questions import is_done_anew
from unchoke.linting.rule import Hit, Rule

RULE = Rule(group="input", stage="read", title="a table searched for each sample", kind="nit", in_training=True)
_TABLE = re.compile(
    r"(?:^|_|\.)(?:df|dataframe|data_frame|frame|table|annotations?|labels_df|meta|metadata|csv)(?:_\w+)?$|_df$", re.IGNORECASE
)


def check(program: Program) -> Iterator[Hit]:
    for node in program.nodes(ast.Subscript, ast.Call):
        holder = _scanned(program, node)
        if holder is not None and is_done_anew(program, node):
            name = program.text(holder)
            said = f"`{program.text(node)[:70]}` compares all rows of `{name}` for every sample"
            yield Hit(node, said, {"table": name}, _fix(program, node, name))


def _fix(program: Program, node: ast.AST, name: str) -> str:
    where = "in `__init__`" if program.enclosing_class(node) is not None else "beforehand"
    operators = [operator for part in ast.walk(node) if isinstance(part, ast.Compare) for operator in part.ops]
    if any(isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for operator in operators):
        return f"sort `{name}` by that column once {where} and find the rows with `np.searchsorted`, or work out all answers once"
    return f"group `{name}` once {where} (`groupby`, or `set_index` and `.at`) and look the sample up here"


def _scanned(program: Program, node: ast.Subscript | ast.Call) -> ast.expr | None:
    """The table, where a condition on its columns picks rows by something of the sample."""
    if isinstance(node, ast.Call):
        held = program.receiver(node) if program.method(node) == "query" and node.args else None
        return held if held is not None and _is_table(program, held) and is_of_sample(program, node.args[0]) else None
    held = node.value.value if isinstance(node.value, ast.Attribute) and node.value.attr == "loc" else node.value
    mask = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    compares = list(program.within(mask, ast.Compare))
    if not compares or isinstance(node.ctx, ast.Store) or not _is_table(program, held):
        return None
    on_columns = any(program.text(part.left).startswith(program.text(held)) for part in compares)
    of_sample = any(is_of_sample(program, item) for part in compares for item in part.comparators)
    return held if on_columns and of_sample else None


def _is_table(program: Program, node: ast.expr) -> bool:
    return bool(_TABLE.search(program.written(node))) or program.made_by(node).startswith("pandas.")
