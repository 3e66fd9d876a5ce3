"""kafka-dump-log: the content of segments, indexes, snapshots and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.program.option import Given, Option, int32, pieces, require
from ottla.cli.kafka.program.tool import Failed, command, tell
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.log.dump.dump_log import DumpOptions

_DECODERS = {
    "offsets-decoder": "offsets",
    "transaction-log-decoder": "transaction-log",
    "cluster-metadata-decoder": "cluster-metadata",
    "share-group-state-decoder": "share-group-state",
}
_PACKAGE = "org.apache.kafka.tools.api"
_STRING_DECODER = f"{_PACKAGE}.StringDecoder"
_HOW = "StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder (as hexadecimal digits)."

OPTIONS = (
    Option("print-data-log", "Print the records too."),
    Option("verify-index-only", "Check the indexes without printing them."),
    Option("index-sanity-check", "Check the indexes like a broker at startup."),
    Option("files", "REQUIRED: files, separated by commas.", "file1, file2, ..."),
    Option("max-message-size", "Ignored: batches may have any size.", "size", int32, default=5242880),
    Option("max-bytes", "Maximum number of bytes of each segment.", "size", int32, default=2147483647),
    Option("deep-iteration", "Print the content of batches."),
    Option("value-decoder-class", f"Decoder of values: {_HOW}", "", default=_STRING_DECODER, optional=True),
    Option("key-decoder-class", f"Decoder of keys: {_HOW}", "", default=_STRING_DECODER, optional=True),
    Option("offsets-decoder", "Decode records of __consumer_offsets."),
    Option("transaction-log-decoder", "Decode records of __transaction_state."),
    Option("cluster-metadata-decoder", "Decode records of __cluster_metadata."),
    Option("remote-log-metadata-decoder", "Not supported: decode records of __remote_log_metadata."),
    Option("share-group-state-decoder", "Decode records of __share_group_state."),
    Option("skip-record-metadata", "Print only keys and values."),
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
    from ottla.log.dump.dump_index import Complaints
    from ottla.log.dump.dump_log import dump

    require(given, "files")
    options = _options(given)
    disk, complaints = HostDisk(), Complaints()
    for path in pieces(given["files"]):
        try:
            for line in dump(disk, path, options, complaints):
                print(line)
        except OttlaError as error:
            raise Failed(str(error)) from error
        except OSError as error:
            raise Failed(f"{path}: {error.strerror or error}") from error
        except ValueError as error:
            raise Failed(f"{path} is not a log file: {error}") from error
        except KafkaError as error:
            raise Failed(f"{path}: {error}") from error
    tell(*complaints.lines())
    return 0


def _options(given: Given) -> DumpOptions:
    from ottla.log.dump.decoder import READERS, decode_as
    from ottla.log.dump.dump_log import DumpOptions

    names = []
    for option in ("key-decoder-class", "value-decoder-class"):
        package, _, name = (given[option] or _STRING_DECODER).rpartition(".")
        if package != _PACKAGE or name not in READERS:
            raise Failed(f"Failed to load decoder class {given[option]} (expected {', '.join(READERS)} of {_PACKAGE})")
        names.append(name)
    if "remote-log-metadata-decoder" in given:
        raise Failed("remote log metadata is not supported")
    decoder = next((chosen for name, chosen in _DECODERS.items() if name in given), None)
    return DumpOptions(
        print_data_log=decoder is not None
        or any(name in given for name in ("print-data-log", "value-decoder-class", "key-decoder-class")),
        deep_iteration="deep-iteration" in given,
        skip_record_metadata="skip-record-metadata" in given,
        verify_index_only="verify-index-only" in given,
        index_sanity_check="index-sanity-check" in given,
        decoder=decoder,
        show=decode_as(names[0], names[1]) if decoder is None else None,
        max_bytes=given["max-bytes"],
    )
