from __future__ import annotations

from inferscale_core.ids import ModelRevision, RecipeHash, TenantId, UserId, UserScope
from inferscale_core.memory.canonical import user_scope
from services.worker.salts import CacheSalts

SCOPE = user_scope(TenantId("acme"), UserId("robin"))
MODEL, RECIPE = ModelRevision("tiny@1"), RecipeHash("abc")


def shared(
    salts: CacheSalts,
    scope: UserScope = SCOPE,
    mode: str = "injected",
    kv_epoch: int = 1,
    num_published: int = 2,
    num_text_facts: int = 0,
) -> str:
    return salts.shared(
        scope,
        mode=mode,
        kv_epoch=kv_epoch,
        num_published=num_published,
        num_text_facts=num_text_facts,
    )


def test_only_requests_that_may_serve_each_other_share_a_salt() -> None:
    salts = CacheSalts(MODEL, RECIPE)
    assert shared(salts) == shared(salts)
    others = [
        shared(salts, user_scope(TenantId("other"), UserId("robin"))),
        shared(salts, user_scope(TenantId("acme"), UserId("kim"))),
        shared(salts, mode="text"),
        shared(salts, kv_epoch=2),
        shared(salts, num_published=3),
        shared(salts, kv_epoch=12, num_published=3),
        shared(salts, kv_epoch=1, num_published=23),
        shared(salts, num_text_facts=4),
    ]
    assert len({shared(salts), *others}) == len(others) + 1


def test_a_salt_cannot_be_made_outside_of_the_worker() -> None:
    assert shared(CacheSalts(MODEL, RECIPE)) != shared(CacheSalts(MODEL, RECIPE))


def test_another_model_or_recipe_has_other_salts() -> None:
    salts = CacheSalts(MODEL, RECIPE)
    other_model = CacheSalts(ModelRevision("tiny@2"), RECIPE)
    other_recipe = CacheSalts(MODEL, RecipeHash("abd"))
    other_model._secret = other_recipe._secret = salts._secret
    assert len({shared(salts), shared(other_model), shared(other_recipe)}) == 3


def test_a_salt_used_once_is_nobody_elses() -> None:
    assert len({CacheSalts.once() for _ in range(1000)}) == 1000
