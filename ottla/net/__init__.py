"""Framed connections on the event loop: the server's end (`inbound`) and the end that dials (`outbound`).

Invariant: whatever a peer sends, only its own connection can be lost. Read `inbound` first.

Not obvious: sockets are read and written directly (`add_reader`, `recvmsg_into`, `sendmsg`, `sendfile`) and not
through asyncio's transports, because a transport hides the file descriptor that sendfile needs and copies what it
cannot send at once. All connections share one receive buffer; a connection owns memory only while one of its frames is
incomplete. So a frame handed to the broker is a view that is valid until the handler returns.
"""
