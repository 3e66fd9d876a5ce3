"""The cluster's metadata: the immutable image, and the controller that decides how it changes. Pure.

Invariant: state changes by `replay` of records and by nothing else, on the controller and on every follower alike. A
command reads an image and gives back the records that would change it, and the response that may leave when these are
committed.

Read `image` first, then `delta` (records -> the next image), then `controller` (request -> records and response).
"""
