"""`python -m coreai_torch.cli`, where no script is installed."""

from .app import main

main()
