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
        from outlive.cli.printing import columns
        from outlive.views.printable import fold, printable

        *shown, question = printable(prompt).split("\n")
        for line in shown:
            indent = " " * (len(line) - len(line.lstrip()))
            print("\n".join(indent + part for part in fold(line.strip(), columns() - len(indent), "  ")))
        print(question, end="", flush=True)
        line = sys.stdin.readline()
        return line.rstrip("\n")
