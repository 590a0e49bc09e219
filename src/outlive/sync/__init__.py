"""Push and pull: a snapshot of the code, data to a box, results home. Design: docs/design/sync.md."""
