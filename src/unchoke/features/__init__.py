"""Stage 5: the frozen part of a network, run once over every image and kept."""
