"""What fits in memory.

`oom.py` knows an out-of-memory error, `memory_watch.py` reads peaks, `probe.py` runs a function in a process of its own, and
`memory_plan.py` chooses what to run under a limit. What a step is, the caller says.
"""
