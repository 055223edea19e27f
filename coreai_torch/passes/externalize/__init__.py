"""Keep the boundary of submodules: marked during export, separate graphs when lowered."""
