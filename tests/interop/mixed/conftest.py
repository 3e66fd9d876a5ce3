"""All of this needs JVMs."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/interop/mixed" in str(item.path):
            item.add_marker("interop")
