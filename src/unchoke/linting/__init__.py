"""Choke points in other people's code, found by reading it: no torch, no numpy, nothing is run.

In come paths; out come findings. The room `code` turns bytes into a program and says what it does. Here `rules/` holds one choke
point in each file, `lint_engine.py` runs them, `lint_session.py` is the whole of `unchoke lint`, `fixing.py` rewrites what can be
rewritten without changing meaning, and `lint_text.py` and `exchange.py` render the findings.
"""
