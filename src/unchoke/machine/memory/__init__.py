"""What fits in memory.

`oom.py` knows an out-of-memory error, `probe.py` measures a real step in a process of its own, `search.py` decides which batch
sizes to measure, and `memory_plan.py` chooses from the measurements. `gauge.py` and `memory_watch.py` read peaks. What a step is,
the caller says.
"""
