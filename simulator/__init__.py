"""A cluster that never was: its logs in the formats real tools write, and the truth beside them."""
