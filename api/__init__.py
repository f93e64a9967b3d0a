"""The HTTP face: wire schemas, routes, auth, metrics and the background loops."""
