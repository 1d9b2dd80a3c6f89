from __future__ import annotations

import re

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from inferscale_core.settings import Settings
from scripts import generate_config_docs

SECTIONS = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
FIELDS = [
    (name, key, field)
    for name, section in SECTIONS.items()
    for key, field in section.model_fields.items()
]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for section, field, _ in FIELDS:
        monkeypatch.delenv(f"INFERSCALE_{section}__{field}".upper(), raising=False)


def test_every_setting_sits_in_a_section() -> None:
    assert set(SECTIONS) == set(Settings.model_fields)


@pytest.mark.parametrize(("section", "key", "field"), FIELDS, ids=lambda part: str(part)[:40])
def test_every_setting_has_a_docstring(section: str, key: str, field: object) -> None:
    description = getattr(field, "description", None)
    assert description, f"{section}.{key} has no docstring"
    assert description.rstrip().endswith((".", ")")), f"{section}.{key}: not a sentence"


@pytest.mark.parametrize(("section", "key", "field"), FIELDS, ids=lambda part: str(part)[:40])
def test_every_number_has_a_lower_bound(section: str, key: str, field: object) -> None:
    annotation = getattr(field, "annotation", None)
    if annotation in (int, float, int | None, float | None):
        bounds = getattr(field, "metadata", [])
        assert any(hasattr(bound, "ge") or hasattr(bound, "gt") for bound in bounds)


def test_a_variable_sets_the_field_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERSCALE_CONTROL__GRACE_S", "45")
    monkeypatch.setenv("INFERSCALE_ENGINE__ENFORCE_EAGER", "true")
    monkeypatch.setenv("INFERSCALE_DATABASE__URL", "postgresql+psycopg://app:secret@host/db")
    settings = Settings()
    assert settings.control.grace_s == 45
    assert settings.engine.enforce_eager is True
    assert settings.database.url is not None
    assert settings.database.url.get_secret_value().endswith("secret@host/db")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("INFERSCALE_CONTROL__GRACE_S", "-1"),
        ("INFERSCALE_CONTROL__GRACE_SECONDS", "5"),
        ("INFERSCALE_ENGINE__DTYPE", "int3"),
        ("INFERSCALE_ENGINE__GPU_MEMORY_UTILIZATION", "0"),
        ("INFERSCALE_EMBEDDER__DIMENSION", "many"),
        ("INFERSCALE_TELEMETRY__SAMPLE_RATIO", "1.5"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_fields_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValidationError, match=variable.split("__")[1].lower()):
        Settings()


def test_settings_cannot_be_changed_after_the_start() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.control.grace_s = 1.0  # type: ignore[misc]


def test_a_secret_does_not_show_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [
        (section, key)
        for section, key, field in FIELDS
        if field.annotation in (SecretStr, SecretStr | None)
    ]
    assert ("control", "internal_token") in secrets
    for section, key in secrets:
        monkeypatch.setenv(f"INFERSCALE_{section}__{key}".upper(), "postgresql://u:hunter2@h/d")
    settings = Settings()
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_names_that_hold_credentials_are_secrets() -> None:
    for section, key, field in FIELDS:
        if re.search(r"(token|password|secret|^url|_url)$", key):
            assert field.annotation in (SecretStr, SecretStr | None), f"{section}.{key}"


def test_the_reference_page_is_what_the_settings_give() -> None:
    page = "\n".join(generate_config_docs.render())
    assert generate_config_docs.PAGE.read_text() == page
    for section, key, _ in FIELDS:
        assert f"`INFERSCALE_{section}__{key}`".upper() in page.upper()
