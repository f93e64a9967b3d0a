"""Files of an archive or log, read and written to the store."""
