"""Choke points in other people's code, found by reading it: no torch, no numpy, nothing is run.

`code/` turns bytes into a program and says what it does. Here `rules/` holds one choke point per file, `lint_engine` runs them
over paths, `fixing` rewrites what can be rewritten without changing meaning, and `lint_text`, `sarif` and `github` show the
findings.
"""
