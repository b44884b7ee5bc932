"""Slow and obvious versions of what the package does fast."""
