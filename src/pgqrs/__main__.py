"""`python -m pgqrs` is `pgqrs`."""

from pgqrs.cli import main

main()
