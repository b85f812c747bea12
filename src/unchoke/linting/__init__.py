"""Choke points in other people's code, found by reading it. Standard library only: no torch, no numpy, nothing is run.

`source` turns bytes into cells, `program` reads all cells as one program, `facts` says what that program does (which code runs
for each sample, which loop trains, what evaluates), `rules` holds one choke point per file, `engine` runs them over paths and
`fixing` rewrites what can be rewritten without changing meaning. Nothing here prints: `report` shows the findings.
"""
