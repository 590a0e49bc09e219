"""What a rendering is: files with a line about each, and what to type next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file. ``about`` is its line in the README."""

    name: str
    text: str
    about: str
    executable: bool = False


@dataclass(frozen=True)
class Rendering:
    """The files of one launch, the main one first, and the lines that start it."""

    files: tuple[File, ...]
    next: tuple[str, ...]

    @property
    def main(self) -> File:
        """The file that is printed when no directory is given."""
        return self.files[0]

    def readme(self) -> File:
        """Return a README with a line for each file and what to type."""
        about = "\n".join(f"- `{file.name}`: {file.about}" for file in self.files)
        typed = "\n".join(f"    {line}" for line in self.next)
        return File("README.md", f"{about}\n\nStart it:\n\n{typed}\n", "this list")
