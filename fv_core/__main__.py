"""`python -m fv_core` is `fv`."""

from fv_core.cli.main import main

main()
