"""`unchoke claims run`: commonly reported gains, measured on this machine.

`registry.py` lists the claims, the `*_claims.py` files measure them on data that `claim_bench.py` makes, `claim.py` gives the
verdict, and `run_claims.py` runs them within the time given. The user's own data is not touched.
"""
