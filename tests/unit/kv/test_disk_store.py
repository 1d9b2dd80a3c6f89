"""The disk tier of a rank: what comes back after a restart, and what never does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inferscale_core.errors import Unavailable
from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv import disk_store
from inferscale_core.kv.disk_folder import rank_folder, remove_other_stores
from inferscale_core.kv.disk_format import SEGMENT_BYTES
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.memory.disk_keys import DiskKey
from tests.unit.kv.disk_factories import (
    MIRA,
    OSCAR,
    SECRET,
    a_disk_key,
    a_key,
    a_record,
    files_of,
    open_store,
    put,
    read,
    rows_of,
)

A, B, C = (a_key(name) for name in "ABC")


@pytest.mark.parametrize(
    "num_bytes", [1, 700, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 1, 3 * SEGMENT_BYTES]
)
def test_what_was_put_is_read_again_bit_for_bit_also_after_a_restart(
    tmp_path: Path, num_bytes: int
) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, num_bytes=num_bytes)
    assert read(store, A, num_bytes) == rows_of(A, num_bytes)
    store.close()
    again = open_store(tmp_path)
    assert again.admit(MIRA, a_disk_key(), [A, B]) == (a_record(A),)
    assert read(again, A, num_bytes) == rows_of(A, num_bytes)
    again.check_conservation()


def test_nothing_is_served_before_the_comparison(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    store.close()
    again = open_store(tmp_path)
    assert again.num_records == 1
    assert read(again, A) is None
    again.admit(OSCAR, a_disk_key(user="oscar"), [a_key("A", OSCAR)])
    assert read(again, A) is None, "another user's comparison admits nothing of this one's"
    again.admit(MIRA, a_disk_key(), [A])
    assert read(again, A) is not None


def test_what_the_user_should_not_have_is_removed_by_the_comparison(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, B, C)
    store.close()
    again = open_store(tmp_path)
    admitted = again.admit(MIRA, a_disk_key(), [A, C])
    assert {record.key for record in admitted} == {A, C}
    assert again.num_records == len(files_of(tmp_path)) == 2
    assert read(again, B) is None


def test_a_delete_while_the_worker_was_down_leaves_nothing_of_the_old_epoch(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(1), [])
    store.admit(OSCAR, a_disk_key(1, "oscar"), [])
    of_oscar = a_key("A", OSCAR)
    put(store, A, B, of_oscar)
    store.close()
    again = open_store(tmp_path)
    assert again.admit(MIRA, a_disk_key(2), [A, B]) == ()
    assert read(again, A) is None
    assert len(files_of(tmp_path)) == 1
    assert again.admit(OSCAR, a_disk_key(1, "oscar"), [of_oscar]) == (a_record(of_oscar),)


def test_survivors_of_a_delete_are_sealed_under_the_new_key_and_the_old_one_opens_none(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(1), [])
    put(store, A, B)
    before = {path.name: path.read_bytes() for path in files_of(tmp_path)}
    assert store.admit(MIRA, a_disk_key(2), [B]) == (a_record(B),)
    [left] = files_of(tmp_path)
    pairs = zip(before[left.name], left.read_bytes(), strict=True)
    changed = [place for place, (old, new) in enumerate(pairs) if old != new]
    assert changed
    assert max(changed) < 8 + 68, "the rows are not written again"
    assert read(store, B) == rows_of(B)
    put(store, C)
    store.close()
    again = open_store(tmp_path)
    assert {r.key for r in again.admit(MIRA, a_disk_key(2), [A, B, C])} == {B, C}
    again.close()
    late = open_store(tmp_path)
    assert late.admit(MIRA, a_disk_key(1), [B, C]) == ()


def test_an_older_epoch_than_one_seen_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(2), [])
    put(store, A, B)
    admitted = store.admit(MIRA, a_disk_key(1), [A])
    assert {record.key for record in admitted} == {A, B}
    assert read(store, B) == rows_of(B)


def test_another_key_of_the_same_epoch_opens_nothing_after_a_start(tmp_path: Path) -> None:
    """A database that was restored from a backup gives epochs out a second time."""
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(1), [])
    put(store, A)
    store.close()
    again = open_store(tmp_path)
    assert again.admit(MIRA, DiskKey(1, bytes(32)), [A]) == ()
    assert files_of(tmp_path) == []


def test_a_running_store_follows_another_key_of_the_same_epoch(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(1), [])
    put(store, A)
    other = DiskKey(1, bytes(32))
    assert store.admit(MIRA, other, [A]) == (a_record(A),)
    store.close()
    assert open_store(tmp_path).admit(MIRA, other, [A]) == (a_record(A),)


def test_a_chunk_of_a_user_whose_key_is_unknown_is_not_stored(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert not store.put(a_record(A), rows_of(A)).is_stored
    assert files_of(tmp_path) == []
    assert store.stats.rejected == 1


def test_the_keys_of_another_scope_are_wanted_in_vain(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    store.close()
    again = open_store(tmp_path)
    again.admit(OSCAR, a_disk_key(), [A])
    assert read(again, A) is None


@pytest.mark.parametrize("num_bytes", [40, SEGMENT_BYTES + 40])
def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path, num_bytes: int) -> None:
    """Every byte of a small record; of one with two segments every byte around the seams."""
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, num_bytes=num_bytes)
    store.close()
    [path] = files_of(tmp_path)
    whole = path.read_bytes()
    places = list(range(len(whole)))
    if num_bytes > SEGMENT_BYTES:
        places = [*places[:500:7], *places[SEGMENT_BYTES : SEGMENT_BYTES + 600 : 5], *places[-90:]]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(damaged)
        again = open_store(tmp_path)
        admitted = again.admit(MIRA, a_disk_key(), [A])
        assert read(again, A, num_bytes) is None, f"byte {place}"
        assert not path.exists()
        assert again.num_bytes == again.num_records == 0
        assert again.stats.damaged == len(admitted), "damage to rows shows at the read"
        again.close()


def test_a_record_cut_at_any_length_is_dropped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, num_bytes=40)
    store.close()
    [path] = files_of(tmp_path)
    whole = path.read_bytes()
    for length in (*range(len(whole)), len(whole) + 1, len(whole) + 16):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((whole + bytes(16))[:length])
        again = open_store(tmp_path)
        assert again.admit(MIRA, a_disk_key(), [A]) == (), f"length {length}"
        assert files_of(tmp_path) == []
        again.close()


def test_two_records_that_change_places_are_both_dropped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, B)
    store.close()
    first, second = files_of(tmp_path)
    spare = tmp_path / "spare"
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    again = open_store(tmp_path)
    assert again.admit(MIRA, a_disk_key(), [A, B]) == ()


def test_rows_of_one_record_under_the_head_of_another_are_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, B)
    store.close()
    first, second = files_of(tmp_path)
    mixed = first.read_bytes()[:-400] + second.read_bytes()[-400:]
    first.write_bytes(mixed)
    again = open_store(tmp_path)
    again.admit(MIRA, a_disk_key(), [A, B])
    found = [read(again, key) for key in (A, B)]
    assert sorted(rows is None for rows in found) == [False, True]


def test_the_longest_unused_make_room_and_the_caller_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    size = store.num_bytes
    store.close()
    store = open_store(tmp_path, max_bytes=3 * size)
    store.admit(MIRA, a_disk_key(), [A])
    put(store, B, C)
    assert read(store, A) is not None
    d = a_key("D")
    assert store.put(a_record(d), rows_of(d)).evicted == (B,)
    assert store.num_bytes == 3 * size
    assert store.stats.evictions == 1
    assert read(store, B) is None
    store.check_conservation()


def test_use_is_remembered_across_a_restart_and_unknown_records_make_room_too(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, B, C)
    size = store.num_bytes // 3
    for seconds, path in enumerate(files_of(tmp_path)):
        os.utime(path, (seconds, seconds))
    assert read(store, A) is not None
    store.close()
    smaller = open_store(tmp_path, max_bytes=size)
    assert smaller.num_records == 1, "a smaller bound holds from the start on"
    assert smaller.admit(MIRA, a_disk_key(), [A, B, C]) == (a_record(A),)
    assert smaller.put(a_record(B), rows_of(B)).evicted == (A,)
    smaller.check_conservation()


def test_a_record_larger_than_the_tier_is_refused_and_evicts_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_bytes=2_000)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    assert store.put(a_record(B), rows_of(B, 2_000)) == disk_store.Stored(is_stored=False)
    assert read(store, A) is not None


def test_a_record_that_is_put_again_replaces_the_old_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, num_bytes=700)
    put(store, A, num_bytes=300)
    assert read(store, A, 300) == rows_of(A, 300)
    assert store.num_records == len(files_of(tmp_path)) == 1
    store.check_conservation()


def test_removed_records_are_gone_from_the_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A, B)
    assert store.remove([A, C]) == 1
    assert read(store, A) is None
    assert len(files_of(tmp_path)) == 1
    assert store.remove([B]) == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["writing"]


def test_a_buffer_of_another_length_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    with pytest.raises(ValueError, match="700 bytes do not fit 699"):
        store.read(A, bytearray(699))


@pytest.mark.parametrize("change", ["remove", "admit", "close"])
def test_a_write_that_is_overtaken_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(1), [])
    written, go_on = threading.Event(), threading.Event()

    def slow(*args: object) -> None:
        write_file(*args)
        written.set()
        assert go_on.wait(10)

    write_file = disk_store._write_file
    monkeypatch.setattr(disk_store, "_write_file", slow)
    results = []
    thread = threading.Thread(target=lambda: results.append(store.put(a_record(A), rows_of(A))))
    thread.start()
    assert written.wait(10)
    if change == "remove":
        store.remove([A])
    elif change == "admit":
        store.admit(MIRA, a_disk_key(2), [])
    else:
        store.close()
    go_on.set()
    thread.join()
    assert not results[0].is_stored
    assert files_of(tmp_path) == []
    assert list((tmp_path / "writing").iterdir()) == []
    assert read(store, A) is None


def test_a_write_that_the_disk_refuses_leaves_nothing_and_does_not_raise(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    (tmp_path / "writing").rmdir()
    assert store.put(a_record(A), rows_of(A)) == disk_store.Stored(is_stored=False)
    assert store.num_bytes == 0
    store.check_conservation()


def test_a_file_that_somebody_else_removed_is_a_miss(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    files_of(tmp_path)[0].unlink()
    assert read(store, A) is None
    assert store.num_bytes == 0


KILLED = """
import sys
from pathlib import Path
from inferscale_core.kv import disk_format
from tests.unit.kv.disk_factories import MIRA, a_disk_key, a_key, a_record, open_store, put, rows_of
store = open_store(Path(sys.argv[1]))
store.admit(MIRA, a_disk_key(), [])
put(store, a_key("A"))
whole = disk_format._write_all
def stuck(fd, data):
    whole(fd, data)
    print("in the middle", flush=True)
    sys.stdin.read()
disk_format._write_all = stuck
store.put(a_record(a_key("B")), rows_of(a_key("B"), 3 << 18))
"""


def test_a_process_killed_in_the_middle_of_a_write_leaves_the_others_and_no_torn_one(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in the middle\n"
        with pytest.raises(Unavailable, match="another process"):
            open_store(tmp_path)
        process.send_signal(signal.SIGKILL)
    assert any((tmp_path / "writing").iterdir())
    again = open_store(tmp_path)
    assert list((tmp_path / "writing").iterdir()) == []
    assert again.admit(MIRA, a_disk_key(), [A, B]) == (a_record(A),)
    assert read(again, A) == rows_of(A)
    again.check_conservation()


@pytest.mark.parametrize("what", ["layout", "secret"])
def test_a_folder_that_means_something_else_begins_anew(tmp_path: Path, what: str) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    store.close()
    other = (
        open_store(tmp_path, layout="280 bytes a token")
        if what == "layout"
        else open_store(tmp_path, secret=StoreSecret.from_token("another"))
    )
    assert other.num_records == 0
    assert files_of(tmp_path) == []


def test_stores_of_other_models_and_recipes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    def folder(revision: str, recipe: str, rank: int, num_ranks: int) -> Path:
        model, recipe_hash = ModelRevision(revision), RecipeHash(recipe)
        return rank_folder(tmp_path, model, recipe_hash, rank, num_ranks)

    own, sibling = folder("org/model@1", "r1", 0, 2), folder("org/model@1", "r1", 1, 2)
    others = [folder("org/model@0", "r1", 0, 2), folder("org/model@1", "r0", 0, 2)]
    others.append(folder("org/model@1", "r1", 0, 1))
    in_use = folder("m@9", "r9", 0, 1)
    for each in (own, sibling, *others, in_use):
        store = open_store(each)
        if each != in_use:
            store.close()
    strange = tmp_path / "photos" / "of" / "2of3"
    strange.mkdir(parents=True)
    (strange / "about").write_text("holidays")
    assert remove_other_stores(tmp_path, own) == 3
    assert [each.exists() for each in others] == [False] * 3
    assert all(each.exists() for each in (own, sibling, in_use, strange))


def test_files_tell_neither_user_nor_fact(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.admit(MIRA, a_disk_key(), [])
    put(store, A)
    [path] = files_of(tmp_path)
    content, name = path.read_bytes(), str(path.relative_to(tmp_path))
    for word in ("mira", "tenant", "fact-A", "A-saw", "header"):
        assert word not in name
        assert word.encode() not in content
    assert rows_of(A)[:8] not in content
    assert a_disk_key().secret not in content
    assert SECRET.root not in content + (tmp_path / "about").read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_threads_that_write_read_remove_and_compare_at_once_leave_a_sound_store(
    tmp_path: Path,
) -> None:
    """Whatever is read is what was written, and the files agree with the books at the end."""
    store = open_store(tmp_path, max_bytes=14_000)
    store.admit(MIRA, a_disk_key(0), [])
    keys = [a_key(str(number)) for number in range(20)]
    wrong: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            key = chance.choice(keys)
            action = chance.random()
            if action < 0.45:
                store.put(a_record(key), rows_of(key, 900))
            elif action < 0.9:
                if read(store, key, 900) not in (None, rows_of(key, 900)):
                    wrong.append(key)
            elif action < 0.97:
                store.remove([key])
            else:
                store.admit(MIRA, a_disk_key(chance.randrange(50)), chance.sample(keys, 15))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.stats.hits > 0
    assert store.stats.evictions > 0
    store.check_conservation()
    assert len(files_of(tmp_path)) == store.num_records
    assert list((tmp_path / "writing").iterdir()) == []
