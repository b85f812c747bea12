"""Notebooks cell by cell: what each cell does, what it costs, and what to do about it.

In comes a notebook as `code` reads it; out come deeds (`cells.py`), measured costs where it is run in a kernel of its own
(`run_cells.py`), and a verdict for each cell (`verdict.py`), rendered as text, Markdown or HTML (`notebook_*.py`). The notebook's
file is never written.
"""
