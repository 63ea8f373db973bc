"""The files below deploy/: they name processes, variables, metrics and findings that exist."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from memline.producers.cli.root import COMMANDS
from memline.producers.reports.metrics import METRICS
from memline.shared.config import environment
from memline.shared.queue.routes import QUEUES

DEPLOY = Path(__file__).parents[2] / "deploy"

#: `${NAME}`, `${NAME:-default}` and `${NAME:?what is missing}`.
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


@pytest.fixture
def services():
    """The services of compose.yaml as `docker compose` reads them, with NOTES alone set."""

    def value(match):
        return "/srv/notes" if match[1] == "NOTES" else match[3] if match[2] == "-" else f"({match[3]})"

    text = _VARIABLE.sub(value, (DEPLOY / "compose.yaml").read_text("utf-8"))
    read = yaml.safe_load(text)["services"]
    return read


def known_variables():
    own = {text for name, text in vars(environment).items() if name.isupper() and isinstance(text, str)}
    return own | {
        *sum(environment.PROVIDER_KEYS.values(), ()),
        environment.SERVE_TOKEN,
        environment.QUEUE_URL,
    }


def test_the_fleet_has_every_process_which_restart_and_a_redis_that_loses_nothing(
    services,
):
    procfile = yaml.safe_load((DEPLOY.parent / "Procfile").read_text("utf-8"))
    fleet = {name: each for name, each in services.items() if each["profiles"] == ["fleet"]}
    redis = fleet.pop("redis")

    assert {name: " ".join(["memline", *each["command"][:2]]) for name, each in fleet.items()} == {
        **procfile,
        "api": "memline serve --host",
    }
    assert "--maxmemory-policy noeviction" in redis["command"] and "--appendonly yes" in redis["command"]
    assert {each["restart"] for each in services.values()} == {"unless-stopped"}
    writers = {name for name, each in services.items() if "/srv/notes:/notes" in each["volumes"]}
    assert writers == {"watch", "api"}
    for name, each in {**fleet, "memline": services["memline"], "serve": services["serve"]}.items():
        assert each["command"][0] in COMMANDS, name
        assert set(each["environment"]) <= known_variables(), name


def test_every_container_and_unit_of_the_examples_is_a_command():
    text = (DEPLOY / "kubernetes.yaml").read_text("utf-8")
    pods = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(text)
        if "template" in each.get("spec", ())
    ]
    for each in (each for pod in pods for each in pod["containers"] if each["image"] == "memline"):
        command, *roles = each["args"]
        assert command in COMMANDS and (command != "worker" or set(roles) <= set(QUEUES)), each["args"]
    assert len(text.splitlines()) <= 150
    units = {path.name for path in (DEPLOY / "systemd").iterdir()}
    assert units == {"memline.service", "memline.target", "memline@.service"}


def test_alerts_and_the_scaler_read_metrics_that_exist():
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"]
    text = " ".join(rule["expr"] for rule in group["rules"]) + (DEPLOY / "kubernetes.yaml").read_text("utf-8")

    assert len(group["rules"]) == 6
    assert set(re.findall(r"\bmemline_(\w+)", text)) <= METRICS.keys()


def test_the_image_installs_every_dependency_at_a_version_that_was_tried():
    lines = (DEPLOY / "requirements.lock").read_text("utf-8").splitlines()[1:]
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in project["dependencies"]}

    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+", line) for line in lines), "no address, no range"
    assert wanted - {line.partition("==")[0].replace("_", "-") for line in lines} == set()
