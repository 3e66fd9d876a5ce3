"""Serdes for table columns: re-exports `ottla.serde.serde` under the name that programs import."""

from ottla.serde.serde import Errors as Errors
from ottla.serde.serde import Serde as Serde
from ottla.serde.serde import avro as avro
from ottla.serde.serde import binary as binary
from ottla.serde.serde import json as json
from ottla.serde.serde import protobuf as protobuf
from ottla.serde.serde import text as text
