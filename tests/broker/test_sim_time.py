"""What a simulated node does may not depend on how fast the machine is that simulates it."""

from __future__ import annotations

from ottla.wire.api import alter_client_quotas, metadata
from tests.broker.disk_scene import Scene


def test_request_quotas_count_simulated_time() -> None:
    scene = Scene()
    entity = [alter_client_quotas.EntityData(entity_type="client-id", entity_name=None)]
    op = alter_client_quotas.OpData(key="request_percentage", value=1e-9, remove=False)
    entry = alter_client_quotas.RequestEntryData(entity=entity, ops=[op])
    assert scene.ask(alter_client_quotas.AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == 0
    throttled = [scene.ask(metadata.MetadataRequest(topics=None), 9).throttle_time_ms for _ in range(20)]
    assert throttled == [0] * 20
