"""`python -m ega_mope …` is the command line."""

from ega_mope.cli import main

main()
