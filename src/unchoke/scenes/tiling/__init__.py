"""Scenes to training tiles, as resumable jobs.

In come inspected scenes and settings; out come NPZ tiles and a manifest. `tile_choices.py` settles how, `tiles.py` reads a strip
of windows and writes its tiles, `strip_work.py` runs strips as jobs, `tile_outcome.py` writes the manifest. `plain_tile.py` is
only a yardstick.
"""
