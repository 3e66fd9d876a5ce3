"""Test suites that were not written here, run against the node.

- `kgo.py`: the tests of franz-go's client (its Go module carries them)
- `sarama.py`: sarama's functional tests (its Go module carries them)
- `librdkafka.py`: librdkafka's tests that need a broker (the npm package @confluentinc/kafka-javascript carries them)
- `confluent.py`: confluent-kafka-python's integration tests (its repository has them)
- `kafka_python.py`: kafka-python's integration tests (its sources on PyPI carry them), which start their own nodes with
  `kafka_script.py`
- `aiokafka.py`: aiokafka's tests (its repository has them), whose container is a node of `aiokafka_node.py`
- `trogdor.py`: Apache's own load tests (a Maven artifact)
- `secured.py`: a node with TLS and SASL, at which they run as well
- `plugin/`, `sarama_secured.go`, `token_server.py`: what some of them need there
- `go_program.py`, `pytest_program.py`: how tests that Go built, and those that pytest runs, are run
- `process.py`: how a test process is run, and ended with all its children
- `outcome.py`: what a test said, and whether that was expected: `expected/*.txt` lists what does not pass, with reasons

`make suites` runs them whole and writes SUITES.md; `make interop` runs a short form of each (`test_suite.py`).
"""
