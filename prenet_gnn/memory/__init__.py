"""How much memory an iteration needs, and whether it fits a device.

`tensors` has the bytes of every tensor under a precision, `iteration` follows them call by call,
`peak` adds what no tensor explains and says whether a device holds it.
"""
