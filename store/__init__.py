"""The records, the catalogues and their tables: everything the other rooms meet in."""
