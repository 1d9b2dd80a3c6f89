"""Names and sealed keys: the same for the same token, and useless without it."""

from __future__ import annotations

import copy
import pickle

import pytest

from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.memory.disk_keys import DiskKey
from tests.unit.kv.disk_factories import MIRA, OSCAR, SECRET, a_disk_key, a_key


def test_names_depend_on_the_token_and_on_nothing_else() -> None:
    again = StoreSecret.from_token("a token of control and workers")
    assert again == SECRET
    assert again.name(MIRA) == SECRET.name(MIRA)
    assert StoreSecret(SECRET.root).name(MIRA) == SECRET.name(MIRA)
    assert StoreSecret.from_token("another").name(MIRA) != SECRET.name(MIRA)
    assert SECRET.name(MIRA) != SECRET.name(a_key("A"))


def test_a_sealed_key_opens_for_its_scope_alone() -> None:
    sealed = SECRET.seal(MIRA, a_disk_key(7))
    assert SECRET.unseal(MIRA, sealed) == a_disk_key(7)
    assert a_disk_key(7).secret.hex() not in sealed
    others = (
        (SECRET, OSCAR, sealed),
        (StoreSecret.from_token("another"), MIRA, sealed),
        (SECRET, MIRA, "8" + sealed[1:]),
        (SECRET, MIRA, sealed[:-1] + ("0" if sealed[-1] != "0" else "1")),
        (SECRET, MIRA, ""),
        (SECRET, MIRA, "7."),
        (SECRET, MIRA, "x.00"),
    )
    for secret, scope, text in others:
        with pytest.raises(ValueError, match="not a disk key"):
            secret.unseal(scope, text)


def test_secrets_are_hidden_where_objects_are_printed() -> None:
    key = a_disk_key(7)
    assert repr(key) == "DiskKey(kv_epoch=7)"
    assert repr(SECRET) == "StoreSecret()"
    assert not hasattr(key, "__dict__")
    assert not hasattr(SECRET, "__dict__")


def test_both_survive_the_way_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(a_disk_key())) == copy.deepcopy(a_disk_key())
    assert pickle.loads(pickle.dumps(SECRET)).name(MIRA) == SECRET.name(MIRA)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 16"):
        DiskKey(1, bytes(16))
