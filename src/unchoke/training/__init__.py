"""The part that trains: heads on cached features, or a network from a cut on, trained, scored and recorded.

In come samples and their features, activations or pixels; out come weights, scores and the record of a run. `problem.py` says
what is learnt, `inputs.py` what is read, `run_training.py:run_training` trains and judges, `build_record.py` writes the record.
Trainers are in `heads/` and `network/`, metrics in `scoring/`. How features are made is decided in `features`.
"""
