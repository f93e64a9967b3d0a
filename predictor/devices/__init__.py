"""Devices have a state: healthy, degraded or failing; a filter of each GPU, link, adapter, memory module and node.

    found = device_states(events, outages, rows)      # forward only: nothing at or after a row's moment
    found.row, found.device, found.state      # one entry a device that stirred in 28 days; state is (n, 3)
    found.sign_risk(24.0)                     # of each row: the chance that any of them takes the node out
    found = node_devices(connection, "gpu-017", at)     # what `GET /nodes/{node}` shows

A device that has shown nothing is in the default state and is not kept. Signs move it up, quiet time and repairs down.
"""
