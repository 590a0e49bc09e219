"""One module per family of containers. Each offers ``inspect_*(source, layout)`` and executes nothing it reads."""
