"""Python runs this when it starts, in every process that finds this folder on PYTHONPATH."""

import fake_mps

fake_mps.install()
