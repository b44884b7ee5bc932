"""The subcommands of `python -m dart`, one file each; nothing is imported before it is needed."""
