"""Many machines: the same jobs, run by a Ray cluster.

`connection.py` reaches a cluster and says which nodes are in it; `hosts.py` is the process on a node, and how the driver starts
and ends it. `ray_engine.py` keeps the contract of `jobs/job_engines.py` over hosts, `team.py` has processes on several nodes
train together. `node_work.py` is the frame of all work on nodes, `file_transfer.py` moves files between driver and nodes, and
`node_report.py` asks each node what it is. Starting and stopping clusters is Ray's business; the queue, artefacts and decisions
stay with the driver. Ray is imported late, and only here.
"""
