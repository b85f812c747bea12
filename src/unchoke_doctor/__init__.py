"""unchoke_doctor: reads, runs and explains other people's training code. The standard library is all it needs.

`lint.py` reads notebooks and scripts, `notebook.py` explains one cell by cell, `profile.py` runs a command and shows where its
time goes. `python -m unchoke_doctor` has the three as commands, which `unchoke` hands on.
"""
