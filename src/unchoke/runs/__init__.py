"""What was tried and what came out.

`session.py` is what every command works with, `experiment_store.py` keeps runs in one SQLite file (`database.py` has its tables),
`lookup.py` finds, lists and compares them, and `diagnosis.py` says what held a run back. What a run computes is decided
elsewhere.
"""
