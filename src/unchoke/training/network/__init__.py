"""Training through a network: its blocks from a cut on, or all of it.

A `TrainingJob` (photos here, masks in `masks/mask_job.py`) is one picklable description of a training, from which any process
builds network, inputs and objective. `network_trainer.py` settles, plans and runs it, `finetune.py` is the loop, `sources.py`
and `feeding.py` bring batches, `plan_memory.py` sees that they fit, `distributed.py` runs several processes. Scores are
computed in `scoring`.
"""
