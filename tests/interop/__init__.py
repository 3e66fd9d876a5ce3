"""Referees that we did not write: every Kafka client we can run, against one server.

What is here:
- `server.py`: the server under test as a real process, ours or Apache's, from one server.properties. It can be
  restarted in the middle of a test, on the same data and the same port.
- `toolchain.py`: brings what the foreign peers need (Apache's jars, Go modules, npm packages) into `.cache/interop/`.
- `peer.py`: how a foreign program is driven: a job is a line of JSON on its stdin, its answers are lines of JSON.
- `python/ java/ go/ node/`: the programs, one a client library, all with the same jobs (`peer.py` lists them).
- `test_*.py`: scenes. A scene knows nothing of any client; it runs the same with each.
- `oracle/`: the same raw requests to Apache and to us, and their replies compared field by field.

Rules:
- A peer is the unmodified client. A scene that a client cannot do is not made for it (`Kind.codecs`, `.protocols`).
- A tool that is missing is an error, never a skip.
- What does not pass stays in FINDINGS.md with its reason; RESULTS.md is written by `make interop LONG=1`.

`OTTLA_INTEROP_SERVER` chooses the server: `ottla` (the default), `apache`, or `ottla,apache`: Apache proves the scenes.
"""
