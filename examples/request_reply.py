"""Request and reply between services, over two topics.

    python examples/request_reply.py [bootstrap.servers]

A request's headers name the reply topic and a correlation id. Any number of instances of the service share the requests
as one group; each caller reads its own reply topic.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable

import ottla
from ottla.client import Admin, AsyncConsumer, AsyncProducer, TopicPartition

PRICES = {"bread": 3.20, "cheese": 8.50, "wine": 12.00}


async def serve(servers: str, name: str) -> None:
    """An instance of the service: price each requested basket."""
    async with (
        AsyncConsumer(servers, group_id="pricing", auto_offset_reset="earliest", value_deserializer="json") as requests,
        AsyncProducer(servers, linger_ms=0, value_serializer="json") as replies,
    ):
        requests.subscribe(["pricing.requests"])
        async for request in requests:
            headers = {key: (value or b"").decode() for key, value in request.headers}
            total = sum(PRICES[item] * count for item, count in request.value.items())
            answer = {"total": round(total, 2), "by": name}
            await replies.send(headers["reply-to"], answer, headers=[("id", headers["id"].encode())])


class Caller:
    """Sends requests and hands each reply to the request that waits for it."""

    def __init__(self, servers: str, replies: str) -> None:
        self.replies = replies
        self.producer = AsyncProducer(servers, linger_ms=0, value_serializer="json")
        self.consumer = AsyncConsumer(servers, auto_offset_reset="earliest")
        self.consumer.assign([TopicPartition(replies, 0)])
        self.waiting: dict[bytes, asyncio.Future[dict[str, object]]] = {}
        self.ids = itertools.count()

    async def listen(self) -> None:
        async for reply in self.consumer:
            self.waiting.pop(dict(reply.headers)["id"] or b"").set_result(json.loads(reply.value or b"{}"))

    async def ask(self, basket: dict[str, int], timeout_s: float = 30) -> dict[str, object]:
        key = b"%d" % next(self.ids)
        answer = self.waiting[key] = asyncio.get_running_loop().create_future()
        headers = [("reply-to", self.replies.encode()), ("id", key)]
        await self.producer.send("pricing.requests", basket, key=key, headers=headers)
        return await asyncio.wait_for(answer, timeout_s)

    async def close(self) -> None:
        await self.producer.close()
        await self.consumer.close()


async def shop(ask: Callable[[dict[str, int]], Awaitable[dict[str, object]]]) -> None:
    """A few requests one after another, then many at once."""
    for basket in ({"bread": 1}, {"wine": 2, "cheese": 1}, {"bread": 2, "cheese": 2, "wine": 1}):
        began = time.perf_counter()
        answer = await ask(basket)
        print(f"{basket!s:40} costs {answer['total']:6} ({answer['by']}, {time.perf_counter() - began:.4f} s)")
    answers = await asyncio.gather(*(ask({"bread": count}) for count in range(500)))
    assert [answer["total"] for answer in answers] == [round(3.2 * count, 2) for count in range(500)]
    print(f"500 requests at once were answered by {', '.join(sorted({str(answer['by']) for answer in answers}))}")


async def main(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("pricing.requests", 4)
        admin.create_topic("pricing.replies.shop-1", 1)
    caller = Caller(servers, "pricing.replies.shop-1")
    tasks = [asyncio.create_task(serve(servers, f"pricer-{number}")) for number in (1, 2)]
    tasks.append(asyncio.create_task(caller.listen()))
    try:
        await shop(caller.ask)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await caller.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with ottla.Node() as node:
            asyncio.run(main(node.bootstrap_servers))
