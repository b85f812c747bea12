"""Records rendered: plain text and JSON lines for the console, one self-contained HTML page for a run.

Nothing here computes results: in come plain values, out comes text.
"""
