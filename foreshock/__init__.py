"""Foreshock: the entry point and the version. The only import name of the product that a site sees."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("foreshock")
except PackageNotFoundError:  # a checkout that nobody installed
    __version__ = "0"
