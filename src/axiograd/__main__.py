"""`python -m axiograd` is the `axiograd` command."""

from axiograd.cli import main

main()
