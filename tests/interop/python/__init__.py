"""The programs of the Python clients. Each speaks the protocol of `tests/interop/peer.py` on stdin and stdout."""
