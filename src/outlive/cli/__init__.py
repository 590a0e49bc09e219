"""One file per verb: read flags, call, print."""
