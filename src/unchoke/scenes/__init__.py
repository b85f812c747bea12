"""Scenes, several bands on one grid: found, opened, read in windows, and cut into tiles.

In come folders, files or tables of rasters; out come `SceneFacts`, pixels and masks of windows, and splits by place
(`blocks.py`). `scan_scenes.py` finds, `open_scenes.py` opens, `raster.py` reads, `mask_sources.py` gives classes, `tiling/`
cuts. Nothing is trained here.
"""
