"""Python programs and notebooks, read and never run.

In come bytes of a script or notebook; out comes a `Program` that says what it does. `source.py` makes cells, `nodes.py`,
`naming.py`, `tracing.py` and `constant_values.py` say what is where, who calls whom and which values are known, and `program.py`
puts them together with the facts of `facts/`. What is wrong with a program is said in `linting` and `notebooks`. Loads neither
torch nor numpy.
"""
