"""What a log and an exit say: lines, metrics, alarms, and the class of an outcome from evidence alone.

Travels to the box: standard library, Python 3.8. The rules that refine an outcome with log patterns are
a later layer: they take the same ``Evidence`` and ``Outcome`` and never replace ``outcome.classify``.
"""
