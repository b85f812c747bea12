"""Many machines: the same jobs, run by a Ray cluster.

`connection.py` reaches a cluster and says which nodes are in it, `host.py` is what lives on a node, `ray_engine.py` keeps the
contract of `jobs/job_engines.py` over hosts, `team.py` has processes on several nodes do one thing together, and
`node_report.py` asks each node what it is. Starting and stopping clusters is Ray's business; books, artefacts and decisions stay
with the driver. Ray is imported late, and only here.
"""
