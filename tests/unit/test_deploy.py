"""The files below deploy/: they name processes, variables and secrets that exist, and deny what they say."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from memline.producers.cli.command_list import COMMANDS
from memline.producers.reports.metrics import METRICS
from memline.shared.config import environment
from memline.shared.queue.routes import PROCESSES

DEPLOY = Path(__file__).parents[2] / "deploy"

#: `${NAME}`, `${NAME:-default}` and `${NAME:?what is missing}`.
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def compose(name: str) -> dict[str, Any]:
    """Read a compose file as `docker compose` does, with NOTES alone set."""

    def value(match: re.Match[str]) -> str:
        return "/srv/notes" if match[1] == "NOTES" else match[3] if match[2] == "-" else f"({match[3]})"

    text = _VARIABLE.sub(value, (DEPLOY / name).read_text("utf-8"))
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def known_variables() -> set[str]:
    own = {text for name, text in vars(environment).items() if name.isupper() and isinstance(text, str)}
    secrets = {*sum(environment.PROVIDER_KEYS.values(), ()), environment.SERVE_TOKEN, environment.QUEUE_URL}
    return own | secrets | {f"{name}_FILE" for name in secrets}


def test_the_files_of_a_fleet_are_what_the_commands_print_for_all_processes() -> None:
    script = runpy.run_path(str(DEPLOY.parent / "scripts" / "fleet_files.py"))

    old = [path.name for path, text in script["files"]().items() if path.read_text("utf-8") != text]

    assert old == [], f"run: {script['REGENERATE']}"


def test_a_fleet_of_containers_has_every_process_and_a_redis_that_loses_nothing() -> None:
    file = compose("compose.fleet.yaml")
    redis = file["services"].pop("redis")

    assert {
        name: each["command"][: len(words)]
        for name, each in file["services"].items()
        for words in [PROCESSES[name]]
    } == PROCESSES
    assert "--maxmemory-policy noeviction" in redis["command"] and "--appendonly yes" in redis["command"]
    assert redis["healthcheck"]["test"] == ["CMD", "redis-cli", "ping"]
    # It has no password: only the fleet reaches it.
    assert redis["networks"] == ["queue"] and file["networks"]["queue"] == {"internal": True}
    for each in file["services"].values():
        assert each["depends_on"] == {"redis": {"condition": "service_healthy"}}
        assert set(each["secrets"]) == set(file["secrets"])


@pytest.mark.parametrize("name", ["compose.yaml", "compose.fleet.yaml"])
def test_containers_may_do_little_and_know_what_they_are_told(name: str) -> None:
    file = compose(name)

    for service, each in file["services"].items():
        assert each["read_only"] is True and each["cap_drop"] == ["ALL"], service
        assert each["security_opt"] == ["no-new-privileges:true"], service
        assert each["user"] in ("1000:1000", "redis"), service
        named = {volume.partition(":")[0] for volume in each["volumes"]}
        assert {volume for volume in named if not volume.startswith("/")} <= set(file["volumes"]), service
        if service == "redis":
            continue
        assert each["command"][0] in COMMANDS, service
        assert set(each["environment"]) <= known_variables(), service
        # What the check of the image looks at is there.
        assert each["tmpfs"] == ["/tmp"], service
        assert each["init"] is True, service


def test_only_those_that_write_notes_may() -> None:
    services = compose("compose.fleet.yaml")["services"]
    writers = {name for name, each in services.items() if "/srv/notes:/notes" in each["volumes"]}

    assert writers == {"flush", "api"}
    assert services["embed"]["volumes"] == []


def test_a_container_is_healthy_while_its_loop_goes_round() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8")

    assert f"{environment.ALIVE_FILE}=/tmp/memline.alive" in lines
    assert 'CMD ["sh", "-c", "test -n \\"$(find $MEMLINE_ALIVE_FILE -mmin -2)\\""]' in lines
    # Of both images that can be built, the last user is none with rights.
    for image in re.findall(r"^FROM run AS (\w+)\n(.*?)(?=^FROM|\Z)", lines, re.MULTILINE | re.DOTALL):
        assert re.findall(r"^USER (.*)", image[1], re.MULTILINE)[-1] == "1000:1000", image[0]


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboard() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "memline.json").read_text("utf-8"))[
        "panels"
    ]
    return panels


def test_every_alert_has_a_severity_and_a_test_that_fires_it() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text("utf-8"))["tests"]
    tried = [each for test in tests for each in test["alert_rule_test"]]
    named = {rule["alert"] for rule in alerts()}

    assert {each["alertname"] for each in tried if each.get("exp_alerts")} == named
    # In a fleet that works none of them fires.
    assert {each["alertname"] for each in tests[0]["alert_rule_test"] if "exp_alerts" not in each} == named
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]


def test_alerts_and_dashboard_cover_money_ceilings_breakers_and_jobs() -> None:
    read = {
        "alerts": " ".join(rule["expr"] for rule in alerts()),
        "dashboard": " ".join(target["expr"] for panel in dashboard() for target in panel["targets"]),
    }

    for kind, text in read.items():
        used = set(re.findall(r"memline_(\w+)", text))
        assert used <= METRICS.keys(), kind
        assert used >= {
            "spent_dollars",
            "spent_tokens",
            "spending_limit",
            "ceiling_reached",
            "provider_breaker",
            "jobs",
        }, kind
        assert used >= {"job_oldest_seconds", "job_texts_left", "job_files_left"}, kind


def test_panels_of_the_dashboard_lie_beside_each_other_and_are_explained() -> None:
    readme = (DEPLOY / "grafana" / "README.md").read_text("utf-8")
    taken: set[tuple[int, int]] = set()

    for panel in dashboard():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert f"| {panel['title']} |" in readme
    assert len({panel["id"] for panel in dashboard()}) == len(dashboard())
