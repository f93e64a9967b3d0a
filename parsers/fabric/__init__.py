"""The network's own logs: InfiniBand nodes, ports, the subnet manager; operating systems of Ethernet switches."""
