"""The machine's event loop: uvloop where it is installed, otherwise asyncio's (Windows)."""

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop for one node."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
