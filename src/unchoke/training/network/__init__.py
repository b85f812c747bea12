"""Training through a network: its blocks from a cut on, or all of it.

In comes a `Subject` (photos here, masks in `masks/mask_subject.py`); out come weights and outputs. `network_trainer.py` settles,
plans and runs a training, `finetune.py` is the loop, `sources.py` and `feeding.py` bring batches, `plan_memory.py` sees that they
fit, `distributed.py` runs several processes. Scores are computed in `scoring`.
"""
