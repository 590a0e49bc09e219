"""``outlive lint-train``: what is wrong with training code before it runs."""

from __future__ import annotations

import argparse
from typing import Any

from outlive.cli.printing import note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "lint-train",
        help="look for known mistakes in training code",
        usage="outlive lint-train FILE... [options]",
        description="Static checks of training code: Python, and shell scripts, Dockerfiles, requirement lists and "
        "settings in small. Runs nothing of it. One finding a line, `path:line:column: severity ID message`. "
        "`# outlive: ok ID` on the line, or alone above it, answers a finding.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, and directories to walk")
    parser.add_argument(
        "--severity",
        choices=("error", "warning", "info"),
        default="info",
        help="leave out what is less grave (default: info, everything)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 when one is more than advice."""
    from outlive.advice.lint.registry import SEVERITIES
    from outlive.advice.lint.run import lint
    from outlive.views import lint_view

    report = lint(args.files)
    shown = SEVERITIES[: SEVERITIES.index(args.severity) + 1]
    findings = [finding for finding in report.findings if finding.severity in shown]
    result(args, lint_view.data(report, findings), lambda: [lint_view.line(finding) for finding in findings])
    if not args.json:
        note(lint_view.summary(report, findings))
    return int(any(finding.severity != "info" for finding in findings))
