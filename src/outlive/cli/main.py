"""``outlive``: the entry point. One table of verbs; a verb's file is imported when it is the one that was typed."""

from __future__ import annotations

import argparse
import os
import sys

from outlive import errors

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO, Any, NoReturn

VERBS: dict[str, str] = {
    "adopt": "take over the runs of a box from here, also with an empty state",
    "approve": "approve a request of `down`, now or as a standing word with an end",
    "checkpoint": "ask a run to save now",
    "ckpt": "list checkpoints, prove them, find the best and the one to resume from",
    "demo": "the whole life of a run on this machine: crash, resume, proof",
    "diagnose": "the root cause in a log, and what to do about it",
    "doctor": "look at a box, or this machine: what is wrong, what is unknown",
    "down": "pull what is missing, prove it, then stop the meter",
    "drill": "kill your job, and see whether it resumes",
    "explain": "known failures that fit a description; the page of one",
    "extend": "give a run more time",
    "forget": "take a box or a run off the list here; deletes nothing",
    "init": "write an outlive.toml for the project in this directory",
    "lint-train": "look for known mistakes in training code",
    "logs": "what the run itself printed",
    "new": "a training project that can be killed at any moment",
    "plan": "does it fit, how fast is it, what does it cost, what to type",
    "platforms": "what is known about who lends boxes",
    "ps": "boxes and runs, how old each word is, what bills",
    "pull": "bring results here and prove them",
    "push": "send the code, or data, to a box",
    "run": "push, start detached, hand back",
    "ssh": "a shell on the box",
    "stop": "ask a run to stop",
    "tunnel": "forward ports from the box to here",
    "up": "reach a box, look at it, remember it",
    "version": "versions of everything that takes part",
    "watch": "follow a run until it ends",
}
"""Every verb and its one-line help, sorted. `outlive X` is ``cli/X.py``."""

READS = frozenset(
    {"", "ckpt", "diagnose", "doctor", "explain", "lint-train", "logs", "plan", "platforms", "ps", "version"}
)
"""Verbs that only show: a reader that leaves early has seen what it wanted."""

GOES_ON = {
    "": "Nothing was changed.",
    "adopt": "What runs on the box goes on.",
    "down": "Nothing is said to be gone that was not confirmed; look with `outlive ps`.",
    "drill": "The rehearsal was ended and its files removed; nothing of yours was touched.",
    "logs": "The run goes on.",
    "pull": "The run goes on; what arrived is kept, and the next pull continues.",
    "push": "What arrived on the box is kept; the next push continues.",
    "run": "If the run was started it goes on; `outlive ps` says so.",
    "watch": "The run goes on.",
}
"""What is true after Ctrl-C."""

EPILOG = (
    "without a verb: what happened since you last looked, what bills now, what needs you\n"
    "outlive VERB --help: flags of a verb; --json: one JSON object, for programs"
)


class Help(argparse.RawDescriptionHelpFormatter):
    """Help folded at the terminal's width. Told the width, argparse need not import what finds it out."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
        except (ValueError, OSError):
            width = 80
        super().__init__(prog, max_help_position=20, width=max(36, width - 2))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


class Parser(argparse.ArgumentParser):
    """Ends in our errors instead of exiting, and says which flag was probably meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", Help)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(
            f"{self.prog}: {message}", safe="Nothing was done.", next=[[*self.prog.split(), "--help"]]
        )

    def refuse_extras(self, extras: Sequence[str]) -> None:
        """Raise UsageError for words that no argument took."""
        words = [word for action in self._actions for word in action.option_strings]
        why = []
        for extra in extras:
            near = errors.nearest(extra.split("=")[0], words) if extra.startswith("-") else ""
            why.append(f"did you mean `{near}`?" if near else "")
        said = ", ".join(f"`{extra}`" for extra in extras)
        hint = [reason for reason in why if reason]
        more = [[*self.prog.split(), "--help"]]
        if self.get_default("takes_command") and not extras[0].startswith("-"):
            hint.append("a command comes after `--`")
            more.insert(0, [*self.prog.split(), "--", *extras])
        raise errors.UsageError(f"{self.prog} does not know {said}", why=hint, safe="Nothing was done.", next=more)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, or with ``only`` that of one verb; "" names all, without flags."""
    parser = Parser(
        prog="outlive",
        usage="outlive [VERB] [...]",
        epilog=EPILOG,
        description="Makes a GPU job's result outlive the machine it runs on.",
    )
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="store_true", help=argparse.SUPPRESS)
    below = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", prog="outlive", parser_class=Parser)
    for name, line in VERBS.items():
        if only in (None, name):
            _module(name).add_parser(below)
        elif not only:
            below.add_parser(name, help=line, add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises; every ending has a sentence."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    verb = ""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a file name may hold anything; showing it must not be what fails
            stream.reconfigure(errors="replace")
    try:
        verb = _verb(words)
        code = _dispatch(words, verb)
        sys.stdout.flush()
        return code
    except errors.OutliveError as error:
        return _tell(error, as_json)
    except KeyboardInterrupt:
        stopped = errors.Interrupted("interrupted", safe=GOES_ON.get(verb, "What runs on a box goes on."))
        return _tell(stopped, as_json)
    except BrokenPipeError:
        # the reader has left; Python would complain again when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0 if verb in READS else errors.Unconfirmed.exit_code
    except SystemExit as ended:  # argparse's --help
        return int(ended.code or 0)
    # The outer edge: a bug must leave something that can be reported, and must not look like a result.
    except Exception as error:
        from outlive.cli.bug import report

        return _tell(report(error, words, verb), as_json)


def _verb(words: Sequence[str]) -> str:
    """Return the verb that was typed, "" for none. Raises UnknownName with the nearest one."""
    first = words[0] if words else ""
    if not first or first.startswith("-"):
        return ""
    if first not in VERBS:
        raise errors.UnknownName(
            _unknown(first), name=first, safe="Nothing was done.", next=_nearest_command(first, words[1:])
        )
    return first


def _unknown(word: str) -> str:
    near = errors.nearest(word, VERBS)
    return f"`{word}` is no verb of outlive" + (f"; did you mean `{near}`?" if near else "")


def _nearest_command(word: str, rest: Sequence[str]) -> list[list[str]]:
    near = errors.nearest(word, VERBS)
    return [["outlive", near, *rest]] if near else [["outlive", "--help"]]


def _dispatch(words: list[str], verb: str) -> int:
    typed, command = words, []
    if "--" in words:
        at = words.index("--")
        typed, command = words[:at], words[at + 1 :]
    parser = build_parser(verb)
    args, extras = parser.parse_known_args(typed)
    mine = _below(parser).get(verb, parser)
    if extras and getattr(args, "takes_rest", False) and args.words and "ssh" in args.words[:2]:
        args.words = _ssh_line(typed[1:], mine)
    elif extras:
        assert isinstance(mine, Parser)
        mine.refuse_extras(extras)
    if verb == "" and args.version:
        verb = "version"
        args = build_parser(verb).parse_args(["version", *(["--json"] if args.json else [])])
    if "--" in words and not getattr(args, "takes_command", False):
        raise errors.UsageError(
            f"outlive {verb} takes no command after `--`".replace("  ", " "), safe="Nothing was done."
        )
    args.command = command
    return int(_module(verb or "overview").run(args))


def _ssh_line(typed: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Return the words of a pasted ssh line, which has flags of its own, without the flags that are the verb's."""
    own = {word: action for action in parser._actions for word in action.option_strings if word.startswith("--")}
    words, skip = [], False
    for word in typed:
        name, equals, _ = word.partition("=")
        if skip or name in own:
            skip = not skip and not equals and own[name].nargs != 0
            continue
        words.append(word)
    return words


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _module(verb: str) -> Any:
    from importlib import import_module

    return import_module("outlive.cli." + verb.replace("-", "_"))


def _tell(error: errors.OutliveError, as_json: bool) -> int:
    """Print an error and return its exit code: a sentence on stderr, with ``--json`` one object on stdout."""
    try:
        if as_json:
            import json

            from outlive.views.printable import json_safe

            print(json_safe(json.dumps(error.to_json(), ensure_ascii=False, default=str)), flush=True)
        else:
            from outlive.views.printable import printable

            _print(sys.stderr, "outlive: " + printable(error.sentence()))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return error.exit_code


def _print(stream: IO[str], text: str) -> None:
    print(text, file=stream, flush=True)


if __name__ == "__main__":
    sys.exit(main())
