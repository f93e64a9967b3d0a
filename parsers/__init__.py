"""One file per format: text in, records out. Pure: no SQL, no HTTP, no clock."""
