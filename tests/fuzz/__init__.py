"""Decoders of bytes from outside, fed with damaged and with random bytes. `make fuzz-decoders`."""
