"""Requests for the likeliest tokens and for named ones take turns."""

from __future__ import annotations

import asyncio
import random

from services.worker.engine.phases import Kind, Phases


async def test_the_two_kinds_are_never_inside_together_and_all_get_in() -> None:
    phases, chance = Phases(), random.Random(0)
    inside: list[Kind] = []
    most = 0
    served = 0

    async def one(kind: Kind) -> None:
        nonlocal most, served
        await asyncio.sleep(chance.random() / 100)
        async with phases.inside(kind):
            inside.append(kind)
            assert len(set(inside)) == 1
            most = max(most, len(inside))
            await asyncio.sleep(chance.random() / 200)
            inside.remove(kind)
            served += 1

    async with asyncio.timeout(10):
        await asyncio.gather(*(one(chance.choice(list(Kind))) for _ in range(300)))
    assert (served, inside) == (300, [])
    assert most > 1, "those of one kind go side by side"


async def test_a_steady_stream_of_one_kind_does_not_keep_the_other_out() -> None:
    phases = Phases()
    got_in = asyncio.Event()

    async def stream() -> None:
        while not got_in.is_set():
            async with phases.inside(Kind.NAMED):
                await asyncio.sleep(0.001)

    streams = [asyncio.create_task(stream()) for _ in range(3)]
    await asyncio.sleep(0.005)
    async with asyncio.timeout(5), phases.inside(Kind.LIKELIEST):
        got_in.set()
    await asyncio.gather(*streams)


async def test_who_gives_up_waiting_holds_nobody_up() -> None:
    phases = Phases()
    left = asyncio.Event()

    async def wait(kind: Kind) -> None:
        async with phases.inside(kind):
            left.set()

    async with phases.inside(Kind.NAMED):
        gone = asyncio.create_task(wait(Kind.LIKELIEST))
        stays = asyncio.create_task(wait(Kind.LIKELIEST))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    async with asyncio.timeout(5):
        await stays
        # One that is woken and cancelled at the same moment leaves as well.
        async with phases.inside(Kind.NAMED):
            woken = asyncio.create_task(wait(Kind.LIKELIEST))
            await asyncio.sleep(0)
        woken.cancel()
        await asyncio.gather(woken, return_exceptions=True)
        await wait(Kind.NAMED)
    assert left.is_set()
