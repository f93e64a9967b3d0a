"""Foreshock: the entry point and the version. The only import name of the product that a site sees."""


def __getattr__(name: str) -> str:
    """`__version__` is looked up when it is wanted: that takes as long as the rest of a command's start."""
    if name != "__version__":
        raise AttributeError(f"module 'foreshock' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("foreshock")
    except PackageNotFoundError:  # a checkout that nobody installed
        return "0"
