"""The life of one run, seen from the client: one file per verb, composed from the layers below."""
