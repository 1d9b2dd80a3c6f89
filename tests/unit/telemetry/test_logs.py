from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from inferscale_core.errors import StoreError
from inferscale_core.telemetry.logs import bind, bind_for_task, get_logger
from inferscale_core.telemetry.tracing import span
from tests.telemetry_capture import Capture, captured

SECRET = "the alarm code is 4471"
_log = get_logger("inferscale_core.telemetry.test")


@pytest.fixture
def telemetry() -> Iterator[Capture]:
    with captured() as capture:
        yield capture


def _only_line(telemetry: Capture) -> str:
    (line,) = telemetry.lines()
    return line.split(" ", 1)[1]


def test_a_line_is_the_event_and_its_fields(telemetry: Capture) -> None:
    _log.info("memory.added", memory_id="m-1", revision=1)
    assert _only_line(telemetry) == "INFO memory.added memory_id=m-1 revision=1"


def test_a_value_cannot_forge_a_field_or_a_line(telemetry: Capture) -> None:
    _log.info("memory.added", user_id='x admin=true\n2026 ERROR "')
    assert _only_line(telemetry) == (r'INFO memory.added user_id="x admin=true\n2026 ERROR \""')


async def test_what_is_bound_is_on_the_lines_of_the_block_and_its_tasks(
    telemetry: Capture,
) -> None:
    async def work() -> None:
        _log.info("inner")

    with bind(tenant_id="acme"):
        await asyncio.create_task(work())
    _log.info("outer")
    inner, outer = telemetry.lines()
    assert inner.endswith("inner tenant_id=acme")
    assert outer.endswith("outer")


async def test_two_tasks_do_not_see_each_others_fields(telemetry: Capture) -> None:
    async def serve(tenant: str) -> None:
        bind_for_task(tenant_id=tenant)
        await asyncio.sleep(0)
        _log.info(f"served.{tenant}")

    await asyncio.gather(*(serve(tenant) for tenant in ("acme", "globex")))
    assert [line.split(" ", 2)[2] for line in telemetry.lines()] == [
        "served.acme tenant_id=acme",
        "served.globex tenant_id=globex",
    ]


def test_a_line_names_the_trace(telemetry: Capture) -> None:
    with span("step") as current:
        _log.info("event")
    assert f"trace_id={current.get_span_context().trace_id:032x}" in _only_line(telemetry)


def test_a_failure_is_reduced_to_code_class_and_place(telemetry: Capture) -> None:
    try:
        try:
            raise ValueError(SECRET)
        except ValueError as exc:
            raise StoreError(SECRET) from exc
    except StoreError as exc:
        _log.error("job.failed", exc=exc)
    line = _only_line(telemetry)
    assert "error=store" in line
    assert "error_class=inferscale_core.errors.StoreError" in line
    assert "cause_class=builtins.ValueError" in line
    assert "telemetry/test_logs.py" in line
    assert SECRET not in line


def test_a_line_of_another_library_shows_its_template_alone(telemetry: Capture) -> None:
    logger = logging.getLogger("some.library")
    logger.warning("request %s failed", SECRET)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("job failed\n%s", SECRET)
    first, second = telemetry.lines()
    assert 'log logger=some.library template="request %s failed"' in first
    assert 'template="job failed" error=internal error_class=builtins.ValueError' in second
    assert SECRET not in telemetry.everything()


def test_fields_of_a_line_that_is_not_written_are_not_formatted() -> None:
    class Costly(str):
        def __str__(self) -> str:
            raise AssertionError

    logger = logging.getLogger("inferscale_core.telemetry.test")
    logger.setLevel(logging.WARNING)
    try:
        _log.debug("event", field=Costly("x"))
    finally:
        logger.setLevel(logging.NOTSET)
