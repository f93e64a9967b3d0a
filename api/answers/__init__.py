"""Parts of an answer: pages, JSON, the state of a node."""
