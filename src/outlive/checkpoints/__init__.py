"""Checkpoints that cannot be lost: format, commit, index, lock, retention, room, durable copy, cadence.

Standard library only; ``outlive.checkpoints.torch`` turns a training's state into files. docs/design/checkpoints.md.
"""
