"""Where a person may sit: what approvals and waivers are typed into. A program has none."""

from __future__ import annotations

import sys


class StandardTerminal:
    """The terminal of this process, if standard input and output both are one."""

    @property
    def is_terminal(self) -> bool:
        return sys.stdin.isatty() and sys.stdout.isatty()

    def ask(self, prompt: str) -> str:
        """Show ``prompt`` and return the line typed; "" at the end of input."""
        from outlive.views.printable import printable

        print(printable(prompt), end="", file=sys.stdout, flush=True)
        line = sys.stdin.readline()
        return line.rstrip("\n")
