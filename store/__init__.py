"""Records, their tables and catalogues: everything that the other rooms share."""
