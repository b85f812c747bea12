"""Stage 3: one sample to one or many windows; pure arithmetic."""
