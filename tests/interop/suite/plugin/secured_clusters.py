"""A plug-in of the pytest that runs confluent-kafka-python's tests: their fixtures find their clusters at a node's
listeners. CONFLUENT_CLUSTERS has the settings of clients, as JSON.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any


def pytest_plugin_registered(plugin: Any) -> None:
    """Their conftest.py and those that import its functions make clusters by these."""
    for name, settings in json.loads(os.environ["CONFLUENT_CLUSTERS"]).items():
        function = f"create_{name}_cluster"
        if hasattr(plugin, function):
            setattr(plugin, function, _running(plugin, settings))


def _running(plugin: Any, settings: Mapping[str, str]) -> Callable[..., Any]:
    from tests.integration.cluster_fixture import ByoFixture

    return lambda conf=None: ByoFixture(dict(settings))
