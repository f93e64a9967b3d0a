"""The registered formats, one file each: a real line and its record in the docstring, a parser, a FORMAT."""
