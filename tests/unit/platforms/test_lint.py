import copy
import datetime

import pytest

from outlive.platforms import lint as linter
from outlive.platforms.lint import lint, lint_all
from outlive.platforms.load import all_ids, data_of

TODAY = datetime.date(2026, 11, 21)


def said(data, today=None):
    return [f"{p.level} {p.at}: {p.what}" for p in lint(data, today)]


def test_the_shipped_facts_are_right_and_fresh_enough():
    assert lint_all({id: data_of(id)[0] for id in all_ids()}, TODAY) == []


def leaves(value, at=()):
    """Paths of every key in the facts, one example per list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*at, key)
            yield from leaves(item, (*at, key))
    elif isinstance(value, list) and value:
        yield from leaves(value[0], (*at, 0))


def test_each_missing_field_is_reported_with_its_path(autodl):
    checked = 0
    for path in list(leaves(autodl)):
        if "env_defaults" in path[:-1] or ("proxy" in path and "env" in path[:-1]):
            continue  # free maps: their keys are data
        broken = copy.deepcopy(autodl)
        holder = broken
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
        where = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path).lstrip(".")
        assert f"error {where}: missing" in said(broken), where
        checked += 1
    assert checked > 150


def change(data, path, value):
    broken = copy.deepcopy(data)
    *way, last = path
    holder = broken
    for step in way:
        holder = (
            next(i for i in holder if step in (i.get("name"), i.get("id")))
            if isinstance(holder, list)
            else holder[step]
        )
    holder[last] = value
    return broken


@pytest.mark.parametrize(
    "path,value,expected",
    [
        (["kind"], "ssh_rental", "`ssh-rental`?"),
        (["verified", "billing"], "2026-8", "does not look like"),
        (["tiers", "data-disk", "path"], "/a and /b", "does not look like"),
        (["tiers", "data-disk", "path"], "$HOME", "does not look like"),
        (["tiers", "data-disk", "path"], None, "needs a path or a probe"),
        (["tiers", "data-disk", "probe"], {"by": "env", "value": "X"}, "one path or one probe"),
        (["tiers", "data-disk", "size_cap_bytes"], "50 GB", "must be a whole number"),
        (["tiers", "data-disk", "survives_stop"], "limited", "how many hours"),
        (["tiers", "data-disk", "survives_stop_hours"], 24, "beside `limited` only"),
        (["tiers", "data-disk", "survives_destroy"], "yes", "which this verb contradicts"),
        (["tiers", "data-disk", "shared"], "yes", "root should be system-disk"),
        (["tiers", "system-disk", "speed"], "slow", ""),
        (["tiers", "public-data", "roles"], ["durable"], "cannot be written"),
        (["tiers", "nas", "conditions"], {"present_when": None, "absent_when": "full-moon"}, "no condition"),
        (["verbs", "release", "deletes"], ["data-disk"], "must stand once"),
        (["verbs", "release", "keeps"], ["tape"], "no tier is called `tape`"),
        (["verbs", "release", "stops"], ["gas"], "no meter is called `gas`"),
        (["verbs", "power_off", "label"], "power off", "verbs[power_off].label.zh: missing"),
        (["verbs", "power_off", "api"], "POST /power off", "does not look like"),
        (["verbs", "boot_no_gpu", "steps"], [], "nobody can do it"),
        (["meter_stop_verb"], "shutdown", "no verb is called"),
        (["full_meter_stop"], ["release"], "leaves out `power_off`"),
        (["self_stop", "reversible"], "no", "is pause, reversible yes"),
        (["danger_clocks", "ad-release-15d", "starts_when"], "some time", "is not one of"),
        (["danger_clocks", "ad-release-15d", "warn_before_hours"], 400, "between 0 and after_hours"),
        (["danger_clocks", "ad-release-15d", "id"], "ad-tidal-7d", "two of that name"),
        (["credentials", "never_write_to"], ["/root/autodl-fs"], "no tier is called"),
        (["first_contact"], ["It is ¥3 per day"], "looks like a price"),
        (["billing", "granularity"], "$0.10/GB", "looks like a price"),
        (["billing", "notes"], ["once $0.10/GB"], ""),
        (["env_defaults"], {"HF_HOME": "${DATA}/hf"}, "nothing is expanded by a shell"),
        (["env_defaults"], {"HF_HOME": "{scratch}/hf"}, "no placeholder is called {scratch}"),
        (["tires"], [], "did you mean `tiers`?"),
    ],
)
def test_a_wrong_fact_is_named(autodl, path, value, expected):
    problems = said(change(autodl, path, value))
    if expected:
        assert any(expected in p for p in problems), problems
    else:
        assert problems == []


@pytest.mark.parametrize(
    "today,level,count",
    [
        (datetime.date(2027, 2, 28), None, 0),
        (datetime.date(2027, 3, 1), "warning", 4),
        (datetime.date(2027, 8, 31), "warning", 4),
        (datetime.date(2027, 9, 1), "error", 4),
        (datetime.date(2026, 7, 31), "error", 4),
    ],
)
def test_old_facts_warn_and_then_fail(autodl, today, level, count):
    problems = lint(autodl, today)
    assert [p.level for p in problems] == [level] * count
    if count:
        assert problems[0].at == "verified.storage" and autodl["verified"]["storage"] in problems[0].what


def test_ids_of_clocks_and_traps_are_unique_over_all_files(autodl, moonbase):
    assert lint_all({"autodl": autodl, "moonbase": moonbase}) == []
    moonbase["gotchas"][0]["id"] = "AD1"
    moonbase["danger_clocks"][0]["id"] = "ad-release-15d"
    at = [p.at for p in lint_all({"autodl": autodl, "moonbase": moonbase})]
    assert at == ["gotchas[AD1]", "danger_clocks[ad-release-15d]"]


def test_a_file_named_for_another_platform(autodl):
    assert [p.at for p in lint(autodl, id="runpod")] == ["id"]


def test_months_are_counted_by_the_calendar():
    assert linter.months_between("2026-08", datetime.date(2026, 8, 31)) == 0
    assert linter.months_between("2026-08", datetime.date(2027, 1, 1)) == 5
