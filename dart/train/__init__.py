"""Training of a demo target and its draft heads; inference never imports this package."""
