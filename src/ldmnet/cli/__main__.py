"""`python -m ldmnet.cli`."""

from ldmnet.cli import main

main(prog_name="ldmnet")
