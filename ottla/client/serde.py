"""How keys and values become columns and back, under the name that programs import: `ottla.serde` is where it is."""

from ottla.serde.serde import Errors as Errors
from ottla.serde.serde import Serde as Serde
from ottla.serde.serde import avro as avro
from ottla.serde.serde import binary as binary
from ottla.serde.serde import json as json
from ottla.serde.serde import protobuf as protobuf
from ottla.serde.serde import text as text
