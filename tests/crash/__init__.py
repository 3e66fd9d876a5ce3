"""What survives: a node that is killed, stopped, starved of disk, or swapped for Apache Kafka on the same directories.

What is here:
- `test_in_place.py` (interop): Apache Kafka and this node take turns on one set of log directories.
- `test_kill.py`: producers and a consumer group work while the node dies again and again; the checker knows every
  record that was acknowledged. `python -m tests.crash --kills 10000` is the long form (`make crash`).
- `test_full_disk.py`: a disk that takes no more, and takes again.
- `inventory.py`: everything that can be asked of a server, as data that two servers' answers are compared by.
- `seeds.py`: the scenes of the simulated disk with as many seeds as asked for (`make sim SEEDS=n`).
- `content.py`: puts one of everything on a server. `load.py`: the clients. `check.py`: the checker.

Rules:
- A server here is a process, and only processes that a test started are killed, by their id.
- What happens when is drawn from a seed, and a failure names it. The machine's own timing is not in the seed.
- SIGKILL does not take the page cache away: these tests show that the node's own death loses nothing that was
  written. What a power failure takes is the simulated disk's part (tests/log, tests/sim).
"""
