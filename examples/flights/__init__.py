"""The demo: a year of flights goes through a node and a Spark pipeline, and every result is checked and shown.

    python -m examples.flights [--speed-up N] [--bootstrap-servers HOST:PORT]

`examples/flights_pipeline.py` is the pipeline; here is what stands around it. Read `__main__` first.

    data        the events, in time order, and the tables, as records
    feed        produces them with confluent-kafka
    results     reads the result topics while they grow
    referee     the same figures with pandas, and whether all are equal
    screen      what is seen while it runs and at its end
    plot        the picture
"""
