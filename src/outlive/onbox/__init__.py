"""Our programs on the box: keeper, launcher, supervisor, and the box's half of every call.

Standard library only, Python 3.8 syntax. Packed into ``supervisor-<digest>.pyz`` by
``transport.pack``; every file here can also be started by hand from a source tree.
"""
