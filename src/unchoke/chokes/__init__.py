"""Choke points in code that runs: somebody's training script, unchanged.

In comes a command; out come a recording of what its processes did, where the time of a step went, and findings with what each
would save. `script_run.py` runs the command, `watch/` records from inside it, `recording.py` reads what was recorded,
`breakdown.py` divides the time, `diagnose/` finds causes, `remedy_trials.py` tries remedies. Code that is only read is the
business of `linting`.
"""
