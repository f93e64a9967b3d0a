"""The graph of devices: what hangs on what, what shares what, and all the names of each."""
