"""What deploy/ names is there: the command and its options, the settings, the ports, the paths, the variables."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import yaml
from packaging.requirements import Requirement

from places import ROOT
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.request.routes import match_route
from toolwire.gateway.state.opening import open_state, usage_address

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
MANIFESTS = {
    (one["kind"], one["metadata"]["name"]): one
    for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
}
DEPLOYMENT = MANIFESTS["Deployment", "toolwire"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
[CONTAINER] = POD["containers"]
GATEWAY = COMPOSE["services"]["gateway"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def instruction(name):
    return [line.split(" ", 1)[1] for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")]


def containers():
    """All containers of the manifests."""
    kinds = ("Deployment", "StatefulSet")
    return [
        one
        for (kind, _), manifest in MANIFESTS.items()
        if kind in kinds
        for one in manifest["spec"]["template"]["spec"]["containers"]
    ]


def redis_container():
    [found] = MANIFESTS["Deployment", "toolwire-redis"]["spec"]["template"]["spec"]["containers"]
    return found


def images():
    return [
        *(image.partition(" AS ")[0] for image in instruction("FROM")),
        *(one["image"] for one in COMPOSE["services"].values()),
        *(one["image"] for one in containers()),
    ]


def variables():
    """What the gateway finds in its environment, once for each way to run it."""
    return {"compose": GATEWAY["environment"], "kubernetes": MANIFESTS["Secret", "toolwire"]["stringData"]}


def settings():
    text = MANIFESTS["ConfigMap", "toolwire"]["data"]["toolwire.toml"]
    return {
        "compose": parse_settings(tomllib.loads((DEPLOY / "toolwire.toml").read_text("utf-8"))),
        "kubernetes": parse_settings(tomllib.loads(text)),
    }


BOTH = pytest.mark.parametrize("way", ["compose", "kubernetes"])


@BOTH
def test_deployed_settings_start_a_gateway(way):
    found = settings()[way]
    environment = {
        name: re.sub(r"\$\{.*?\}", "secret", value) if "://" in value else "key" * 11
        for name, value in variables()[way].items()
    }
    gateway = Gateway(found, environment=environment)
    assert set(gateway.upstreams) == set(found.upstreams)
    assert found.server.host == "0.0.0.0"
    assert found.keys, "it would not bind to 0.0.0.0 without"
    assert found.state.url is None and environment[found.state.url_env].startswith("redis://:")
    assert usage_address(found, environment).startswith("postgresql://")
    with pytest.raises(Exception, match="is not set"):
        open_state(found, {})


@BOTH
def test_every_secret_is_used_and_none_is_in_the_settings(way):
    found = settings()[way]
    named = {"ANTHROPIC_API_KEY", found.server.secret_env, found.state.usage_env, found.state.url_env}
    assert set(variables()[way]) == named
    assert {row.provider for row in found.upstreams.values()} == {"anthropic"}
    assert all(row.key_env is None for row in found.upstreams.values())


def test_image_command_is_a_valid_toolwire_command():
    [entrypoint], [command] = instruction("ENTRYPOINT"), instruction("CMD")
    entrypoint, command = json.loads(entrypoint), json.loads(command)
    assert entrypoint == ["toolwire"]
    assert "toolwire" in PROJECT["scripts"]
    assert CONTAINER["args"] == command
    assert "command" not in CONTAINER and "command" not in GATEWAY
    words = subprocess.run(
        [sys.executable, "-m", "toolwire", command[0], "--help"], capture_output=True, text=True, check=True
    )
    for option in command[1:]:
        if option.startswith("--"):
            assert re.search(rf"^ +{option}\b", words.stdout, re.MULTILINE), option


def test_settings_are_mounted_where_the_command_reads_them():
    path = json.loads(instruction("CMD")[0])[2]
    [volume] = GATEWAY["volumes"]
    here, there, mode = volume.split(":")
    assert (there, mode) == (path, "ro")
    assert (DEPLOY / here).is_file()
    [mount] = CONTAINER["volumeMounts"]
    [name] = MANIFESTS["ConfigMap", "toolwire"]["data"]
    assert f"{mount['mountPath']}/{name}" == path
    [source] = POD["volumes"]
    assert (source["name"], source["configMap"]["name"]) == (mount["name"], "toolwire")
    assert CONTAINER["envFrom"] == [{"secretRef": {"name": "toolwire"}}]


def test_ports_are_the_same_everywhere():
    [exposed] = instruction("EXPOSE")
    ports = {found.server.port for found in settings().values()}
    assert ports == {int(exposed)} == {CONTAINER["ports"][0]["containerPort"]}
    [service] = MANIFESTS["Service", "toolwire"]["spec"]["ports"]
    assert service["targetPort"] == CONTAINER["ports"][0]["name"]
    assert MANIFESTS["Service", "toolwire"]["spec"]["selector"] == DEPLOYMENT["selector"]["matchLabels"]
    nginx = (DEPLOY / "nginx.conf").read_text("utf-8")
    assert f"server gateway:{exposed};" in nginx
    assert f"listen {exposed};" in nginx
    assert COMPOSE["services"]["balancer"]["ports"] == [f"127.0.0.1:{exposed}:{exposed}"]


def test_probes_use_existing_endpoints():
    actions = {
        name: match_route("GET", CONTAINER[f"{name}Probe"]["httpGet"]["path"], {}).action for name in ("liveness", "startup", "readiness")
    }  # fmt: skip
    assert actions == {"liveness": "alive", "startup": "alive", "readiness": "ready"}
    program = GATEWAY["healthcheck"]["test"][-1]
    compile(program, "healthcheck", "exec")
    [url] = re.findall(r"http://127\.0\.0\.1:4141(/\w+)", program)
    assert match_route("GET", url, {}).action == "ready"


def test_grace_period_covers_the_drain_time():
    pause = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    usage = 5
    assert POD["terminationGracePeriodSeconds"] >= pause + settings()["kubernetes"].server.drain + usage
    assert int(GATEWAY["stop_grace_period"].rstrip("s")) >= settings()["compose"].server.drain + usage


def test_three_replicas_share_redis_and_postgres():
    assert DEPLOYMENT["replicas"] == GATEWAY["deploy"]["replicas"] == 3
    for name, kind in (("TOOLWIRE_STATE", "Deployment"), ("TOOLWIRE_USAGE", "StatefulSet")):
        host, _, port = variables()["kubernetes"][name].rpartition("@")[2].partition("/")[0].partition(":")
        assert MANIFESTS["Service", host]["spec"]["ports"][0]["port"] == int(port)
        template = MANIFESTS[kind, host]["spec"]["template"]
        assert template["metadata"]["labels"] == MANIFESTS["Service", host]["spec"]["selector"]
        assert template["spec"]["containers"][0]["ports"][0]["containerPort"] == int(port)
    assert GATEWAY["environment"]["TOOLWIRE_STATE"].endswith("@redis:6379/0")
    assert set(GATEWAY["depends_on"]) == {"redis", "postgres"} <= set(COMPOSE["services"])
    assert "@postgres:5432/" in GATEWAY["environment"]["TOOLWIRE_USAGE"]


def test_containers_do_not_run_as_root():
    assert instruction("USER") == ["10001"]
    assert "--uid 10001 " in DOCKERFILE
    assert POD["securityContext"]["runAsUser"] == 10001
    for one in containers():
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
    assert COMPOSE["services"]["redis"]["user"] == "redis"  # its entry point changes the user of redis-server only


def image_extras():
    [extras] = re.findall(r"\.whl\)\[(.*)\]", DOCKERFILE)
    return extras


def test_image_copies_existing_files_and_known_extras():
    for line in instruction("COPY"):
        *sources, _ = shlex.split(line)
        for source in sources if not line.startswith("--from=build ") else ():
            assert (ROOT / source).exists(), source
    extras = image_extras()
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert (DEPLOY / GATEWAY["build"]["context"] / GATEWAY["build"]["dockerfile"]).is_file()


def test_image_names_have_no_registry_host():
    """No host of a registry: whoever runs it says where images come from."""
    assert all(re.fullmatch(r"[a-z]+(:[a-z0-9.-]+@sha256:[0-9a-f]{64})?", image) for image in images()), images()


@pytest.mark.finding("Z26")
def test_images_of_others_are_pinned_by_digest():
    foreign = {image for image in images() if image != "toolwire"}
    assert {image.partition(":")[0] for image in foreign} == {"nginx", "postgres", "python", "redis"}
    assert all("@sha256:" in image for image in foreign)
    assert len(foreign) == 4, "one digest for each"


@pytest.mark.finding("Z26")
def test_image_has_a_health_check():
    command = json.loads(DOCKERFILE.partition("HEALTHCHECK")[2].partition("CMD ")[2].partition("\n")[0])
    compile(command[-1], "healthcheck", "exec")
    [url] = re.findall(r"http://127\.0\.0\.1:4141(/\w+)", command[-1])
    assert match_route("GET", url, {}).action == "alive"


def locked_versions():
    """The locked versions by package, each with at least one hash."""
    text = (DEPLOY / "requirements.lock").read_text("utf-8")
    packages = re.findall(
        r"^([a-z0-9-]+)==([0-9][0-9a-z.]*)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE
    )
    assert sum(1 + hashes.count("--hash") for *_, hashes in packages) == len(text.splitlines()) - 1
    return {name: version for name, version, _ in packages}


@pytest.mark.finding("SE13")
@pytest.mark.finding("Z26")
def test_lock_file_has_the_tested_version_of_every_package_in_the_image():
    assert "--require-hashes --requirement /build/requirements.lock" in DOCKERFILE
    assert "--require-hashes --requirement deploy/build.lock" in DOCKERFILE
    spec = spec_from_file_location("lock", DEPLOY / "lock.py")
    lock = module_from_spec(spec)
    spec.loader.exec_module(lock)
    assert set(lock.EXTRAS) == set(image_extras().split(","))
    assert list(locked_versions()) == list(lock.closure()), "run `make lock`"
    classifiers = [line.rpartition(" ")[2] for line in PROJECT["classifiers"]]
    assert list(lock.PYTHONS) == [version for version in classifiers if re.fullmatch(r"3\.\d+", version)]


@pytest.mark.finding("Z26")
def test_dependencies_have_upper_bounds_that_allow_the_locked_versions():
    locked = locked_versions()
    texts = [*PROJECT["dependencies"], *(text for extra in PROJECT["optional-dependencies"].values() for text in extra)]
    for requirement in map(Requirement, texts):
        if requirement.name not in ("toolwire", "torch"):  # the build of torch depends on the machine
            assert any(bound.operator == "<" for bound in requirement.specifier), requirement
            assert requirement.name not in locked or locked[requirement.name] in requirement.specifier, requirement


@pytest.mark.finding("Z26")
def test_stores_require_a_password_and_accept_gateways_only():
    stores = MANIFESTS["Secret", "toolwire-stores"]["stringData"]
    addresses = variables()["kubernetes"]
    assert f":{stores['REDIS_PASSWORD']}@toolwire-redis:" in addresses["TOOLWIRE_STATE"]
    assert f":{stores['POSTGRES_PASSWORD']}@toolwire-postgres:" in addresses["TOOLWIRE_USAGE"]
    for name, port in (("toolwire-redis", 6379), ("toolwire-postgres", 5432)):
        policy = MANIFESTS["NetworkPolicy", name]["spec"]
        assert policy["podSelector"]["matchLabels"] == {"app": name}
        assert policy["policyTypes"] == ["Ingress", "Egress"] and "egress" not in policy
        [rule] = policy["ingress"]
        assert rule["from"] == [{"podSelector": DEPLOYMENT["selector"]}] and rule["ports"] == [{"port": port}]
    gateway = MANIFESTS["NetworkPolicy", "toolwire"]["spec"]
    assert gateway["podSelector"] == DEPLOYMENT["selector"]
    assert gateway["ingress"] == [{"ports": [{"port": CONTAINER["ports"][0]["containerPort"]}]}]
    for command in (COMPOSE["services"]["redis"]["command"], redis_container()["command"]):
        assert "requirepass %s" in command[-1] and "| redis-server -" in command[-1]


@pytest.mark.finding("Z26")
@BOTH
def test_memory_of_requests_fits_into_the_container(way):
    limit = {"kubernetes": CONTAINER["resources"]["limits"]["memory"], "compose": GATEWAY["mem_limit"]}[way]
    assert settings()[way].limits.memory * 2 <= int(re.match(r"\d+", limit)[0]) * 2**20


@pytest.mark.finding("Z26")
def test_advisories_are_a_make_target():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = makefile.partition("\nadvisories:")[2].partition("\n\n")[0]
    assert "pip-audit --requirement deploy/requirements.lock" in recipe
