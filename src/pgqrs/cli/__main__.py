"""`python -m pgqrs.cli` is `pgqrs`."""

from pgqrs.cli.app import main

main()
