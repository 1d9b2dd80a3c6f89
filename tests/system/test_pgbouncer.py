"""Through a pooler in transaction mode: two server connections shared by all clients.

Store, JobQueue ──► pgbouncer ──► 2 connections ──► Postgres
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from inferscale_core.ids import TenantId, UserId
from inferscale_core.memory.facts import NewFact
from inferscale_core.store import EncodeJob, ForgetJob, JobHandlers, JobQueue, QueueTimes, Store
from inferscale_core.store.embedded import conninfo
from tests.fixtures_postgres import APP_PASSWORD, APP_ROLE, Database
from tests.store.factories import a_tenant, a_user, done, record, states_of, vector

pytestmark = pytest.mark.system

CONFIG = """
[databases]
{database} = host={host} dbname={database}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


@pytest.fixture
def database(database_factory: Callable[..., Database]) -> Database:
    return database_factory()


@pytest.fixture
def pooled(database: Database) -> Iterator[Database]:
    """The same database, reached through the pooler."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "this test needs Debian's pgbouncer: apt-get install pgbouncer"
    folder = Path(tempfile.mkdtemp(prefix="inferscale-pgbouncer-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "users").write_text(f'"{APP_ROLE}" "{APP_PASSWORD}"\n')
    host = str(database.admin_url.query["host"])
    name = str(database.admin_url.database)
    (folder / "config").write_text(
        CONFIG.format(database=name, host=host, port=port, folder=folder)
    )
    command = [program, str(folder / "config")]
    if os.geteuid() == 0:
        # It refuses to run as root, and the server's socket is for the server's user.
        user = pwd.getpwuid(os.stat(host).st_uid)
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
        command += ["-u", user.pw_name]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = database.app_url.set(host="127.0.0.1", port=port, query={})
        _wait_for(url.set(drivername="postgresql").render_as_string(False), process)
        yield Database(database.admin_url, url, database.dimension)
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


@pytest.fixture
async def store(pooled: Database) -> AsyncIterator[Store]:
    store = pooled.store(pool_size=8)
    yield store
    await store.close()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, "pgbouncer ended"
            assert time.monotonic() < deadline, "pgbouncer does not answer"
            time.sleep(0.05)


async def test_the_store_accepts_the_pooled_connection(store: Store) -> None:
    await store.check()


async def test_tenants_that_share_connections_see_their_own_rows_alone(store: Store) -> None:
    tenants = [await a_tenant(store) for _ in range(4)]
    users = {tenant: a_user() for tenant in tenants}

    async def work(tenant: TenantId, number: int) -> None:
        async with store.transaction(tenant) as tx:
            await tx.facts.add(users[tenant], NewFact(f"{tenant} {number}."), vector(number + 1, 1))
            await tx.queue_encoding(users[tenant])
        async with store.snapshot(tenant) as tx:
            page = await tx.changes.page(users[tenant], 0)
        assert {item.fact.text.split()[0] for item in page.facts} == {tenant}

    await asyncio.gather(*(work(tenant, n) for n in range(25) for tenant in tenants))
    for tenant in tenants:
        async with store.transaction(tenant) as tx:
            assert (await tx.tenants.get()).num_facts == 25
            found = await tx.facts.nearest(users[tenant], vector(), limit=100)
        assert {item.fact.text for item in found} == {f"{tenant} {n}." for n in range(25)}


async def test_a_connection_with_no_tenant_set_sees_no_row(store: Store, pooled: Database) -> None:
    tenant = await a_tenant(store)
    async with store.transaction(tenant) as tx:
        await tx.facts.add(a_user(), NewFact("Robin has a dog."), vector())
    for _ in range(10):
        with psycopg.connect(conninfo(pooled.app_url), prepare_threshold=None) as connection:
            for table in ("tenants", "users", "facts", "fact_embeddings"):
                query = f"SELECT count(*) FROM {table}"
                assert connection.execute(query).fetchone() == (0,)


async def test_a_whole_round_of_a_fact_works(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        a = (await tx.facts.add(user, NewFact("A."), vector())).fact
        b = (await tx.facts.add(user, NewFact("B."), vector(0, 1))).fact
    assert await record(store, tenant, user, done(a), done(b, a)) == 2
    async with store.transaction(tenant) as tx:
        deleted = await tx.facts.delete(user, a.fact_id)
    assert deleted.receipt.dependant_fact_ids == (b.fact_id,)
    assert await states_of(store, tenant, user, b) == ["dropped"]
    async with store.snapshot(tenant) as tx:
        page = await tx.changes.page(user, 0)
    assert page.removed_fact_ids == (a.fact_id,)
    assert np.frombuffer(page.facts[0].embedding, "<f4").tolist() == vector(0, 1).tolist()


async def test_jobs_commit_with_the_write_and_run_by_polling(store: Store) -> None:
    tenant, users = await a_tenant(store), [a_user() for _ in range(5)]
    seen: dict[UserId, int] = {}

    async def encode(job: EncodeJob) -> None:
        async with store.transaction(job.tenant_id) as tx:
            seen[job.user_id] = len(await tx.facts.page(job.user_id, limit=100))

    async def forget(job: ForgetJob) -> None:
        raise AssertionError(job)

    async def write(user: UserId, number: int) -> None:
        async with store.transaction(tenant) as tx:
            await tx.facts.add(user, NewFact(f"Fact {number}."), vector())
            await tx.queue_encoding(user)

    queue = JobQueue(
        store, JobHandlers(encode, forget), concurrency=3, times=QueueTimes(poll=0.05, grace=1)
    )
    task = asyncio.create_task(queue.run())
    await asyncio.gather(*(write(user, number) for number in range(10) for user in users))
    async with asyncio.timeout(20):
        while seen != dict.fromkeys(users, 10):
            await asyncio.sleep(0.05)
    queue.stop()
    await asyncio.wait_for(task, 10)
