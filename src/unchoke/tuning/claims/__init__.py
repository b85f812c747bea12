"""`unchoke claims run`: commonly reported gains, measured on this machine. `registry` lists them, `run_claims` measures them."""
