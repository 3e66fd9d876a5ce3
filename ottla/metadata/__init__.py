"""The cluster metadata that every node follows: the immutable image, and how records change it. Pure.

Invariant: the image at an offset depends only on the records before it. Read `image` first, then `delta` (replay),
`snapshot` (image -> records) and `feature` (feature levels, and the levels that this program supports).
"""
