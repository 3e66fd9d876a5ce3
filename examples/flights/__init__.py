"""The demo: a year of flights goes through a node and a Streams program, and every result is checked and shown.

    python -m examples.flights [--speed-up N] [--bootstrap-servers HOST:PORT]

`examples/streams_flights.py` is the program; here is what stands around it. Read `__main__` first.

    data        the events, in time order, and the tables, as records
    feed        produces them with confluent-kafka
    results     reads the result topics while they grow
    pace        what the tasks tell, and whether all is processed
    referee     the same figures with pandas, and whether all are equal
    screen      what is seen while it runs and at its end
    plot        the picture
"""
