"""Two blocking clients that live at once, then one more, and one in a forked process. Before them,
a client in a process forked from one that has used none.

    python client_process.py ADDRESS

Prints what was answered, one line each.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from inferscale_core.client import InferScale
from inferscale_core.errors import Unsupported

NUM_CHATS = 60


def main(address: str) -> None:
    key = "key-of-acme"
    in_forked(address)
    with InferScale(address, key) as first, InferScale(address, key) as second:
        with ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda n: use((first, second)[n % 2]), range(NUM_CHATS)))
        print("two at once:", len(texts), num_loop_threads())
        first.close()
        print("one closed:", use(second), num_loop_threads())
    print("all closed:", num_loop_threads(), flush=True)
    in_forked(address)
    with InferScale(address, key) as third:
        print("another:", use(third))


def use(client: InferScale) -> str:
    client.add_memory("robin", "Robin has a cat.")
    return client.chat("robin", "hello").answer().text.strip()


def in_forked(address: str) -> None:
    sys.stdout.flush()
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(address,))
    child.start()
    child.join(20)


def in_child(address: str) -> None:
    try:
        client = InferScale(address, "key-of-acme")
        print("in a child:", use(client), flush=True)
        client.close()
    except Unsupported as refusal:
        print("in a child:", refusal, flush=True)


def num_loop_threads() -> int:
    return sum(thread.name == "inferscale-client" for thread in threading.enumerate())


if __name__ == "__main__":
    main(sys.argv[1])
