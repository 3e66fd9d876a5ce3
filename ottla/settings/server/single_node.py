"""The settings of a single-node cluster: `ottla start` without a file, and `ottla.Node`.

Internal topics have one replica, and groups do not wait for more members.
"""


def single_node(directory: str, host: str, port: int, controller_port: int = 0) -> dict[str, str]:
    """Return the settings by Kafka's names. Port 0 means a free port."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": directory,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
