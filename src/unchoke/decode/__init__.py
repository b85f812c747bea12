"""Stage 2: bytes to pixels, once."""
