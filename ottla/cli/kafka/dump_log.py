"""kafka-dump-log: what is in segments, indexes, snapshots and checkpoints."""

from __future__ import annotations

from ottla.cli.kafka.option import Given, Option, require
from ottla.cli.kafka.tool import Failed, command, tell
from ottla.kernel.error import KafkaError

_DECODERS = {
    "offsets-decoder": "offsets",
    "transaction-log-decoder": "transaction-log",
    "cluster-metadata-decoder": "cluster-metadata",
    "share-group-state-decoder": "share-group-state",
}
_STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"

OPTIONS = (
    Option("print-data-log", "Show the records too."),
    Option("verify-index-only", "Check the indexes, show nothing of them."),
    Option("index-sanity-check", "Check of the indexes what a start checks."),
    Option("files", "REQUIRED: the files, with commas.", "file1, file2, ..."),
    Option("max-message-size", "Without effect: batches may be of any size.", "size", int, default=5242880),
    Option("max-bytes", "Only so many bytes of each segment.", "size", int, default=2147483647),
    Option("deep-iteration", "Look into the batches."),
    Option("value-decoder-class", "How values are shown; only StringDecoder is here.", "", default=_STRING_DECODER),
    Option("key-decoder-class", "How keys are shown; only StringDecoder is here.", "", default=_STRING_DECODER),
    Option("offsets-decoder", "Records of __consumer_offsets."),
    Option("transaction-log-decoder", "Records of __transaction_state."),
    Option("cluster-metadata-decoder", "Records of __cluster_metadata."),
    Option("remote-log-metadata-decoder", "Records of __remote_log_metadata; there is none here."),
    Option("share-group-state-decoder", "Records of __share_group_state."),
    Option("skip-record-metadata", "Show only keys and values."),
)


def main() -> None:
    """The console script."""
    about = (
        "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
        "corrupt log segment."
    )
    command(OPTIONS, about, _run)


def _run(given: Given) -> int:
    from ottla.host.disk import HostDisk
    from ottla.log.dump import DumpOptions, dump

    require(given, "files")
    for name in ("value-decoder-class", "key-decoder-class"):
        if given[name].rpartition(".")[2] != "StringDecoder":
            raise Failed(f"Failed to load decoder class {given[name]}: only StringDecoder is here")
    if "remote-log-metadata-decoder" in given:
        raise Failed("there is no decoder of remote log metadata here")
    decoder = next((chosen for name, chosen in _DECODERS.items() if name in given), None)
    options = DumpOptions(
        print_data_log=decoder is not None
        or any(name in given for name in ("print-data-log", "value-decoder-class", "key-decoder-class")),
        deep_iteration="deep-iteration" in given,
        skip_record_metadata="skip-record-metadata" in given,
        verify_index_only="verify-index-only" in given,
        index_sanity_check="index-sanity-check" in given,
        decoder=decoder,
        max_bytes=given["max-bytes"],
    )
    disk = HostDisk()
    for path in given["files"].split(","):
        try:
            for line in dump(disk, path, options):
                # What Apache's tool says on stderr.
                if line.startswith(_COMPLAINTS):
                    tell(line)
                else:
                    print(line)
        except (OSError, ValueError, KafkaError) as error:
            raise Failed(f"{path}: {error}") from error
    return 0


_COMPLAINTS = ("Ignoring unknown file", "Mismatches in", "  Index offset:", "Non-consecutive offsets in")
