"""The registered kinds of source, one file each, named by the scheme of its SPEC."""
