"""A look at training code as lines and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.views.printable import one_line

if TYPE_CHECKING:
    from outlive.advice.lint.run import Finding, Report

SCHEMA = "outlive/lint-train/1"


def data(report: Report, findings: list[Finding]) -> dict[str, Any]:
    """Return the findings as one object."""
    return {
        "schema": SCHEMA,
        "findings": [finding.to_json() for finding in findings],
        "counts": counts(findings),
        "files": report.files,
        "training_files": report.training,
        "lines": report.lines,
        "silenced": report.silenced,
    }


def counts(findings: list[Finding]) -> dict[str, int]:
    """Return how many findings there are of each severity."""
    return {name: sum(one.severity == name for one in findings) for name in ("error", "warning", "info")}


def line(finding: Finding) -> str:
    """Return one finding as editors read it: ``path:line:column: severity ID message``."""
    text = f"{finding.message}. Fix: {finding.fix}"
    return one_line(
        f"{finding.path}:{finding.line}:{finding.column}: {finding.severity} {finding.id} {text} [{finding.check}]"
    )


def summary(report: Report, findings: list[Finding]) -> str:
    """Return the last line: what was looked at and what was found."""
    told = counts(findings)
    found = ", ".join(f"{number} {name}" for name, number in told.items() if number) or "nothing found"
    looked = f"{report.files} file{'s' * (report.files != 1)}, {report.training} of them training code"
    silenced = f", {report.silenced} answered by a comment" if report.silenced else ""
    return f"{found} ({looked}{silenced})"
