"""The Helm chart as helm renders it: its schema, its configuration, its pods, and the plain manifests made from it."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import chart
import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from helm.chart_values import RENDERINGS, SHA, WRONG
from real.helm import CHART, HelmError, helm, rendered

from cli.config.server import load_settings
from cli.main import foreshock

TEXT = {"type": "string"}


def fields(**known: object) -> dict[str, Any]:
    """The schema of an object that has these fields and no others."""
    return {"type": "object", "additionalProperties": False, "properties": known}


# The Prometheus operator is not at hand: of its API (monitoring.coreos.com/v1), the fields that the chart sets.
AUTHORITY = fields(serverName=TEXT, ca=fields(configMap=fields(name=TEXT, key=TEXT)))
SOURCES = {"type": "array", "items": TEXT}
RELABELINGS = {"type": "array", "items": fields(sourceLabels=SOURCES, targetLabel=TEXT, replacement=TEXT)}
LABELS = fields(matchLabels={"type": "object", "additionalProperties": TEXT})
SERVED = fields(port=TEXT, path=TEXT, interval=TEXT, scheme=TEXT, tlsConfig=AUTHORITY, relabelings=RELABELINGS)
MONITORS = {
    "ServiceMonitor": fields(selector=LABELS, endpoints={"type": "array", "items": SERVED}),
    "PodMonitor": fields(
        selector=LABELS,
        podMetricsEndpoints={
            "type": "array",
            "items": fields(port=TEXT, path=TEXT, interval=TEXT, relabelings=RELABELINGS),
        },
    ),
}
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
pytestmark = pytest.mark.integration


@cache
def objects(name: str) -> list[dict[str, Any]]:
    """The objects of a rendering."""
    return [one for one in yaml.safe_load_all(rendered(RENDERINGS[name])) if one]


def pods(name: str) -> Iterator[dict[str, Any]]:
    """The pods' specifications of a rendering."""
    for one in objects(name):
        if one["kind"] in ("Deployment", "DaemonSet"):
            yield one["spec"]["template"]["spec"]


def test_helm_finds_no_fault() -> None:
    """Warnings are faults, too; an icon is no need."""
    said = helm("lint", "--strict", CHART)
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert [line for line in said.splitlines() if line.startswith("[") and "icon is recommended" not in line] == []


@pytest.mark.parametrize("name", RENDERINGS)
def test_the_schema_takes_each_way(name: str) -> None:
    """By a second reader of schemas, beside helm's own."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate({**DEFAULTS, **RENDERINGS[name]}, SCHEMA, jsonschema.Draft7Validator)


@pytest.mark.parametrize("place", WRONG)
def test_a_value_that_cannot_be_is_refused(place: str) -> None:
    """By its place: by helm and by the other reader."""
    with pytest.raises(HelmError, match=f"at '{place}'"):
        rendered(WRONG[place])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(WRONG[place], SCHEMA, jsonschema.Draft7Validator)


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    """No value is read that a site cannot set."""

    def names(schema: dict[str, Any], values: dict[str, Any], place: str) -> Iterator[str]:
        known = schema.get("properties", {})
        yield from (f"{place}.{name}" for name in known.keys() ^ values.keys())
        for name in known.keys() & values.keys():
            if known[name].get("additionalProperties") is False and name != "resources":
                yield from names(known[name], values[name], f"{place}.{name}")

    assert set(names(SCHEMA, DEFAULTS, "")) == {".global"}, "helm's own"


@pytest.mark.parametrize("name", RENDERINGS)
def test_the_server_reads_its_configuration(name: str, tmp_path: Path) -> None:
    """But for the token of the default values, which the site puts there."""
    (config,) = [one for one in objects(name) if one["kind"] == "ConfigMap"]
    text = config["data"]["foreshock.yaml"].replace("PUT-THE-SHA-256-OF-YOUR-OWN-TOKEN-HERE", SHA)
    (tmp_path / "ops").write_text("whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ=\n")
    (tmp_path / "c.yaml").write_text(text.replace("/run/secrets/site-webhooks", str(tmp_path)))
    settings = load_settings(tmp_path / "c.yaml", {})
    assert settings.mode == ("act" if name == "every option" else "shadow")
    assert len(settings.actuators) == 1
    assert (SHA in text) == bool(RENDERINGS[name].get("dashboard", {}).get("tokenSha256", name != "least"))


@pytest.mark.parametrize("name", RENDERINGS)
def test_each_option_of_a_container_is_one_of_the_program(name: str) -> None:
    """And every mount has its volume."""
    for pod in pods(name):
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod.get("initContainers", []) + pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            words = container.get("args", [])
            depth = 2 if words[:1] == ["db"] else 1
            told = CliRunner().invoke(foreshock, [*words[:depth], "--help"]).output if words else ""
            options = [word.split("=")[0] for word in words if word.startswith("--")]
            assert [option for option in options if f"{option} " not in told] == []


def test_a_site_s_further_secrets_are_where_its_configuration_names_them() -> None:
    """Of what reads it; the sidecars have their own, and the server may ask clients for certificates."""
    (config,) = [one["data"]["foreshock.yaml"] for one in objects("every option") if one["kind"] == "ConfigMap"]
    named = set(re.findall(r"/run/secrets/[^/\s]+", config))
    assert named >= {"/run/secrets/site-webhooks", "/run/secrets/foreshock-clients"}
    assert yaml.safe_load(config)["tls"]["client"] == "optional", "kubelets show no certificate to what they probe"
    for pod in pods("every option"):
        (container,) = pod["containers"]
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        secrets = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
        if container["name"] == "sidecar":
            assert mounts.keys() & {*named, "/run/secrets/scrape-tokens"} == {"/run/secrets/scrape-tokens"}
            continue
        further = {"/run/secrets/site-webhooks", "/run/secrets/site.chat", "/run/secrets/foreshock-clients"}
        assert mounts.keys() >= further, container["name"]
        found = {secrets[mounts[path]["name"]]["secretName"] for path in further}
        assert found == {"site-webhooks", "site.chat", "nodes-ca"}
        assert all(secret["defaultMode"] == 0o440 for secret in secrets.values())


@pytest.mark.parametrize("name", RENDERINGS)
def test_only_the_sidecar_needs_a_namespace_that_lets_everything_in(name: str) -> None:
    """Its volumes are of the host, which Pod Security's `baseline` refuses; all others pass `restricted`."""
    harmless = {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
    for pod in pods(name):
        kinds = {key for volume in pod["volumes"] for key in volume if key != "name"}
        assert ("hostPath" in kinds) == (pod["containers"][0]["name"] == "sidecar")
        if "hostPath" not in kinds:
            assert kinds <= harmless
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


@pytest.mark.parametrize("sidecar", [True, False])
def test_the_namespace_says_what_its_pods_need(sidecar: bool) -> None:
    """As the page says it, where helm does not make it."""
    made = yaml.safe_load_all(rendered({"namespace": {"create": True}, "sidecar": {"enabled": sidecar}}))
    (namespace,) = [one for one in made if one and one["kind"] == "Namespace"]
    label = {"pod-security.kubernetes.io/enforce": "privileged"}
    assert namespace["metadata"].get("labels") == (label if sidecar else None)
    page = (Path(__file__).parents[2] / "docs/install-kubernetes.md").read_text(encoding="utf-8")
    assert "kubectl label namespace foreshock pod-security.kubernetes.io/enforce=privileged" in page


@pytest.mark.parametrize("name", RENDERINGS)
def test_no_container_may_more_than_it_must(name: str) -> None:
    """No root but to hand over one folder, no writable root, no capability; each long-lived one has a probe."""
    for pod in pods(name):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 65532
        for container in pod.get("initContainers", []) + pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert context["capabilities"].get("add", []) == (["CHOWN"] if container["name"] == "folder" else [])
        assert all("livenessProbe" in container for container in pod["containers"])
    kinds = [one["kind"] for one in objects(name)]
    assert ("PodDisruptionBudget" in kinds) == (RENDERINGS[name].get("server", {}).get("replicas", 1) > 1)


@pytest.mark.parametrize("name", RENDERINGS)
def test_a_selector_finds_the_pods_of_its_part(name: str) -> None:
    """Of services, policies, budgets and monitors."""
    labels = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in objects(name)
        if one["kind"] in ("Deployment", "DaemonSet")
    ]
    for one in objects(name):
        spec = one.get("spec", {})
        wanted = spec.get("podSelector") or spec.get("selector") or {}
        wanted = wanted.get("matchLabels", wanted)
        if wanted:
            assert len([found for found in labels if wanted.items() <= found.items()]) == 1, one


def test_the_monitors_have_the_fields_of_the_operator() -> None:
    """One for the servers, one each for sidecars and consumers; with the jobs' names that our alerts look for."""
    found = [one for one in objects("every option") if one["kind"] in MONITORS]
    assert [one["kind"] for one in found] == ["PodMonitor", "PodMonitor", "ServiceMonitor"]
    for one in found:
        jsonschema.validate(one["spec"], MONITORS[one["kind"]])
        assert one["metadata"]["labels"]["release"] == "prometheus"
    rules = (chart.FOLDER.parent / "prometheus/foreshock-alerts.yaml").read_text(encoding="utf-8")
    wanted = set(re.findall(r'job=~"([^"]*foreshock[^"]*)"', rules))
    ends = [end for one in found for key in ("endpoints", "podMetricsEndpoints") for end in one["spec"].get(key, [])]
    jobs = {str(relabel.get("replacement")) for end in ends for relabel in end["relabelings"]}
    assert len(wanted) == 2
    assert [pattern for pattern in wanted if not any(re.fullmatch(pattern, job) for job in jobs)] == []


def test_the_plain_manifests_are_the_chart_s() -> None:
    """`make chart` writes them anew."""
    there = {path.name: path.read_text(encoding="utf-8") for path in chart.FOLDER.glob("*")}
    assert there == chart.manifests(), "run make chart"


def test_the_chart_is_of_this_version() -> None:
    """As pyproject.toml has it: the image's tag by itself."""
    told = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    version = CliRunner().invoke(foreshock, ["--version"]).output.split()[-1]
    assert (told["version"], told["appVersion"]) == (version, version)
