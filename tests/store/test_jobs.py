"""The job queue: commits with the write, coalesces, retries, and survives killed processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from inferscale_core.errors import Unavailable
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.encoding import EncodeState
from inferscale_core.memory.facts import NewFact
from inferscale_core.store import (
    EncodeJob,
    ForgetJob,
    JobHandlers,
    JobQueue,
    JobState,
    QueueTimes,
    Store,
)
from inferscale_core.store.jobs import MAX_ATTEMPTS
from inferscale_core.telemetry.logs import get_logger
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, vector
from tests.telemetry_capture import captured

QUICK = QueueTimes(
    poll=0.05,
    heartbeat=0.2,
    stalled_after=1.0,
    sweep=0.2,
    first_backoff=0.01,
    max_backoff=0.1,
    grace=0.5,
)


@pytest.fixture
async def database(database_factory: Callable[..., Database]) -> Database:
    """One of its own: a queue runs whatever waits in its database."""
    return database_factory()


@dataclass
class Handled:
    """Notes every call; `work` decides what a call does."""

    encoded: list[EncodeJob] = field(default_factory=list)
    forgotten: list[ForgetJob] = field(default_factory=list)
    work: Callable[[EncodeJob], Awaitable[None]] | None = None

    async def encode(self, job: EncodeJob) -> None:
        self.encoded.append(job)
        if self.work:
            await self.work(job)

    async def forget(self, job: ForgetJob) -> None:
        self.forgotten.append(job)

    @property
    def handlers(self) -> JobHandlers:
        return JobHandlers(self.encode, self.forget)


@contextlib.asynccontextmanager
async def running(
    store: Store, handled: Handled, *, listen: bool = False, times: QueueTimes = QUICK
) -> AsyncIterator[JobQueue]:
    queue = JobQueue(
        store,
        handled.handlers,
        concurrency=4,
        listen_url=store.url if listen else None,
        times=times,
    )
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        queue.stop()
        await asyncio.wait_for(task, 10)


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


async def empty(queue: JobQueue, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            depth = await queue.depth()
            if depth.waiting == depth.running == 0:
                return
            await asyncio.sleep(0.02)


async def write(store: Store, tenant: TenantId, user: UserId, text: str) -> None:
    async with store.transaction(tenant) as tx:
        await tx.facts.add(user, NewFact(text), vector())
        await tx.queue_encoding(user)


async def num_facts(store: Store, job: EncodeJob) -> int:
    async with store.transaction(job.tenant_id) as tx:
        return len(await tx.facts.page(job.user_id, limit=1000))


@pytest.mark.parametrize("listen", [True, False])
async def test_a_write_runs_one_job_for_each_model(store: Store, listen: bool) -> None:
    tenant, user = await a_tenant(store, models=("tiny", "large")), a_user()
    handled = Handled()
    async with running(store, handled, listen=listen) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await until(lambda: len(handled.encoded) == 2)
        await empty(queue)
    assert {job.model for job in handled.encoded} == {"tiny", "large"}
    assert {(job.tenant_id, job.user_id) for job in handled.encoded} == {(tenant, user)}


async def test_a_write_that_is_rolled_back_leaves_no_job(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    with contextlib.suppress(RuntimeError):
        async with store.transaction(tenant) as tx:
            await tx.facts.add(user, NewFact("Robin has a dog."), vector())
            await tx.queue_encoding(user)
            raise RuntimeError
    queue = JobQueue(store, Handled().handlers, concurrency=1)
    assert (await queue.depth()).waiting == 0
    await write(store, tenant, user, "Robin has a cat.")
    assert (await queue.depth()).waiting == 1


async def test_a_burst_of_writes_waits_as_one_job(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    await asyncio.gather(*(write(store, tenant, user, f"Fact {n}.") for n in range(20)))
    handled = Handled()
    async with running(store, handled) as queue:
        assert (await queue.depth()).waiting in (0, 1)
        await empty(queue)
    assert len(handled.encoded) == 1


async def test_ids_that_run_together_alike_are_different_jobs(store: Store) -> None:
    tenant = await a_tenant(store, models=("m", "m:x"))
    await write(store, tenant, UserId("x:u"), "A.")
    await write(store, tenant, UserId("u"), "A.")
    queue = JobQueue(store, Handled().handlers, concurrency=1)
    assert (await queue.depth()).waiting == 4


async def test_a_write_beside_a_waiting_job_is_never_missed(store: Store) -> None:
    """The job may not start, and so not end, before the write that relies on it is visible."""
    tenant, user = await a_tenant(store), a_user()
    await write(store, tenant, user, "The first.")
    seen: list[int] = []
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        seen.append(await num_facts(store, job))

    handled.work = work
    async with store.transaction(tenant) as tx:
        await tx.facts.add(user, NewFact("The second."), vector())
        await tx.queue_encoding(user)
        async with running(store, handled) as queue:
            await asyncio.sleep(0.5)
            assert seen == [], "the waiting job is held until this transaction ends"
            await tx._session.commit()
            await until(lambda: bool(seen))
            await empty(queue)
    assert seen == [2]


async def test_the_last_job_of_a_user_sees_every_write(store: Store) -> None:
    tenant, users = await a_tenant(store), [a_user() for _ in range(3)]
    seen: dict[UserId, int] = {}
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        seen[job.user_id] = await num_facts(store, job)
        await asyncio.sleep(0.01)

    handled.work = work
    async with running(store, handled) as queue:
        for number in range(25):
            await asyncio.gather(*(write(store, tenant, u, f"Fact {number}.") for u in users))
        await empty(queue)
    assert seen == dict.fromkeys(users, 25)
    assert 3 <= len(handled.encoded) <= 75


async def test_jobs_of_one_user_run_one_after_another_and_users_in_parallel(store: Store) -> None:
    tenant, users = await a_tenant(store), [a_user() for _ in range(3)]
    active: dict[UserId, int] = {}
    most_users = 0
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        nonlocal most_users
        active[job.user_id] = active.get(job.user_id, 0) + 1
        assert active[job.user_id] == 1
        most_users = max(most_users, sum(active.values()))
        await write(store, tenant, job.user_id, f"Fact {len(handled.encoded)}.")
        await asyncio.sleep(0.2)
        active[job.user_id] -= 1
        if len(handled.encoded) > 9:
            handled.work = None

    handled.work = work
    async with running(store, handled) as queue:
        for user in users:
            await write(store, tenant, user, "The first.")
        await empty(queue)
    assert most_users == 3


async def test_a_failing_job_is_tried_again_until_it_works(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        if len(handled.encoded) < 4:
            raise Unavailable("no worker")

    handled.work = work
    async with running(store, handled) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await empty(queue)
    assert len(handled.encoded) == 4


async def test_log_lines_of_a_job_name_its_tenant_and_how_it_failed(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        get_logger("inferscale_core.tests").info("work.began")
        if len(handled.encoded) < 2:
            raise Unavailable("no worker")

    handled.work = work
    with captured() as capture:
        async with running(store, handled) as queue:
            await write(store, tenant, user, "Robin has a dog.")
            await empty(queue)
    [failed] = [line for line in capture.lines() if "job.failed" in line]
    assert f"task=encode_user user_id={user}" in failed
    assert "unavailable" in failed
    began = [line for line in capture.lines() if "work.began" in line]
    assert len(began) == 2
    assert all(f"tenant_id={tenant}" in line for line in (failed, *began))
    assert "dog" not in capture.everything()


async def test_a_failing_job_beside_a_newer_one_ends_and_the_newer_runs(store: Store) -> None:
    """At once, not when a sweep finds that the failed one could not be queued again."""
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        if len(handled.encoded) == 1:
            await write(store, tenant, user, "Written meanwhile.")
            raise Unavailable("no worker")

    handled.work = work
    async with running(store, handled, times=replace(QUICK, sweep=60)) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await empty(queue)
    assert len(handled.encoded) == 2


async def test_a_job_that_fails_while_another_is_being_queued_leaves_that_one_free_to_run(
    store: Store,
) -> None:
    """The other is not visible yet when the first fails, and commits before the first has ended."""
    tenant, user = await a_tenant(store), a_user()
    handled, began, fail = Handled(), asyncio.Event(), asyncio.Event()

    async def work(job: EncodeJob) -> None:
        if len(handled.encoded) == 1:
            began.set()
            await fail.wait()
            raise Unavailable("no worker")

    handled.work = work
    async with running(store, handled, times=replace(QUICK, sweep=60)) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await began.wait()
        async with store.system() as tx:
            await tx.queue_encoding(tenant, user, "tiny")
            fail.set()
            await asyncio.sleep(0.3)
        await empty(queue, 5)
    assert len(handled.encoded) == 2


async def test_work_that_fails_is_as_old_as_its_first_attempt(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()

    async def fail(job: EncodeJob) -> None:
        raise Unavailable("no worker")

    handled.work = fail
    slow = replace(QUICK, first_backoff=0.2, max_backoff=0.2)
    async with running(store, handled, times=slow) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await until(lambda: len(handled.encoded) == 4)
        await all_waiting(queue)
        assert (await queue.depth()).oldest_s > 0.5


async def all_waiting(queue: JobQueue) -> None:
    """Returns once nothing runs any more, and something waits."""
    async with asyncio.timeout(10):
        while (depth := await queue.depth()).running or not depth.waiting:
            await asyncio.sleep(0.02)


async def states(store: Store, tenant: TenantId, user: UserId) -> set[tuple[EncodeState, str]]:
    async with store.transaction(tenant) as tx:
        facts = await tx.facts.page(user, limit=10)
        statuses = await tx.encodings.statuses(user, [fact.fact_id for fact in facts])
    return {(s.state, s.reason) for of_fact in statuses.values() for s in of_fact}


async def given_up(store: Store, tenant: TenantId, handled: Handled, user: UserId) -> None:
    """Runs a queue until it has given up the user's job."""

    async def fail(job: EncodeJob) -> None:
        raise Unavailable("no worker")

    handled.work = fail
    await write(store, tenant, user, "Robin has a dog.")
    async with running(store, handled) as queue:
        await empty(queue)
    handled.work = None


async def test_a_job_that_always_fails_is_given_up_and_its_facts_say_why(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()
    with captured() as capture:
        await given_up(store, tenant, handled, user)
    assert len(handled.encoded) == MAX_ATTEMPTS
    assert await states(store, tenant, user) == {(EncodeState.FAILED, "unavailable")}
    [line] = [line for line in capture.lines() if "job.given_up" in line]
    assert "reason=unavailable" in line
    async with running(store, handled):
        await asyncio.sleep(0.3)
    assert len(handled.encoded) == MAX_ATTEMPTS, "it waits for a change or a worker"


async def test_a_write_sets_a_job_that_was_given_up_going_with_all_its_attempts(
    store: Store,
) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()
    await given_up(store, tenant, handled, user)
    await given_up(store, tenant, handled, user)
    assert len(handled.encoded) == 2 * MAX_ATTEMPTS


async def test_a_worker_that_joins_wakes_the_jobs_of_its_model_alone(store: Store) -> None:
    """Those given up, and those that wait for their next attempt."""
    tenant = await a_tenant(store, models=("tiny", "large"))
    parked, waiting = a_user(), a_user()
    handled = Handled()
    await given_up(store, tenant, handled, parked)

    async def fail(job: EncodeJob) -> None:
        raise Unavailable("no worker")

    handled.work = fail
    handled.encoded.clear()
    # A notification that comes while jobs are fetched is lost: what is due is found by the poll.
    never = replace(QUICK, first_backoff=60, max_backoff=60, poll=1)
    async with running(store, handled, listen=True, times=never) as queue:
        await write(store, tenant, waiting, "Mira has a cat.")
        await until(lambda: len(handled.encoded) == 2)
        await all_waiting(queue)
        handled.work = None
        async with store.system() as tx:
            await tx.wake_encoding("tiny")
        await until(lambda: len(handled.encoded) == 4, 3)
        await asyncio.sleep(0.2)
    assert {(job.user_id, job.model) for job in handled.encoded[2:]} == {
        (parked, "tiny"),
        (waiting, "tiny"),
    }


async def test_a_job_that_is_given_up_as_a_worker_joins_runs_all_the_same(store: Store) -> None:
    """The join finds it running, its last attempt, and so finds nothing that waits."""
    tenant, user = await a_tenant(store), a_user()
    handled, last, fail = Handled(), asyncio.Event(), asyncio.Event()

    async def work(job: EncodeJob) -> None:
        if len(handled.encoded) == MAX_ATTEMPTS:
            last.set()
            await fail.wait()
        if len(handled.encoded) <= MAX_ATTEMPTS:
            raise Unavailable("no worker")

    handled.work = work
    async with running(store, handled, times=replace(QUICK, sweep=60)) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await last.wait()
        async with store.system() as tx:
            await tx.wake_encoding("tiny")
            fail.set()
            await asyncio.sleep(0.3)
        await empty(queue, 5)
    assert len(handled.encoded) == MAX_ATTEMPTS + 1
    assert await states(store, tenant, user) == {(EncodeState.PENDING, "")}


async def test_a_job_cut_off_at_shutdown_runs_again(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        if len(handled.encoded) == 1:
            await asyncio.sleep(60)

    handled.work = work
    async with running(store, handled):
        await write(store, tenant, user, "Robin has a dog.")
        await until(lambda: len(handled.encoded) == 1)
    async with running(store, handled) as queue:
        await until(lambda: len(handled.encoded) == 2)
        await empty(queue)


async def test_the_queue_outlives_its_connections(store: Store, database: Database) -> None:
    """Killed while a job runs: its end cannot be written, so it is found lost and runs again."""
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()

    async def work(job: EncodeJob) -> None:
        if len(handled.encoded) == 1:
            with database.admin() as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE usename = 'inferscale_app' AND datname = current_database()"
                )

    handled.work = work
    async with running(store, handled, listen=True) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await until(lambda: len(handled.encoded) >= 1)
        await asyncio.sleep(0.5)
        await write(store, tenant, user, "Robin has a cat.")
        await until(lambda: len(handled.encoded) >= 2)
        await empty(queue)


async def test_a_job_whose_end_was_never_written_is_found_and_runs_again(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    handled = Handled()
    async with running(store, handled) as queue:
        await write(store, tenant, user, "Robin has a dog.")
        await empty(queue)
        with database.admin() as connection:
            connection.execute(
                """
                INSERT INTO procrastinate_jobs
                    (queue_name, task_name, lock, queueing_lock, args, status, worker_id)
                SELECT 'inferscale', 'encode_user', 'l', 'l', jsonb_build_object(
                    'tenant_id', %s::text, 'user_id', %s::text, 'model', 'tiny'),
                    'doing', (SELECT max(id) FROM procrastinate_workers)
                """,
                [tenant, user],
            )
        await until(lambda: len(handled.encoded) == 2)
        await empty(queue)


async def test_the_job_of_a_killed_process_is_taken_up_by_another(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    await write(store, tenant, user, "Robin has a dog.")
    script = """
        import asyncio, sys
        from inferscale_core.store import JobHandlers, JobQueue, Store
        from tests.store.test_jobs import QUICK

        async def hang(job):
            print("taken", flush=True)
            await asyncio.sleep(60)

        async def main():
            store = Store(sys.argv[1], embedding_dimension=8)
            await JobQueue(store, JobHandlers(hang, hang), concurrency=1, times=QUICK).run()

        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(script),
        store.url.render_as_string(hide_password=False),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"taken\n"
    handled = Handled()
    async with running(store, handled) as queue:
        await asyncio.sleep(1.5)
        assert handled.encoded == [], "its process is alive"
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await write(store, tenant, user, "Written meanwhile.")
        await until(lambda: len(handled.encoded) >= 1)
        await empty(queue)
    assert handled.encoded[-1] == EncodeJob(tenant, user, "tiny")


async def test_a_forget_job_names_its_receipt_and_worker(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        await tx.queue_forget(user, "receipt-1", WorkerId("worker-0"), delay_s=0.3)
    handled = Handled()
    async with running(store, handled) as queue:
        await asyncio.sleep(0.1)
        assert handled.forgotten == []
        assert (await queue.depth()).oldest_s < 5
        await empty(queue)
    assert handled.forgotten == [ForgetJob(tenant, user, "receipt-1", WorkerId("worker-0"))]


async def test_jobs_are_counted_by_what_they_do_and_where_they_stand(store: Store) -> None:
    tenant, parked, failing, waiting = await a_tenant(store), a_user(), a_user(), a_user()
    handled = Handled()
    await given_up(store, tenant, handled, parked)
    started, end = asyncio.Event(), asyncio.Event()

    async def work(job: EncodeJob) -> None:
        if job.user_id == failing:
            raise Unavailable("no worker")
        started.set()
        await end.wait()

    handled.work = work
    never = replace(QUICK, first_backoff=60, max_backoff=60)
    async with running(store, handled, times=never) as queue:
        await write(store, tenant, failing, "Robin has a dog.")
        await write(store, tenant, waiting, "Mira has a cat.")
        await started.wait()
        await until(lambda: len(handled.encoded) > MAX_ATTEMPTS + 1)
        async with asyncio.timeout(10):
            while (await queue.depth()).running > 1:
                await asyncio.sleep(0.02)
        async with store.transaction(tenant) as tx:
            await tx.queue_forget(waiting, "receipt", WorkerId("w1"), delay_s=60)
        assert (await queue.depth()).num_jobs == {
            (EncodeJob.task, JobState.PARKED): 1,
            (EncodeJob.task, JobState.FAILING): 1,
            (EncodeJob.task, JobState.RUNNING): 1,
            (ForgetJob.task, JobState.WAITING): 1,
        }
        end.set()
