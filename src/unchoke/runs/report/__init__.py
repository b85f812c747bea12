"""Records rendered: plain text and JSON for the console, one self-contained HTML page for a run, and pages of traces.

In come plain values, such as a `RunRecord`; out comes text. `console.py` prints, `text.py` and `json.py` render for it, `html.py`
makes the page of a run, `trace/` reads and shows traces of torch.profiler. Nothing here trains or scores.
"""
