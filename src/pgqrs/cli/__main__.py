"""`python -m pgqrs.cli` is `pgqrs`."""

from pgqrs.cli.commands import main

main()
