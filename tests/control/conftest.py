from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.control.fake_embedder import FakeEmbedder
from tests.control.harness import Control, Tenant, settings_for
from tests.fixtures_postgres import Database


@pytest.fixture
async def control(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Control]:
    """A test may give settings of its own by indirect parameters."""
    control = Control(settings_for(database, **getattr(request, "param", {})), FakeEmbedder())
    await control.start()
    yield control
    await control.stop()


@pytest.fixture
async def tenant(control: Control) -> Tenant:
    return await control.tenant()
