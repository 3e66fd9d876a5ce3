"""The origin of an append, which decides the checks, and its result."""

from enum import Enum

from ottla.kernel.named import NamedTuple


class Origin(Enum):
    """The side that appends."""

    #: A producer: everything is checked.
    CLIENT = "client"
    #: A coordinator or the controller of this node: no sequences, control batches allowed, several batches allowed.
    COORDINATOR = "coordinator"
    #: A fetch from the leader: offsets and epochs are taken as they are.
    REPLICA = "replica"


class Appended(NamedTuple):
    """The result of an append."""

    base_offset: int
    last_offset: int
    #: -1 with CreateTime.
    log_append_time_ms: int
    max_timestamp: int
    #: The batch is a retry; the offsets are those of its first append.
    duplicate: bool
