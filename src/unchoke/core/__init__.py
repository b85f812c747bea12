"""What every room uses: errors, settings, units, files written whole, digests, clocks, events, the workspace.

`settings.py` is the one table of options, `metrics.py` the one list of metrics, `record.py` the typed record of a run,
`errors.py` the errors a person may see, `workspace.py` where files lie. No image is read and nothing is trained here.
"""
