"""Conformance suites and in-memory twins, for our tests and for authors of other backends."""
