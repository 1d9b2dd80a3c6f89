from __future__ import annotations

from packaging.requirements import Requirement

from scripts.lock import Report, reach


def a_report(**requires: list[str]) -> Report:
    return {
        name: {"metadata": {"name": name, "version": "1", "requires_dist": needed}}
        for name, needed in requires.items()
    }


def test_everything_that_a_root_needs_is_reached_through_others() -> None:
    report = a_report(app=["library"], library=["base"], base=[], unrelated=[])
    assert set(reach([Requirement("app")], report)) == {"app", "library", "base"}


def test_an_extra_is_followed_only_when_it_is_asked_for() -> None:
    report = a_report(app=["nice; extra == 'fancy'"], nice=[])
    assert set(reach([Requirement("app")], report)) == {"app"}
    assert set(reach([Requirement("app[fancy]")], report)) == {"app", "nice"}


def test_a_package_for_one_platform_keeps_its_marker_and_hands_it_on() -> None:
    marker = 'platform_machine == "x86_64"'
    report = a_report(fast=["library"], library=[], plain=[])
    found = reach([Requirement(f"fast; {marker}"), Requirement("plain")], report)
    assert found == {"fast": marker, "library": marker, "plain": ""}


def test_a_package_that_is_needed_everywhere_too_has_no_marker() -> None:
    report = a_report(fast=["library"], library=[], plain=["library"])
    roots = [Requirement('fast; platform_machine == "x86_64"'), Requirement("plain")]
    assert reach(roots, report)["library"] == ""


def test_a_cycle_ends() -> None:
    report = a_report(one=["two"], two=["one"])
    assert set(reach([Requirement("one")], report)) == {"one", "two"}
