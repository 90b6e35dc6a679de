"""`python -m ldmnet.cli`."""

from ldmnet.cli import main

main()
