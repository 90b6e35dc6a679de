"""`python -m ldmnet`."""

from ldmnet.cli import main

main(prog_name="ldmnet")
