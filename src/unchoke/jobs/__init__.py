"""Resumable small jobs over items of any kind.

In come items and a plain function; out come artefacts and a record of each job. `job_plan.py` says what there is to do,
`queue.py` keeps the state, `run_jobs.py` does what is pending, and `job_engines.py` runs functions in threads or processes.
Nothing here knows what an item is, and nothing here loads torch or numpy.
"""
