"""Stage 1: which samples exist, what they are labelled, how they are split, and whether they are sound.

`scan.scan_samples` reads folders and tables, `splits.assign_splits` divides, `manifest` keeps the division, `preflight` judges
what `check` learnt of the files. Nothing here opens an image, and nothing here writes inside the data.
"""
