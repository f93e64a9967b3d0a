"""`python -m cli` is `foreshock`: what the demo starts its parts with."""

from cli.main import main

main()
