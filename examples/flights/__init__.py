"""The demo: a year of flights goes through a node and a Streams program, and every result is checked and shown.

    python -m examples.flights [--speed-up N] [--bootstrap-servers HOST:PORT]

`examples/streams_flights.py` is the program; this package feeds and checks it. Read `__main__` first.

    data        the events, in time order, and the tables, as records
    feed        produces them with confluent-kafka
    results     reads the result topics while they grow
    pace        the tasks' progress, and whether all is processed
    referee     computes the same figures with pandas and compares
    screen      the output during the run and at its end
    plot        the picture
"""
