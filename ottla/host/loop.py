"""The machine's event loop: uvloop where there is one, asyncio's elsewhere (Windows)."""

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop for one node."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
