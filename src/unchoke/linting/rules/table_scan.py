"""A table searched for each sample, or a row of it built as an object of its own.

`df[df.name == name]`, `df.query(…)` and `df.loc[mask]` compare every row to find one, and make a new table of it: tenths of a
millisecond for thousands of rows, many milliseconds for millions, for each sample and in every epoch. The answer never
changes.

**Write instead.** Sort it out once, in `__init__`, into something that is looked up:

    self.boxes = {name: rows.to_numpy() for name, rows in table.groupby("name")}    # then self.boxes[name]
    self.table = table.set_index("name")                                            # then self.table.at[name, "label"]

A row by its number (`table.iloc[index]`) is made into a Series with an index, commonly some tens of microseconds and more for
many columns: nothing beside a decode, but most of the time where the row itself is the sample. Take the columns out once, as
an array:

    self.x = torch.from_numpy(table[columns].to_numpy(np.float32))                  # then self.x[index]

**When this is fine.** In code that runs once, and rows of a table beside a picture that has to be decoded: those are not
reported. Always a nit: it takes hundreds of thousands of rows to cost as much as decoding a picture, and how many there are, the
file does not tell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.facts.origins import is_of_sample
from unchoke.code.facts.vocabulary import words
from unchoke.code.program import Program
from unchoke.linting.questions import calls_run_by, is_done_anew
from unchoke.linting.rule import Hit, Rule

RULE = Rule(group="input", stage="read", title="a table searched, or a row of it built, for each sample", kind="nit")
_TABLE = re.compile(
    r"(?:^|_|\.)(?:df|dataframe|data_frame|frame|table|annotations?|labels_df|meta|metadata|csv)(?:_\w+)?$|_df$", re.IGNORECASE
)
_READS = frozenset({"open", "read", "load", "imread", "decode", "loader", "tokenizer", "tokenize", "encode", "transform"})


def check(program: Program) -> Iterator[Hit]:
    yield from _rows(program)
    for node in program.nodes(ast.Subscript, ast.Call):
        holder = _scanned(program, node)
        if holder is not None and is_done_anew(program, node):
            name = program.text(holder)
            said = f"`{program.text(node)[:70]}` compares all rows of `{name}` for every sample"
            yield Hit(node, said, {"table": name}, _fix(program, node, name))


def _rows(program: Program) -> Iterator[Hit]:
    """`self.df.iloc[i]` in a data set that reads and decodes nothing else."""
    for node in program.nodes(ast.Subscript):
        held = node.value.value if isinstance(node.value, ast.Attribute) and node.value.attr == "iloc" else None
        function = program.enclosing_function(node)
        if held is None or function is None or function.name != "__getitem__" or not _is_table(program, held):
            continue
        name, one = program.text(held), not isinstance(node.slice, ast.Slice | ast.Tuple) and is_of_sample(program, node.slice)
        if one and is_done_anew(program, node) and not _reads_more(program, function, node, name):
            yield Hit(
                node,
                f"`{program.text(node)}` makes a pandas object of a row for every sample, which is all that this data set reads",
                {"table": name},
                f"take the columns out once in `__init__`, `{name}[columns].to_numpy(np.float32)`, and pick rows of that array "
                "here",
            )
            return


def _reads_more(program: Program, function: ast.AST, row: ast.Subscript, table: str) -> bool:
    """Is anything read or decoded, or taken from something else (`self.images[i]`), beside which a row costs little?"""
    if program.facts.decodes(function):
        return True
    if any(_READS & set(words(program.method(call))) for call in calls_run_by(program, function)):
        return True
    for item in program.within(function, ast.Subscript):
        held = program.written(item.value)
        other = held.startswith("self.") and held != table and not held.startswith(f"{table}.")
        unread = [name for name in program.targets(item) if not any(isinstance(use.ctx, ast.Load) for use in program.names(name))]
        if other and not unread and not program.index.holds(row, item) and is_of_sample(program, item.slice):
            return True
    return False


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
