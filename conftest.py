"""Fixtures that several test folders share."""

pytest_plugins = ["tests.fixtures_postgres"]
