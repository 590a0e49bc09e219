"""Clients of boxes, as in tests/servers. Also loaded on Python 3.8 with pytest alone, where there is no client."""

import sys

if sys.version_info >= (3, 11):
    from servers.conftest import client, new_client

    __all__ = ["client", "new_client"]
