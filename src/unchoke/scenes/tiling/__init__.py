"""Scenes cut into training tiles, strip by strip, as resumable jobs.

In come inspected scenes and settings; out come NPZ tiles and a manifest. `tile.py` is the command, `tiles.py` reads a strip of
windows and writes its tiles, `tile_jobs.py` runs strips as jobs, `tile_result.py` writes the manifest.
"""
