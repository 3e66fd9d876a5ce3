"""The settings of a node that is a cluster of its own: `ottla start` without a file, and `ottla.Node`.

One replica of everything, and no waiting for members that will not come.
"""


def single_node(directory: str, host: str, port: int, controller_port: int = 0) -> dict[str, str]:
    """Settings by Kafka's names. Port 0 takes a free one."""
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
