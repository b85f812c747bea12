"""Which samples exist and what they are labelled.

In comes a class-folder tree or a table with image folders; out comes a `Scan`: samples and findings. `scan.py:scan_samples`
begins, `table.py`, `columns.py` and `rows.py` read tables, `image_files.py` finds the files that cells name. No image is opened,
and nothing is written inside the data.
"""
