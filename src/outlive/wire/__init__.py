"""The only vocabulary that the client and the box share: names on disk, messages, versions, states.

Standard library only, Python 3.8 syntax; imports nothing else of ours.
"""

WIRE_MAJOR = 1
"""A client reads every supervisor with the same major; a new major is a new journal format."""

WIRE_MINOR = 0
"""Grows when a record or verb is added; readers ignore what they do not know."""
