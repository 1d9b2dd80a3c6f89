from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import HelmError
from helm_python.chart import Chart, lint

from inferscale_core.settings import Settings
from inferscale_core.store import JobState
from inferscale_core.telemetry import names
from scripts import generate_chart_files

from .conftest import CHART, Manifest, Render

EXAMPLES = sorted((CHART.parent / "examples").glob("*.yaml"))
NOT_OURS = {"POD_NAME", "HOME", "HF_HOME", "HF_TOKEN"}


def test_defaults_render_two_controls_and_one_gpu_worker_and_nothing_else(render: Render) -> None:
    found = render(None)
    assert set(found) == {
        ("ServiceAccount", ""),
        ("Job", "migrations"),
        ("Deployment", "control"),
        ("Service", "control"),
        ("PodDisruptionBudget", "control"),
        ("NetworkPolicy", "control"),
        ("StatefulSet", "worker-main"),
        ("Service", "worker-main"),
        ("PodDisruptionBudget", "worker-main"),
        ("NetworkPolicy", "workers"),
    }
    control, worker = found["Deployment", "control"], found["StatefulSet", "worker-main"]
    assert control["spec"]["replicas"] == 2
    assert worker["spec"]["replicas"] == 1
    assert container(control)["image"] == "inferscale/control:0.1.0"
    assert container(worker)["image"] == "inferscale/worker:0.1.0"
    assert container(worker)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert variables(control) == {
        "INFERSCALE_CONTROL__LISTEN": "0.0.0.0:7700",
        "INFERSCALE_DATABASE__URL": "inferscale-database/url",
        "INFERSCALE_CONTROL__INTERNAL_TOKEN": "inferscale-tokens/internal",
        "INFERSCALE_CONTROL__OPERATOR_TOKEN": "inferscale-tokens/operator",
    }
    assert variables(worker) == {
        "POD_NAME": "metadata.name",
        "INFERSCALE_WORKER__WORKER_ID": "$(POD_NAME)",
        "INFERSCALE_WORKER__LISTEN": "0.0.0.0:7710",
        "INFERSCALE_WORKER__ADVERTISE": ("$(POD_NAME).memory-inferscale-worker-main.team.svc:7710"),
        "INFERSCALE_WORKER__CONTROL": "memory-inferscale-control.team.svc:7700",
        "INFERSCALE_WORKER__INTERNAL_TOKEN": "inferscale-tokens/internal",
        "INFERSCALE_ENGINE__MODEL": "Qwen/Qwen2.5-7B-Instruct",
        "HOME": "/cache",
        "HF_HOME": "/cache/huggingface",
    }


def test_lint_finds_nothing_but_the_missing_icon() -> None:
    messages = lint(CHART, strict=True, kube_version="v1.34.0")["messages"]
    assert [message["error"] for message in messages] == ["icon is recommended"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_renders_as_committed(chart: Chart, path: Path) -> None:
    committed = (path.parent / "rendered" / path.name).read_text()
    assert generate_chart_files.render(chart, path) == committed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_accepted_by_the_schemas_of_kubernetes(render: Render, path: Path) -> None:
    manifests = render(yaml.safe_load(path.read_text()))
    assert manifests
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_the_schema_of_the_settings_is_generated_from_the_settings() -> None:
    assert generate_chart_files.SCHEMA.read_text() == generate_chart_files.schema()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_variable_is_a_setting(render: Render, path: Path) -> None:
    settings = setting_variables()
    for manifest in render(yaml.safe_load(path.read_text())).values():
        for name in variables(manifest):
            assert name in settings | NOT_OURS


def test_every_value_has_a_comment_and_a_schema_entry(chart: Chart) -> None:
    schema = chart.schema
    assert schema is not None
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        is_value = re.match(r" *(\w+): *\S", line)
        if is_value and is_value[1] not in ("requests", "limits"):
            assert lines[number - 1].lstrip().startswith("#"), f"line {number + 1} has no comment"
    for path in paths_of(chart.values):
        assert has_entry(schema, schema, path), f"{'.'.join(path)} is not in values.schema.json"


def test_a_setting_of_a_pool_reaches_that_pool_alone(render: Render) -> None:
    pools = {"main": {}, "large": {"settings": {"engine": {"arena_bytes": 17179869184}}}}
    found = render({"workerPools": pools})
    large = variables(found["StatefulSet", "worker-large"])
    assert large["INFERSCALE_ENGINE__ARENA_BYTES"] == "17179869184"
    assert "INFERSCALE_ENGINE__ARENA_BYTES" not in variables(found["StatefulSet", "worker-main"])


def test_a_pool_may_have_bytes_of_arena_where_the_others_have_a_share(render: Render) -> None:
    shared = {"settings": {"engine": {"model": "m", "arena_share": 0.8}}}
    own = {"settings": {"engine": {"arena_share": None, "arena_bytes": 17179869184}}}
    found = render({"worker": shared, "workerPools": {"main": {}, "large": own}})
    sizes = {
        name: {key: value for key, value in variables(manifest).items() if "__ARENA_" in key}
        for (kind, name), manifest in found.items()
        if kind == "StatefulSet"
    }
    assert sizes == {
        "worker-main": {"INFERSCALE_ENGINE__ARENA_SHARE": "0.8"},
        "worker-large": {"INFERSCALE_ENGINE__ARENA_BYTES": "17179869184"},
    }


def test_shared_settings_reach_migrations_control_and_workers_alike(render: Render) -> None:
    found = render({"settings": {"embedder": {"model": "some/embedder", "dimension": 768}}})
    job, control = found["Job", "migrations"], found["Deployment", "control"]
    for part in (job, control, found["StatefulSet", "worker-main"]):
        assert variables(part)["INFERSCALE_EMBEDDER__MODEL"] == "some/embedder"
        assert variables(part)["INFERSCALE_EMBEDDER__DIMENSION"] == "768"


def test_values_keep_their_type_when_they_become_text(render: Render) -> None:
    engine = {"model": "m", "enforce_eager": True, "gpu_memory_utilization": 0.5}
    engine["max_model_len"] = None
    worker = render({"worker": {"settings": {"engine": engine}}})["StatefulSet", "worker-main"]
    found = variables(worker)
    assert found["INFERSCALE_ENGINE__ENFORCE_EAGER"] == "true"
    assert found["INFERSCALE_ENGINE__GPU_MEMORY_UTILIZATION"] == "0.5"
    assert "INFERSCALE_ENGINE__MAX_MODEL_LEN" not in found


@pytest.mark.parametrize(("grace_s", "waits_s"), [(0, 15), (45, 60), (20.5, 36)])
def test_kubernetes_waits_longer_than_the_grace_of_open_calls(
    render: Render, grace_s: float, waits_s: int
) -> None:
    found = render(
        {
            "control": {"settings": {"control": {"grace_s": grace_s}}},
            "worker": {"settings": {"worker": {"grace_s": grace_s}}},
        }
    )
    for part in (found["Deployment", "control"], found["StatefulSet", "worker-main"]):
        assert part["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == waits_s


def test_ready_means_that_the_grpc_health_service_says_so(render: Render) -> None:
    found = render(None)
    ports = {("Deployment", "control"): 7700, ("StatefulSet", "worker-main"): 7710}
    for key, port in ports.items():
        assert container(found[key])["readinessProbe"]["grpc"]["port"] == port
        assert container(found[key])["startupProbe"]["grpc"]["port"] == port


def test_only_control_reaches_workers_of_every_pool(render: Render) -> None:
    found = render({"workerPools": {"main": {}, "large": {}}})
    policy = found["NetworkPolicy", "workers"]["spec"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    control = found["Deployment", "control"]["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= control.items()
    for pool in ("main", "large"):
        pod = found["StatefulSet", f"worker-{pool}"]["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= pod.items()
        assert not peer["podSelector"]["matchLabels"].items() <= pod.items()


def test_workers_still_reach_control_when_its_clients_are_named(render: Render) -> None:
    clients = [{"namespaceSelector": {"matchLabels": {"team": "apps"}}}]
    found = render({"networkPolicy": {"clients": clients}})
    (rule,) = found["NetworkPolicy", "control"]["spec"]["ingress"]
    worker = found["StatefulSet", "worker-main"]["spec"]["template"]["metadata"]["labels"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= worker.items()
    assert rule["from"][1:] == clients


def test_no_worker_sees_the_database_and_only_migrations_see_its_owner(render: Render) -> None:
    found = render({"database": {"listenUrlKey": "direct"}})
    holders = {
        (kind, name): {key for key in variables(manifest) if "DATABASE" in key}
        for (kind, name), manifest in found.items()
    }
    assert holders["StatefulSet", "worker-main"] == set()
    assert holders["Deployment", "control"] == {
        "INFERSCALE_DATABASE__URL",
        "INFERSCALE_DATABASE__LISTEN_URL",
    }
    assert "INFERSCALE_DATABASE__ADMIN_URL" in holders["Job", "migrations"]


def test_migrations_run_before_an_upgrade_and_need_nothing_of_the_release(render: Render) -> None:
    job = render(None)["Job", "migrations"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert container(job)["args"] == ["migrate"]
    assert "serviceAccountName" not in job["spec"]["template"]["spec"]


def test_a_disk_tier_lies_on_a_volume_that_outlives_the_pod(render: Render) -> None:
    pools = {"main": {"disk": {"size": "200Gi"}, "modelCache": {"size": ""}}, "other": {}}
    found = render({"workerPools": pools})
    with_disk, without = found["StatefulSet", "worker-main"], found["StatefulSet", "worker-other"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(with_disk)["volumeMounts"]}
    assert variables(with_disk)["INFERSCALE_ENGINE__DISK_DIR"] == mounts["disk"]
    [claim] = with_disk["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "disk"
    assert claim["spec"]["resources"]["requests"]["storage"] == "200Gi"
    assert "INFERSCALE_ENGINE__DISK_DIR" not in variables(without)
    [claim] = without["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "cache"


def test_a_disk_tier_may_fill_its_volume(render: Render) -> None:
    found = render({"worker": {"disk": {"size": "64Gi"}}})
    assert "INFERSCALE_ENGINE__DISK_DIR" in variables(found["StatefulSet", "worker-main"])


def test_the_chart_knows_the_default_bound_of_a_disk_tier() -> None:
    bound = Settings().engine.disk_bytes
    assert f"default {bound} " in (CHART / "templates" / "validate.yaml").read_text()


ALERTING = {
    "settings": {"telemetry": {"otlp_endpoint": "http://collector:4317"}},
    "worker": {"settings": {"worker": {"shadow_share": 0.01}}},
}


def test_alert_rules_are_the_same_for_an_operator_and_in_a_file(render: Render) -> None:
    labels = {"release": "prometheus"}
    found = {
        kind: render({**ALERTING, "alerts": {"enabled": True, "kind": kind, "labels": labels}})
        for kind in ("PrometheusRule", "ConfigMap")
    }
    rule = found["PrometheusRule"]["PrometheusRule", "alerts"]
    file = found["ConfigMap"]["ConfigMap", "alerts"]
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["spec"] == yaml.safe_load(file["data"]["inferscale.rules.yaml"])
    assert labels.items() <= rule["metadata"]["labels"].items()
    jobs, shadow = rule["spec"]["groups"]
    for alert in (*jobs["rules"], *shadow["rules"]):
        assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", alert["for"])


def test_alert_rules_ask_for_metrics_and_labels_that_workers_export(render: Render) -> None:
    """As Prometheus names them: dots become `_`, counters end in `_total`."""
    rule = render({**ALERTING, "alerts": {"enabled": True}})["PrometheusRule", "alerts"]
    kl, checks = (name.replace(".", "_") for name in (names.SHADOW_KL, names.SHADOW_CHECKS))
    labels = {name.replace(".", "_") for name in (names.MODEL, names.RECIPE, names.OUTCOME)}
    known = {f"{kl}_sum", f"{kl}_count", f"{checks}_total"} | labels
    _check_names(rule, "inferscale-shadow", known, by=["inferscale_model", "inferscale_recipe"])
    jobs, task, state = (
        name.replace(".", "_") for name in (names.QUEUE_JOBS, names.TASK, names.STATE)
    )
    _check_names(rule, "inferscale-jobs", {jobs, task, state}, by=[task])


def _check_names(rule: Any, name: str, known: set[str], *, by: list[str]) -> None:
    [group] = (group for group in rule["spec"]["groups"] if group["name"] == name)
    for alert in group["rules"]:
        expression = alert["expr"]
        assert set(re.findall(r"inferscale_\w+", expression)) <= known
        assert expression.count("(") == expression.count(")")
        assert f"by ({', '.join(by)})" in expression
        in_texts = re.findall(r"\$labels\.(\w+)", str(alert["annotations"]))
        assert set(in_texts) == set(by)


def test_alerts_on_jobs_name_states_that_jobs_have(render: Render) -> None:
    rule = render({**ALERTING, "alerts": {"enabled": True}})["PrometheusRule", "alerts"]
    states = re.findall(f'{names.STATE.replace(".", "_")}="(\\w+)"', str(rule))
    assert states
    assert set(states) <= set(JobState)


def test_without_sampled_chats_there_are_alerts_on_jobs_alone(render: Render) -> None:
    settings = {"settings": ALERTING["settings"]}
    rule = render({**settings, "alerts": {"enabled": True}})["PrometheusRule", "alerts"]
    assert [group["name"] for group in rule["spec"]["groups"]] == ["inferscale-jobs"]


def test_limits_of_alerts_are_values(render: Render) -> None:
    limits = {"maxDivergence": 0.12, "minAgreement": 0.65, "minChecks": 7}
    found = render({**ALERTING, "alerts": {"enabled": True, "shadow": limits}})
    divergence, disagreement, _ = found["PrometheusRule", "alerts"]["spec"]["groups"][1]["rules"]
    assert "> 0.12\n" in divergence["expr"]
    assert "< 0.65\n" in disagreement["expr"]
    assert divergence["expr"].endswith(">= 7")


def test_a_digest_wins_over_a_tag(render: Render) -> None:
    digest = f"sha256:{'0' * 64}"
    found = render({"image": {"control": {"tag": "1", "digest": digest}}})
    assert container(found["Deployment", "control"])["image"] == f"inferscale/control@{digest}"


def test_a_pool_is_removed_by_null(render: Render) -> None:
    found = render({"workerPools": {"main": None, "other": {}}})
    assert [name for kind, name in found if kind == "StatefulSet"] == ["worker-other"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"database": {"existingSecret": ""}}, "create a secret with the database's URLs"),
        ({"tokens": {"existingSecret": ""}}, "create a secret with the shared secret"),
        ({"workerPools": {"main": None}}, "no worker would answer Chat; name at least one pool"),
        ({"workerPools": {"Big_Model": {}}}, "a pool's name has 1 to 20 lower-case letters"),
        ({"image": {"worker": {"tag": "latest"}}}, 'image.worker.tag is "latest": name a version'),
        (
            {"worker": {"settings": {"engine": {"model": "packaged"}}}},
            "workerPools.main: settings.engine.model names no model",
        ),
        (
            {"control": {"settings": {"database": {"url": "postgresql://u:p@h/d"}}}},
            "control.settings.database.url is a secret: name it under database; remove it.",
        ),
        (
            {"workerPools": {"main": {"settings": {"worker": {"advertise": "me:1"}}}}},
            "workerPools.main.settings.worker.advertise is set by the chart",
        ),
        (
            {"worker": {"settings": {"recipe": {"name": "window-50"}}}},
            "worker.settings.recipe: control and workers must agree on it",
        ),
        ({"control": {"replicas": 2, "maxUnavailable": 3}}, "a node drain could take them all"),
        (
            {
                "worker": {
                    "gpu": {"enabled": False},
                    "settings": {"engine": {"model": "m", "tensor_parallel_size": 2}},
                }
            },
            "tensor_parallel_size is 2 but gpu.enabled is false",
        ),
        (
            {
                "worker": {"settings": {"engine": {"model": "m", "arena_share": 0.8}}},
                "workerPools": {"main": {"settings": {"engine": {"arena_bytes": 17179869184}}}},
            },
            "workerPools.main: settings.engine has arena_bytes and arena_share",
        ),
        (
            {
                "worker": {
                    "gpu": {"enabled": False},
                    "settings": {"engine": {"model": "m", "arena_share": 0.8}},
                }
            },
            "engine.arena_share is a share of a GPU's memory but gpu.enabled is false",
        ),
        (
            {"worker": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
            "the chart asks for engine.tensor_parallel_size of them itself",
        ),
        (
            {
                "alerts": {"enabled": True},
                "worker": {"settings": {"worker": {"shadow_share": 0.5}, "engine": {"model": "m"}}},
            },
            "settings.telemetry.otlp_endpoint is empty",
        ),
        (
            {"worker": {"modelCache": {"size": "", "storageClassName": "fast"}}},
            "modelCache.size is empty; give a size or remove the class",
        ),
        (
            {"worker": {"disk": {"storageClassName": "fast"}}},
            "disk.size is empty; give a size or remove the class",
        ),
        (
            {"worker": {"settings": {"engine": {"model": "m", "disk_bytes": 1 << 30}}}},
            "disk.size is empty; give a size or remove the bound",
        ),
        (
            {"worker": {"disk": {"size": "63Gi"}}},
            "lets each of 1 ranks take 68719476736 bytes; enlarge the volume or lower the bound",
        ),
        (
            {
                "worker": {
                    "disk": {"size": "10Gi"},
                    "settings": {
                        "engine": {"model": "m", "disk_bytes": 6 << 30, "tensor_parallel_size": 2}
                    },
                }
            },
            "lets each of 2 ranks take 6442450944 bytes",
        ),
        (
            {"worker": {"settings": {"engine": {"model": "m", "disk_dir": "/somewhere"}}}},
            "engine.disk_dir is set by the chart: give worker.disk.size; remove it.",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_with_a_sentence(
    render: Render, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(HelmError, match=re.escape(sentence)):
        render(values)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"worker": {"settings": {"engine": {"gpu_memory_utilisation": 0.5}}}}, "engine"),
        ({"control": {"settings": {"control": {"lease_s": 0}}}}, "lease_s"),
        ({"control": {"replicas": 0}}, "replicas"),
        ({"databse": {}}, "databse"),
    ],
)
def test_a_misspelt_or_impossible_value_is_refused_by_the_schema(
    chart: Chart, values: dict[str, Any], place: str
) -> None:
    with pytest.raises(HelmError, match=place):
        chart.validate_schema(values)
    with pytest.raises(HelmError, match=place):
        chart.render(values, name="memory")


def container(manifest: Manifest) -> Manifest:
    (only,) = manifest["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def variables(manifest: Manifest) -> dict[str, str]:
    """A pod's environment: values, `secret/key`, or the field that a value is taken from."""
    if "template" not in manifest.get("spec", {}):
        return {}
    found: dict[str, str] = {}
    for entry in container(manifest).get("env", []):
        source = entry.get("valueFrom", {})
        secret = source.get("secretKeyRef")
        assert entry["name"] not in found, f"{entry['name']} is set twice"
        if secret:
            found[entry["name"]] = f"{secret['name']}/{secret['key']}"
        else:
            found[entry["name"]] = entry.get("value") or source["fieldRef"]["fieldPath"]
    return found


def setting_variables() -> set[str]:
    return {
        f"INFERSCALE_{section}__{field}".upper()
        for section, entry in Settings.model_fields.items()
        for field in entry.annotation.model_fields  # type: ignore[union-attr]
    }


def paths_of(values: dict[str, Any], front: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in values.items():
        path = (*front, key)
        found.append(path)
        if isinstance(value, dict) and key not in ("requests", "limits"):
            found += paths_of(value, path)
    return found


def has_entry(document: dict[str, Any], schema: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether `path` is declared by name: an open `additionalProperties` does not count."""
    while "$ref" in schema:
        target = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        schema = target
    if not path:
        return True
    if path[0] in schema.get("properties", {}):
        return has_entry(document, schema["properties"][path[0]], path[1:])
    named_by_user = schema.get("additionalProperties")
    return isinstance(named_by_user, dict)


def test_with_a_secret_every_server_and_every_call_uses_tls(render: Render) -> None:
    found = render({"tls": {"existingSecret": "certificates"}})
    control, worker = found["Deployment", "control"], found["StatefulSet", "worker-main"]
    for part, health in ((control, 7701), (worker, 7711)):
        settings, pod = variables(part), part["spec"]["template"]["spec"]
        Settings.model_fields["tls"].annotation.model_validate(  # type: ignore[union-attr]
            {
                name.removeprefix("INFERSCALE_TLS__").lower(): value
                for name, value in settings.items()
                if name.startswith("INFERSCALE_TLS__")
            }
        )
        files = {v for n, v in settings.items() if n.endswith(("CERT_FILE", "KEY_FILE", "CA_FILE"))}
        assert files == {"/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt"}
        [mount] = (m for m in container(part)["volumeMounts"] if m["name"] == "tls")
        assert mount == {"name": "tls", "mountPath": "/tls", "readOnly": True}
        [volume] = (v for v in pod["volumes"] if v["name"] == "tls")
        assert volume["secret"]["secretName"] == "certificates"
        assert settings["INFERSCALE_TLS__HEALTH_LISTEN"] == f"0.0.0.0:{health}"
        for probe in ("startupProbe", "readinessProbe"):
            assert container(part)[probe]["grpc"] == {"port": health}
    # Nobody but control calls a worker, and control has a certificate.
    assert "INFERSCALE_TLS__CLIENT_CA_FILE" in variables(worker)
    assert "INFERSCALE_TLS__CLIENT_CA_FILE" not in variables(control)


def test_callers_of_control_may_have_to_show_a_certificate(render: Render) -> None:
    tls = {"existingSecret": "certificates", "requireClientCertificates": True}
    control = render({"tls": tls})["Deployment", "control"]
    assert variables(control)["INFERSCALE_TLS__CLIENT_CA_FILE"] == "/tls/ca.crt"


def test_without_a_secret_nothing_of_tls_is_set(render: Render) -> None:
    found = render({})
    for part in (found["Deployment", "control"], found["StatefulSet", "worker-main"]):
        assert not [name for name in variables(part) if name.startswith("INFERSCALE_TLS__")]
