"""Wandering: random histories of requests, sent in lockstep to Apache Kafka and to us, and each reply compared.

    python -m tests.interop.oracle.wander --family transaction --seeds 1-500

Rules:
- One seed of one family is one history, whatever a server answers. A history is data (`history.py`): what depends on
  a reply (a producer's id, a member's epoch) is a reference that is looked up when the step is sent.
- Any step may be left out, and the rest is still a history: that is how a difference is made short (`shrink.py`).
- A difference counts only when its history shows it again. What was found and mended stands in `found/`.

Read `history.py`, `place.py`, then `walk.py`; each other module is a family.
"""
