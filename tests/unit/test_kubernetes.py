"""The objects of deploy/kubernetes: valid, denied what they do not need, and true to the code."""

import json
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from memline.producers.cli.command_list import COMMANDS
from memline.producers.reports.metrics import METRICS
from memline.shared.config.load import Options, load
from memline.shared.queue.routes import QUEUES
from tests.support.kustomize import Objects, rendered
from tests.unit.test_deploy import known_variables

ROOT = Path(__file__).parents[2]

#: The oldest release that is still looked after when this was written, and the newest whose schemas are here.
RELEASES = ("1.33.0", "1.37.0")

OVERLAYS = ("small", "fleet", "keda", "complete")

#: Kinds of operators, whose schemas are not here; their fields are looked at below.
FOREIGN = ("ScaledObject", "PodMonitor", "PrometheusRule")


@pytest.fixture(scope="module", params=OVERLAYS)
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Objects:
    return overlay(request.param, tmp_path_factory.mktemp("kubernetes"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    return overlay("keda", tmp_path_factory.mktemp("kubernetes"))


def overlay(name: str, folder: Path) -> Objects:
    """Render an overlay as an operator does who has written the secrets."""
    shutil.copytree(ROOT / "deploy" / "kubernetes", folder, dirs_exist_ok=True)
    for secret in ("openai_api_key", "serve_token"):
        (folder / "base" / "secrets" / secret).write_text("a-secret-of-tests")
    (folder / "overlays" / "fleet" / "secrets" / "queue_url").write_text("redis://:a-secret@redis:6379/0")
    return rendered(folder / "overlays" / name)


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """The template of the pods of each object that has some."""
    specs = [(name, each.get("spec", {})) for (_, name), each in objects.items()]
    found = [(name, spec.get("jobTemplate", {}).get("spec", spec).get("template")) for name, spec in specs]
    return {name: template for name, template in found if template}


def containers(objects: Objects) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for pod in pods(objects).values() for each in pod["spec"]["containers"]}


@cache
def validate(text: str, release: str) -> None:
    """Validate an object, which most overlays have as others do; and see that one with more is refused."""
    each = json.loads(text)
    kubernetes_validate.validate(each, release, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**each, "spek": {}}, release, strict=True)


@pytest.mark.parametrize("release", RELEASES)
def test_every_object_is_valid_for_kubernetes(objects: Objects, release: str) -> None:
    for (kind, name), each in objects.items():
        if kind not in FOREIGN:
            validate(json.dumps(each), release)
        assert each["metadata"].get("namespace") == ("memline" if kind != "Namespace" else None), name


def test_pods_may_do_what_the_strictest_standard_allows(objects: Objects) -> None:
    standard = objects["Namespace", "memline"]["metadata"]["labels"]
    assert standard["pod-security.kubernetes.io/enforce"] == "restricted"

    for pod in pods(objects).values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= each["resources"].keys()
            # A job has an end instead.
            assert {"startupProbe", "livenessProbe"} <= each.keys() or each["name"] == "backup"


def test_what_pods_refer_to_is_there(objects: Objects) -> None:
    for (_, name), each in objects.items():
        if not (pod := each.get("spec", {}).get("template")):
            continue
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        volumes |= {claim["metadata"]["name"]: {} for claim in each["spec"].get("volumeClaimTemplates", [])}
        for volume in volumes.values():
            assert "configMap" not in volume or ("ConfigMap", volume["configMap"]["name"]) in objects
            assert "secret" not in volume or ("Secret", volume["secret"]["secretName"]) in objects
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            for source in container.get("envFrom", []):
                assert ("ConfigMap", source["configMapRef"]["name"]) in objects
        assert each["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items(), name


def test_every_selector_finds_pods(objects: Objects) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(objects).values()]
    services = [each["spec"]["selector"] for (kind, _), each in objects.items() if kind == "Service"]
    chosen = [
        each["spec"].get("selector", each["spec"].get("podSelector"))
        for (kind, _), each in objects.items()
        if kind in ("PodDisruptionBudget", "NetworkPolicy")
    ]

    for wanted in (*services, *(each["matchLabels"] for each in chosen)):
        # The controller of a StatefulSet gives each pod this one.
        wanted.pop("statefulset.kubernetes.io/pod-name", None)
        assert any(wanted.items() <= each.items() for each in labels), wanted


def test_secrets_are_read_from_the_files_that_are_mounted(objects: Objects) -> None:
    told = objects["ConfigMap", "memline-environment"]["data"]
    secrets = objects["Secret", "memline-secrets"]["data"]

    assert told.keys() <= known_variables()
    files = {Path(text).name for name, text in told.items() if name.endswith("_FILE")}
    assert files == secrets.keys()
    for container in containers(objects).values():
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert container["name"] == "redis" or "/run/secrets/memline" in mounts


def test_the_configuration_is_one_and_names_the_service(objects: Objects, tmp_path: Path, home: Path) -> None:
    (tmp_path / "config.json5").write_text(objects["ConfigMap", "memline-config"]["data"]["config.json5"])
    loaded = load(Options(config=tmp_path / "config.json5"), {"HOME": str(home)})

    service = objects["Service", "memline"]["metadata"]
    assert loaded.warnings == ()
    assert f"{service['name']}.{service['namespace']}.svc" in loaded.settings.serve.allowed_hosts


def test_containers_run_commands_that_exist_in_the_image_of_this_release(objects: Objects) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

    for name, each in containers(objects).items():
        if name == "redis":
            continue
        assert each["image"] == f"memline:{version}"
        words = ["worker", name] if name in QUEUES else ["serve" if name == "api" else name]
        assert each["args"][: len(words)] == words and words[0] in COMMANDS
        alive = {"name": "MEMLINE_ALIVE_FILE", "value": f"/tmp/{name}.alive"}
        assert name == "backup" or alive in each["env"]


def test_a_fleet_has_every_process_and_only_embed_away_from_the_index(fleet: Objects) -> None:
    found = pods(fleet)
    beside = {each["name"] for each in found["memline"]["spec"]["containers"]}
    redis = containers(fleet)["redis"]["command"]

    assert beside == {*QUEUES, "api", "watch", "metrics"} - {"embed"}
    assert [each["name"] for each in found["embed"]["spec"]["containers"]] == ["embed"]
    assert fleet["StatefulSet", "memline"]["spec"]["replicas"] == 1
    assert "--maxmemory-policy noeviction" in redis[-1] and "--appendonly yes" in redis[-1]


def test_embed_workers_follow_the_backlog_and_its_age_by_metrics_that_exist(fleet: Objects) -> None:
    spec = fleet["ScaledObject", "embed"]["spec"]
    triggers = spec["triggers"]
    queries = " ".join(trigger["metadata"]["query"] for trigger in triggers)

    assert spec["scaleTargetRef"] == {"name": "embed"}
    assert "replicas" not in fleet["Deployment", "embed"]["spec"]
    assert [trigger["type"] for trigger in triggers] == ["prometheus", "prometheus"]
    named = set(re.findall(r"memline_(\w+)", queries))
    assert {"vectors", "queue_oldest_seconds"} <= named <= METRICS.keys()


def test_every_set_of_pods_has_a_service_without_an_address(objects: Objects) -> None:
    for (kind, _), each in objects.items():
        if kind == "StatefulSet":
            assert objects["Service", each["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"


def test_redis_asks_for_the_password_that_the_fleet_has(fleet: Objects, tmp_path: Path) -> None:
    """The line of the container, with the secret in its place, as a real redis-server reads it."""
    (tmp_path / "queue_url").write_text("redis://:a-secret@redis:6379/0")
    line = containers(fleet)["redis"]["command"][-1].replace("/run/secrets/memline", str(tmp_path))
    line, _, _ = line.partition("|\n")
    made = subprocess.run(["sh", "-c", line.split("| exec")[0]], capture_output=True, text=True, check=True)

    assert made.stdout == "requirepass a-secret"
    probe = containers(fleet)["redis"]["livenessProbe"]["exec"]["command"][-1]
    password = re.findall(r"REDISCLI_AUTH=\$\((.*?)\) redis-cli", probe)[0]
    read = subprocess.run(
        ["sh", "-c", password.replace("/run/secrets/memline", str(tmp_path))], capture_output=True, text=True
    )
    assert read.stdout == "a-secret"


def test_what_is_around_a_fleet_fits_it(tmp_path: Path) -> None:
    objects = overlay("complete", tmp_path)
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))
    pod = pods(objects)["memline"]
    ports = {port["name"] for each in pod["spec"]["containers"] for port in each.get("ports", ())}

    monitor = objects["PodMonitor", "memline"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    # `up{job="memline"}` of the alerts.
    assert pod["metadata"]["labels"][monitor["jobLabel"]] == "memline"
    assert objects["PrometheusRule", "memline"]["spec"] == alerts
    (rule,) = objects["Ingress", "memline"]["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = objects["Service", backend["name"]]["spec"]
    assert backend["port"]["name"] in {port["name"] for port in service["ports"]}
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pods(objects)["memline-backup"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert claims == ["data-memline-0", "memline-backup"]
    assert ("PersistentVolumeClaim", "memline-backup") in objects
