"""Hello: write a few records, read them back: `python examples/hello.py [bootstrap.servers]`."""

import sys

import ottla
from ottla.client import Admin, Consumer, Producer


def main(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("greetings", 2)

    with Producer(servers) as producer:
        for language, greeting in [("Czech", "Ahoj"), ("German", "Hallo"), ("English", "Hello"), ("French", "Bonjour")]:
            written = producer.send("greetings", greeting, key=language, headers=[("from", b"hello.py")]).result()
            print(f"wrote {greeting!r} to partition {written.partition} at offset {written.offset}")

    with Consumer(
        servers, auto_offset_reset="earliest", group_id="readers", key_deserializer="str", value_deserializer="str"
    ) as consumer:
        consumer.subscribe(["greetings"])
        for count, record in enumerate(consumer, 1):
            print(f"read  {record.value!r} ({record.key}) from partition {record.partition}")
            if count == 4:
                break


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with ottla.Node() as node:
            main(node.bootstrap_servers)
