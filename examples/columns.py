"""Columns: 100,000 orders out as JSON and back as typed columns: `python examples/columns.py [bootstrap.servers]`.

No Python object is created for any order, neither on the way out nor on the way in. Needs pyarrow and numpy:
pip install 'ottla[arrow]'.
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc

import ottla
from ottla.client import Admin, Consumer, Producer, serde

COUNT = 100_000
CUSTOMERS = ("ada", "bob", "cy")
#: The fields to read, with their types.
WANTED = {"id": pa.int64(), "price": pa.float64(), "at": pa.timestamp("ms")}


def main(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("orders", 3)

    number = pa.array(range(COUNT))
    orders = pa.table(
        {
            "id": number,
            "customer": pa.array(CUSTOMERS).take(pa.array([one % 3 for one in range(COUNT)])),
            "price": pc.divide(pc.cast(number, pa.float64()), 4),
            "at": pc.add(number, 1_700_000_000_000).cast(pa.timestamp("ms")),
        }
    )
    with Producer(servers) as producer:
        producer.send_table(
            "orders",
            orders,
            key="customer",
            value=["id", "price", "at"],
            timestamp="at",
            value_serde=serde.json(),
        ).result()
    print(f"sent {COUNT:,} orders")

    tables: list[pa.Table] = []
    with Consumer(servers, auto_offset_reset="earliest", group_id="reports") as consumer:
        consumer.subscribe(["orders"])
        while sum(table.num_rows for table in tables) < COUNT:
            tables.append(consumer.poll_table(key_serde=serde.text(), value_serde=serde.json(WANTED)))
        consumer.commit()
    got = pa.concat_tables(tables)
    totals = pa.table({"customer": got["key"], "price": pc.struct_field(got["value"], "price")})
    for row in (
        totals.group_by("customer").aggregate([("price", "sum"), ("price", "count")]).sort_by("customer").to_pylist()
    ):
        print(f"{row['customer']}: {row['price_count']:,} orders, {row['price_sum']:,.2f} in all")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with ottla.Node() as node:
            main(node.bootstrap_servers)
