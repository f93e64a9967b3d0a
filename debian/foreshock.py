#!/usr/lib/foreshock/bin/python
"""The command `foreshock`, with the libraries of this package alone."""

from foreshock.__main__ import main

main()
