"""The messages of a node's kernel log: what a family of messages is, the registry of families, the decoder."""
