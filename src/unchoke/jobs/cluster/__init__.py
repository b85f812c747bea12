"""Many machines: the same jobs, run by a Ray cluster.

`connection.py` reaches a cluster and says which nodes are in it; `host.py` is what lives on a node, `hosting.py` how the driver
starts and ends it. `ray_engine.py` keeps the contract of `jobs/job_engines.py` over hosts, `team.py` has processes on several
nodes do one thing together. `node_work.py` is the frame of all work on nodes, `sending.py` takes files there, `homing.py` brings
them back, and `node_report.py` asks each node what it is. Starting and stopping clusters is Ray's business; books, artefacts and
decisions stay with the driver. Ray is imported late, and only here.
"""
