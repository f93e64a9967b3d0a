"""The network systems of Ethernet switches: what each writes to its log."""
