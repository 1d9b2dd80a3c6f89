from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start engines come last: whatever else is wrong shows within the first minutes.

    The order is otherwise kept, so tests that share an engine stay together.
    """
    items.sort(key=lambda item: item.get_closest_marker("engine") is not None)
