"""Word count with ottla.streams, on the test driver: no broker, no Spark, milliseconds.

python examples/word_count.py
"""

import re

from ottla.streams import Application, StreamsBuilder, TestDriver


def word_count() -> Application:
    """Lines in, the count of each word out."""
    builder = StreamsBuilder()
    (
        builder.stream("lines")
        .flat_map_values(lambda line: re.findall(r"\w+", line.lower()))
        .group_by(lambda _, word: word)
        .count(materialized="counts")
        .to_stream()
        .to("words")
    )
    return builder.build(application_id="word-count", key_serde="string", value_serde="string")


def main() -> None:
    app = word_count()
    print(app.describe())
    driver = TestDriver(app)
    lines = driver.input_topic("lines")
    for line in ("To be, or not to be", "that is the question", "to be continued"):
        lines.pipe(None, line)
    for word, count in driver.output_topic("words").read_map().items():
        print(f"{word} {count}")


if __name__ == "__main__":
    main()
