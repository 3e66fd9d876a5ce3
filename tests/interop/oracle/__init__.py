"""The oracle: the same raw requests to Apache Kafka and to us, and their replies compared field by field.

Rules:
- A script is written once and run on each side. Ids that a server makes (topics, producers, members, sessions) are
  replaced by their order of appearance, times by the word "time"; everything else must be equal.
- A difference that is allowed stands in `allowed.py` with its reason. Nothing else is left out of the comparison.
- With `OTTLA_INTEROP_SERVER=apache` a second Apache is compared with the first: what differs then is our fault.

- Besides the scripts there are histories that a seed draws (`wander/`), and those in which a difference was found.

Read `side.py` first.
"""
