"""The cluster's metadata as every node follows it: the immutable image, and how records change it. Pure.

Invariant: the image at an offset follows from the records before it alone. Read `image` first, then `delta` (replay),
`snapshot` (the image as records again) and `feature` (levels, and what this program can run).
"""
