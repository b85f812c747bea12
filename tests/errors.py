"""Errors are matched by their code and by the data they name; their words are listed in docs/reference/errors.md alone."""

from __future__ import annotations

import pytest

from unchoke.core.errors import UnchokeError


def refused(code: str, *parts: str) -> pytest.RaisesExc[UnchokeError]:
    """A block that must end in the error `code`; each of `parts`, values of the test's own data, stands in its lines."""

    def check(error: UnchokeError) -> bool:
        lines = f"{error.what}\n{error.why}\n{error.try_}"
        return error.code == code and all(part in lines for part in parts)

    return pytest.raises(UnchokeError, check=check)
