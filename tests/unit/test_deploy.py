"""The files below deploy/: they name processes, variables and secrets that exist, and deny what they say."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from memline.producers.cli.command_list import COMMANDS
from memline.producers.reports.metrics import METRICS
from memline.shared.config import environment
from memline.shared.findings.table import AGENT, COMMON, rows

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


def test_a_fleet_of_containers_has_every_process_and_a_redis_that_loses_nothing() -> None:
    file = compose("compose.fleet.yaml")
    redis = file["services"].pop("redis")
    for name in ("metrics", "prometheus", "grafana"):
        assert file["services"].pop(name)["profiles"] == ["metrics"]

    procfile = yaml.safe_load((DEPLOY.parent / "Procfile").read_text("utf-8"))
    assert {name: " ".join(["memline", *each["command"][:2]]) for name, each in file["services"].items()} == {
        **procfile,
        "api": "memline serve --host",
    }
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
        assert each["user"] in ("1000:1000", "redis", "65534:65534", "472:0"), service
        # A container that grows is ended, and a log that grows is cut.
        assert each["mem_limit"] and each["pids_limit"] and each["logging"]["options"]["max-size"], service
        named = {volume.partition(":")[0] for volume in each["volumes"]}
        assert {volume for volume in named if not volume.startswith("/")} <= set(file["volumes"]), service
        if each["image"] not in ("memline", "${MEMLINE_IMAGE:-memline}"):
            assert re.search(r":v?\d", each["image"]), service
            continue
        assert each["command"][0] in COMMANDS, service
        assert set(each["environment"]) <= known_variables(), service
        # What the check of the image looks at is there.
        assert each["tmpfs"] == ["/tmp"], service
        assert each["init"] is True, service


@pytest.mark.parametrize("name", ["compose.yaml", "compose.fleet.yaml"])
def test_a_profile_has_prometheus_and_grafana_with_what_is_here(name: str) -> None:
    file = compose(name)
    services, configs = file["services"], file["configs"]

    assert {name for name, each in services.items() if each.get("profiles") == ["metrics"]} == {
        "metrics",
        "prometheus",
        "grafana",
    }
    for each in services.values():
        assert {config["source"] for config in each.get("configs", ())} <= configs.keys()
    assert all((DEPLOY / each["file"]).is_file() for each in configs.values() if "file" in each)
    scraped = yaml.safe_load(configs["prometheus"]["content"])
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": ["metrics:9464"]}]
    if "networks" in file:
        # Prometheus reaches the metrics, and not Redis.
        assert "outside" in services["metrics"]["networks"]
        assert services["prometheus"]["networks"] == services["grafana"]["networks"] == ["outside"]
    (source,) = yaml.safe_load(configs["datasource"]["content"])["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_only_those_that_write_notes_may() -> None:
    services = compose("compose.fleet.yaml")["services"]
    writers = {name for name, each in services.items() if "/srv/notes:/notes" in each["volumes"]}

    assert writers == {"watch", "api"}
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


def test_every_alert_leads_to_a_section_that_is_there() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text("utf-8"))["tests"]
    tried = [each for test in tests for each in test["alert_rule_test"]]
    shown = [alert["exp_annotations"] for each in tried for alert in each.get("exp_alerts", ())]

    for rule in alerts():
        link = rule["annotations"]["runbook_url"]
        assert link.startswith('{{ or $externalLabels.docs_base "docs" }}/'), rule["alert"]
    for url in {each["runbook_url"] for each in shown}:
        name, _, section = url.partition("#")
        text = (DEPLOY.parent / name).read_text("utf-8")
        titles = re.findall(r"^#+ (.*)", text, re.MULTILINE)
        assert section in ["", *(title.lower().replace(" ", "-") for title in titles)], url


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool: Debian's prometheus has it"
)
@pytest.mark.parametrize(
    "words",
    ["check config prometheus.yml", "check rules alerts.yml", "test rules alerts_test.yml"],
)
def test_prometheus_takes_the_alerts_and_they_fire_when_they_should(words: str) -> None:
    ran = subprocess.run(
        ["promtool", *words.split()], cwd=DEPLOY / "prometheus", capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_unit_and_every_overlay_is_checked() -> None:
    script = (DEPLOY.parent / "scripts" / "check_deploy.sh").read_text("utf-8")
    units = {path.name for path in (DEPLOY / "systemd").glob("memline*")}

    assert {name for name in units if f"$units/{name}" in script} == units
    (overlays,) = re.findall(r"for overlay in (.*); do", script)
    assert set(overlays.split()) == {path.name for path in (DEPLOY / "kubernetes" / "overlays").iterdir()}


def test_alerts_and_dashboard_cover_money_ceilings_breakers_and_jobs() -> None:
    read = {
        "alerts": " ".join(rule["expr"] for rule in alerts()),
        "dashboard": " ".join(target["expr"] for panel in dashboard() for target in panel["targets"]),
    }

    for kind, text in read.items():
        # Prometheus adds an end to the series of a histogram.
        used = set(re.findall(r"memline_(\w+?)(?:(?<=_seconds)_(?:bucket|count|sum))?\b", text))
        assert used <= METRICS.keys(), kind
        assert used >= {"spent_dollars", "spent_tokens", "spending_limit"}, kind
        # What is wrong is the matter of findings; a dashboard shows what they are made of.
        more = {"ceiling_reached", "provider_breaker", "jobs"} if kind == "dashboard" else {"finding"}
        assert used >= more, kind
        assert used >= {"job_oldest_seconds", "job_texts_left", "job_files_left"}, kind


def test_an_alert_names_findings_of_the_table() -> None:
    named = re.findall(r'code!?=~?"([^"]+)"', " ".join(rule["expr"] for rule in alerts()))
    codes = {code for each in named for code in each.split("|")}

    assert codes and codes <= {row.code for kind in (AGENT, COMMON) for row in rows(kind)}


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


def test_the_image_installs_every_dependency_at_a_version_that_was_tried() -> None:
    lines = (DEPLOY / "requirements.lock").read_text("utf-8").splitlines()[1:]
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in project["dependencies"]}

    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+", line) for line in lines), "no address, no range"
    assert wanted - {line.partition("==")[0].replace("_", "-") for line in lines} == set()
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    installs = re.findall(r"pip install .*", text)
    assert len(installs) == 3 and all(
        "-r requirements.lock" in each or "-c requirements.lock" in each for each in installs
    )
    # That of the image is as new as its Python.
    assert not any(line.startswith("pip==") for line in lines)
    # The dependencies first: a change of the code leaves their layer.
    assert text.index("-r requirements.lock") < text.index("COPY memline memline")
    assert "!deploy/requirements.lock" in (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8")
    release = (DEPLOY.parent / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert re.search(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim", release)
    assert all(f"{name}=" in release for name in ("VERSION", "SOURCE", "REVISION"))


def test_what_is_built_is_what_is_pushed_and_of_this_version() -> None:
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    pages = [path.read_text("utf-8") for path in (*DEPLOY.rglob("*.md"), DEPLOY / "Dockerfile")]
    named = [each for text in pages for each in re.findall(r"(?:/memline:|VERSION=)(\d[\w.]*)", text)]

    assert named and set(named) == {version}
