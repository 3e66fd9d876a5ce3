"""What a handler is given and what it returns: the call, the reply, the response to a request that fails as a whole.

Invariant: a handler is a plain function of (call, request) and knows neither sockets nor frames. Read `handler` first.
"""
