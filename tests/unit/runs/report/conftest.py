"""Realistic records to render, as plain values that a test may change."""

from __future__ import annotations

from typing import Any

import pytest

from records import GROCERIES, build_classification, build_network, build_regression, build_segmentation


@pytest.fixture
def clouds() -> dict[str, Any]:
    return build_segmentation()


@pytest.fixture
def network() -> dict[str, Any]:
    return build_network()


@pytest.fixture
def groceries() -> dict[str, Any]:
    return build_classification(GROCERIES)


@pytest.fixture
def fifty_classes() -> dict[str, Any]:
    return build_classification([f"species {k:02d} {'of the long name' if k % 9 == 0 else ''}".strip() for k in range(50)])


@pytest.fixture
def pasture() -> dict[str, Any]:
    return build_regression()
