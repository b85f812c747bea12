"""What this machine is, what suits it, and what fits in its memory.

`detect.py` gives `MachineFacts`, `policy.py` turns them into choices with reasons, `backend.py` holds the few calls that differ
between devices, and `memory/` measures and plans memory. Nothing here knows what is trained.
"""
