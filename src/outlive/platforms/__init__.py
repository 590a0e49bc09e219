"""Who lends boxes, described by data: paths, storage survival, billing verbs, danger clocks.

Everything that `outlive` knows about one platform is one file in ``facts/``; no other file of the package
names a platform's path, price or verb. Adding a file adds a platform.

- ``model``: the shape of a platform, and what a program may ask it
- ``load``: from an id to a ``Platform``, with the user's own corrections
- ``recognise``: which platform a box is on, from readings of that box
- ``lint``, ``compile``, ``docs``: for the people who write facts
"""
