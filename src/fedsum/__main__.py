"""`python -m fedsum` is the command `fedsum`."""

from .cli import main

main()
