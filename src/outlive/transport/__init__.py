"""How commands and bytes reach a place: local, ssh; the packed travelling code and the calls to it."""
