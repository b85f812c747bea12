"""Notebooks cell by cell: what each does, what it costs, and what to do about it."""
