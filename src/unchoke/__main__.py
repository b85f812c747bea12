"""`python -m unchoke`: the same as the `unchoke` command."""

from __future__ import annotations

from unchoke.cli.main import main

if __name__ == "__main__":
    main()
