"""A workspace as a page in the browser of the same machine: runs as they train, photos, decisions about them.

In: a workspace, and what commands hand over (findings, answers of a model, photos that are alike). Out: pages, pictures and
events over HTTP, and lines of `corrections.csv`. Nothing else is written but thumbnails, and nothing leaves the machine.
"""
