"""One file per source, the runner around them, the spool and the shipper: the sidecar."""
