"""What the kernel log says of a node's devices: one file per driver or subsystem, told apart by `registry.py`."""
