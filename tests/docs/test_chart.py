"""The Helm chart: its objects are valid for Kubernetes, and fit to the image, the settings and the gateway."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from places import ROOT
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.request.routes import match_route

CHART = ROOT / "deploy/chart"
SETTINGS_FILE = ROOT / "deploy/toolwire.toml"
SETTINGS = parse_settings(tomllib.loads(SETTINGS_FILE.read_text("utf-8")))
HELM = shutil.which("helm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
EVERYTHING = ("redis.enabled", "postgres.enabled", "autoscaling.enabled", "podMonitor.enabled")
VERSIONS = ("1.27", "1.37")  # of Kubernetes: the oldest of Chart.yaml, and the newest with schemas

pytestmark = pytest.mark.skipif(HELM is None and not os.environ.get("CI"), reason="helm is not installed")


def helm(*arguments, check=True):
    command = [HELM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check, cwd=ROOT)


def render(*enabled, settings=SETTINGS_FILE, **values):
    """Return the objects by kind and name, with these values."""
    options = [f"--set-file=settings={settings}", *(f"--set={name}=true" for name in enabled)]
    options += [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    text = helm("template", "toolwire", str(CHART), *options).stdout
    return {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(text) if found}


@pytest.fixture(scope="module")
def default():
    return render()


@pytest.fixture(scope="module")
def everything():
    return render(*EVERYTHING)


def pod_of(objects, kind="Deployment", name="toolwire"):
    return objects[kind, name]["spec"]["template"]["spec"]


def containers(objects):
    workloads = [found for (kind, _), found in objects.items() if kind in ("Deployment", "StatefulSet")]
    return [found for workload in workloads for found in workload["spec"]["template"]["spec"]["containers"]]


def test_chart_passes_helm_lint():
    helm("lint", "--strict", str(CHART), f"--set-file=settings={SETTINGS_FILE}")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_matches_the_schema_of_kubernetes(version, default, everything):
    if importlib.util.find_spec("kubernetes_validate") is None and not os.environ.get("CI"):
        pytest.skip("kubernetes-validate is not installed")
    import kubernetes_validate

    checked = [
        found for objects in (default, everything) for found in objects.values() if found["kind"] != "PodMonitor"
    ]
    for found in checked:
        kubernetes_validate.validate(found, version, strict=True)
    assert len(checked) == 5 + 12
    broken = {**default["PodDisruptionBudget", "toolwire"], "spec": {"maxUnavailble": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_pods_run_the_command_of_the_image_with_the_settings_of_the_user(default):
    [container] = pod_of(default)["containers"]
    assert "args" not in container and "command" not in container
    dockerfile = (ROOT / "deploy/Dockerfile").read_text("utf-8")
    command = json.loads(re.findall(r"^CMD (\[.*)$", dockerfile, re.MULTILINE)[0])
    [mount] = container["volumeMounts"]
    [(name, text)] = default["ConfigMap", "toolwire"]["data"].items()
    assert f"{mount['mountPath']}/{name}" == command[command.index("--config") + 1]
    assert text.strip() == SETTINGS_FILE.read_text("utf-8").strip()
    [volume] = pod_of(default)["volumes"]
    assert (volume["name"], volume["configMap"]["name"]) == (mount["name"], "toolwire")
    [port] = container["ports"]
    assert str(port["containerPort"]) == command[command.index("--port") + 1]
    assert default["Service", "toolwire"]["spec"]["ports"][0]["targetPort"] == port["name"]
    labels = default["Deployment", "toolwire"]["spec"]["template"]["metadata"]["labels"]
    assert default["Service", "toolwire"]["spec"]["selector"] == labels


def test_secrets_are_references(everything):
    [gateway] = pod_of(everything)["containers"]
    assert gateway["envFrom"] == [{"secretRef": {"name": "toolwire"}}]
    assert not [kind for kind, _ in everything if kind == "Secret"]
    variables = [row for found in containers(everything) for row in found.get("env", [])]
    passwords = {row["name"]: row["valueFrom"]["secretKeyRef"] for row in variables if "PASSWORD" in row["name"]}
    assert passwords == {name: {"name": "toolwire", "key": name} for name in ("REDIS_PASSWORD", "POSTGRES_PASSWORD")}
    [endpoint] = everything["PodMonitor", "toolwire"]["spec"]["podMetricsEndpoints"]
    key = {"name": "toolwire", "key": SETTINGS.server.metrics_key_env}
    assert endpoint["authorization"]["credentials"] == key
    assert match_route("GET", endpoint["path"], {}).action == "metrics"


def test_new_settings_start_new_pods(tmp_path, default):
    other = tmp_path / "other.toml"
    other.write_text(SETTINGS_FILE.read_text("utf-8") + "tokens_per_day = 5\n")
    annotations = [
        objects["Deployment", "toolwire"]["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
        for objects in (default, render(), render(settings=other))
    ]
    assert annotations[0] == annotations[1] != annotations[2]


def test_grace_period_covers_the_pause_the_drain_time_and_the_usage_rows(tmp_path, default):
    pod = pod_of(default)
    pause = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] == pause + SETTINGS.server.drain + 10
    plain = tmp_path / "plain.toml"
    plain.write_text("[upstreams.a]\nprovider = 'anthropic'\n")
    drain = parse_settings(tomllib.loads(plain.read_text())).server.drain
    assert pod_of(render(settings=plain, preStop=15))["terminationGracePeriodSeconds"] == 15 + drain + 10


def test_probes_use_existing_endpoints(default):
    [container] = pod_of(default)["containers"]
    actions = {
        name: match_route("GET", container[f"{name}Probe"]["httpGet"]["path"], {}).action for name in ("liveness", "startup", "readiness")
    }  # fmt: skip
    assert actions == {"liveness": "alive", "startup": "alive", "readiness": "ready"}


def test_updates_and_disruptions_keep_the_other_pods(default):
    deployment = default["Deployment", "toolwire"]["spec"]
    assert deployment["replicas"] == 3
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = default["PodDisruptionBudget", "toolwire"]["spec"]
    assert budget == {"maxUnavailable": 1, "selector": deployment["selector"]}
    spread = pod_of(default)["topologySpreadConstraints"]
    assert [row["topologyKey"] for row in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert all(row["labelSelector"] == deployment["selector"] for row in spread)


def test_autoscaling_uses_a_metric_of_the_gateway(everything):
    scaler = everything["HorizontalPodAutoscaler", "toolwire"]["spec"]
    [metric] = scaler["metrics"]
    page = Metrics().page().decode()
    assert f"# TYPE {metric['pods']['metric']['name']} gauge" in page
    assert int(metric["pods"]["target"]["averageValue"]) > 0
    target = everything["Deployment", "toolwire"]
    assert scaler["scaleTargetRef"] == {"apiVersion": target["apiVersion"], "kind": "Deployment", "name": "toolwire"}
    assert "replicas" not in target["spec"], "an upgrade of the chart must not undo the autoscaler"


def test_containers_have_no_rights_that_they_do_not_need(everything):
    found = containers(everything)
    assert len(found) == 3
    for container in found:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
    for kind, name in (
        ("Deployment", "toolwire"),
        ("Deployment", "toolwire-redis"),
        ("StatefulSet", "toolwire-postgres"),
    ):
        pod = pod_of(everything, kind, name)
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
    assert pod_of(everything)["securityContext"]["runAsUser"] == 10001
    assert "--uid 10001 " in (ROOT / "deploy/Dockerfile").read_text("utf-8")


def test_memory_of_requests_fits_into_the_container(default):
    limit = pod_of(default)["containers"][0]["resources"]["limits"]["memory"]
    assert SETTINGS.limits.memory * 2 <= int(limit.removesuffix("Mi")) * 2**20


def test_stores_accept_gateways_only(everything):
    gateways = everything["Deployment", "toolwire"]["spec"]["selector"]
    allowed = everything["NetworkPolicy", "toolwire"]["spec"]["egress"]
    for kind, name, port in (("Deployment", "toolwire-redis", 6379), ("StatefulSet", "toolwire-postgres", 5432)):
        labels = everything[kind, name]["spec"]["selector"]
        policy = everything["NetworkPolicy", name]["spec"]
        assert policy["podSelector"] == labels
        assert policy["policyTypes"] == ["Ingress", "Egress"] and "egress" not in policy
        assert policy["ingress"] == [{"from": [{"podSelector": gateways}], "ports": [{"port": port}]}]
        assert {"to": [{"podSelector": labels}], "ports": [{"port": port}]} in allowed
        assert everything["Service", name]["spec"]["selector"] == labels["matchLabels"]
        assert everything["Service", name]["spec"]["ports"][0]["port"] == port
        [container] = pod_of(everything, kind, name)["containers"]
        assert container["ports"][0]["containerPort"] == port
    redis = pod_of(everything, "Deployment", "toolwire-redis")["containers"][0]["command"][-1]
    assert "requirepass %s" in redis and "| redis-server -" in redis


def test_stores_outside_the_cluster_need_their_ports(default):
    ports = render(**{"networkPolicy.egressPorts": [443, 5432]})["NetworkPolicy", "toolwire"]["spec"]["egress"][-1][
        "ports"
    ]
    assert [row["port"] for row in ports] == [53, 53, 443, 5432]
    assert [row["port"] for row in default["NetworkPolicy", "toolwire"]["spec"]["egress"][-1]["ports"]] == [53, 53, 443]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "add --set-file settings=toolwire.toml"),
        (("--set=settings=a = = b",), "settings is no TOML"),
        ((f"--set-file=settings={SETTINGS_FILE}", "--set=replica=3"), "Additional property replica is not allowed"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(options, message):
    found = helm("template", "toolwire", str(CHART), *options, check=False)
    assert found.returncode and message in found.stderr
