"""From the file of a photo to the pixels a network is shown.

`image.py` decodes, `resize.py` brings pixels to the input square, `tile_grid.py` cuts a picture into tiles, `pixel_cache.py`
keeps decoded pictures in the slots of `slots.py`, and `augment_batch.py` augments whole batches. No network runs here.
"""
