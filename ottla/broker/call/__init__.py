"""What a handler gets and returns: the call, the reply, and the response to a request that fails as a whole.

Invariant: a handler is a plain function of (call, request) and knows neither sockets nor frames. Read `handler` first.
"""
