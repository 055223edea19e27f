"""Run the command as `python -m coreai_torch.cli` if the script is not installed."""

from . import main

main()
