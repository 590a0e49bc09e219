"""gen_docs.py [--check]: write the reference pages that follow from the code; with --check only say what is stale.

docs/reference/exit-codes.md    from outlive.errors
docs/reference/cli/<verb>.md    from the parser that `outlive --help` prints
docs/reference/rules/*.md       from the compiled pages of the rules
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- made by `make docs`; do not edit -->\n\n"


def first_sentence(doc: str | None) -> str:
    """Return the first sentence of a docstring as one line."""
    text = " ".join((doc or "").split())
    found = re.match(r"(.+?\.)(?:\s|$)", text)
    return (found.group(1) if found else text).replace("``", "`")


def exit_codes() -> str:
    """Return the page on exit codes and errors."""
    from outlive import errors

    lines = [MADE + "# Exit codes and errors\n"]
    lines.append("| code | meaning |\n|---:|---|")
    lines += [f"| {code} | {meaning} |" for code, meaning in errors.EXIT_CODES.items()]
    order = " > ".join(str(code) for code in errors.PRECEDENCE if code)
    lines.append(
        f"\nWhere one command meets several endings (several boxes, several runs) its code is the first of {order}."
        "\n`--exit-status` passes the job's own status through instead.\n"
    )
    lines.append("## Errors\n")
    lines.append(
        "With `--json` an error is one object: `schema` is `" + errors.SCHEMA + "`, `error` the slug below, `what` the"
        "\nsentence, `why` a list of reasons, `safe` what is safe right now, `next` a list of commands, each a list"
        "\nof words. Slugs and codes are stable; sentences are not.\n"
    )
    lines.append("| code | slug | class | when |\n|---:|---|---|---|")
    for cls in errors.all_errors()[1:]:
        lines.append(f"| {cls.exit_code} | `{cls.code}` | `{cls.__name__}` | {first_sentence(cls.__doc__)} |")
    return "\n".join(lines) + "\n"


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the verbs of a parser, without aliases, in their order."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            seen: dict[int, str] = {}
            for name, child in action.choices.items():
                seen.setdefault(id(child), name)
            return {name: action.choices[name] for name in seen.values()}
    return {}


def verb_page(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the page of one verb: its help, and that of the verbs below it."""
    parts = [MADE + f"# outlive {name}\n", "```text", parser.format_help().rstrip(), "```"]
    for below, child in subparsers(parser).items():
        parts += [f"\n## outlive {name} {below}\n", "```text", child.format_help().rstrip(), "```"]
    return "\n".join(parts) + "\n"


def cli_pages() -> dict[Path, str]:
    """Return the pages of the command line; none while there is no command line."""
    if not (ROOT / "src" / "outlive" / "cli" / "main.py").exists():
        return {}
    from outlive.cli.main import build_parser

    parser = build_parser()
    verbs = subparsers(parser)
    pages = {REFERENCE / "cli" / f"{name}.md": verb_page(name, child) for name, child in verbs.items()}
    rows = [MADE + "# The command line\n", "```text", parser.format_help().rstrip(), "```\n"]
    rows += [f"- [outlive {name}]({name}.md)" for name in verbs]
    pages[REFERENCE / "cli" / "README.md"] = "\n".join(rows) + "\n"
    return pages


def rule_pages() -> dict[Path, str]:
    """Return the pages of the rules, one for each family."""
    from outlive.advice import docs

    return {REFERENCE / "rules" / name: text for name, text in docs.render().items()}


def pages() -> dict[Path, str]:
    """Return every generated page with its text."""
    # argparse folds lines at the terminal's width and colours them from 3.14 on; the pages must not depend on either.
    os.environ.update(COLUMNS="100", NO_COLOR="1", PYTHON_COLORS="0")
    os.environ.pop("FORCE_COLOR", None)
    return {REFERENCE / "exit-codes.md": exit_codes(), **cli_pages(), **rule_pages()}


def main() -> int:
    """Write or check; return 1 if --check found something stale."""
    check = "--check" in sys.argv[1:]
    wanted = pages()
    old = [path for made in ("cli", "rules") for path in (REFERENCE / made).glob("*.md") if path not in wanted]
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale + old:
        print(("stale: " if check else "wrote " if path in wanted else "removed ") + str(path.relative_to(ROOT)))
        if check:
            continue
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], "utf-8")
        else:
            path.unlink()
    if check and stale + old:
        print("`make docs` writes them")
    return 1 if check and stale + old else 0


if __name__ == "__main__":
    sys.exit(main())
