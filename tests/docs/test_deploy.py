"""The image, the compose file and the locks of deploy/: commands, settings, ports, paths and variables exist. test_chart.py has the chart."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from ipaddress import ip_address, ip_network

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
GATEWAYS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("gateway-")}
GATEWAY = GATEWAYS["gateway-1"]
SETTINGS = parse_settings(tomllib.loads((DEPLOY / "toolwire.toml").read_text("utf-8")))
NGINX = (DEPLOY / "nginx.conf").read_text("utf-8")
VALUES = yaml.safe_load((DEPLOY / "chart/values.yaml").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def instruction(name):
    return [line.split(" ", 1)[1] for line in DOCKERFILE.splitlines() if line.startswith(f"{name} ")]


def images():
    return [
        *(image.partition(" AS ")[0] for image in instruction("FROM")),
        *(service["image"] for service in COMPOSE["services"].values()),
        *(part["image"] for part in VALUES.values() if isinstance(part, dict) and isinstance(part.get("image"), str)),
    ]


def environment():
    """Return the environment of a gateway of the compose file, with values in place of the variables of its user."""
    found = {}
    for name, value in GATEWAY["environment"].items():
        while "${" in value:
            value = re.sub(r"\$\{[A-Z_]+(?::-([^{}]*)|:\?[^{}]*)?\}", lambda match: match[1] or "key" * 11, value)
        found[name] = value
    return found


def test_deployed_settings_start_a_gateway():
    gateway = Gateway(SETTINGS, environment=environment())
    assert set(gateway.upstreams) == set(SETTINGS.upstreams)
    assert SETTINGS.keys, "it would not bind to 0.0.0.0 without"
    assert environment()[SETTINGS.state.url_env].startswith("postgresql://toolwire:key")
    assert usage_address(SETTINGS, environment()).startswith("postgresql://toolwire:key")
    with pytest.raises(Exception, match="is not set"):
        open_state(SETTINGS, {})


def test_every_variable_is_used_and_no_secret_is_in_the_settings():
    named = {
        "ANTHROPIC_API_KEY", SETTINGS.server.secret_env, SETTINGS.server.metrics_key_env, SETTINGS.state.usage_env,
        SETTINGS.state.url_env,
    }  # fmt: skip
    assert set(environment()) == named
    assert {row.provider for row in SETTINGS.upstreams.values()} == {"anthropic"}
    assert all(row.key_env is None for row in SETTINGS.upstreams.values())


def test_image_command_is_a_valid_toolwire_command():
    [entrypoint], [command] = instruction("ENTRYPOINT"), instruction("CMD")
    entrypoint, command = json.loads(entrypoint), json.loads(command)
    assert entrypoint == ["toolwire"]
    assert "toolwire" in PROJECT["scripts"]
    assert "command" not in GATEWAY
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


def test_balancer_knows_every_gateway_by_its_fixed_address():
    [exposed] = instruction("EXPOSE")
    command = json.loads(instruction("CMD")[0])
    assert command[command.index("--port") + 1] == exposed and command[command.index("--host") + 1] == "0.0.0.0"
    addresses = {service["networks"]["default"]["ipv4_address"] for service in GATEWAYS.values()}
    assert len(addresses) == len(GATEWAYS) == 3
    network = ip_network(COMPOSE["networks"]["default"]["ipam"]["config"][0]["subnet"])
    assert all(ip_address(address) in network for address in addresses)
    assert set(re.findall(r"^ +server ([\d.:]+) ", NGINX, re.MULTILINE)) == {f"{ip}:{exposed}" for ip in addresses}
    assert f"listen {exposed};" in NGINX
    assert COMPOSE["services"]["balancer"]["ports"] == [f"127.0.0.1:{exposed}:{exposed}"]


def test_health_check_uses_an_existing_endpoint():
    program = GATEWAY["healthcheck"]["test"][-1]
    compile(program, "healthcheck", "exec")
    [url] = re.findall(r"http://127\.0\.0\.1:4141(/\w+)", program)
    assert match_route("GET", url, {}).action == "ready"


def test_requests_may_finish_before_a_gateway_is_killed():
    """A stream may last as long as `timeout` of its upstream."""
    assert SETTINGS.server.drain >= max(row.timeout for row in SETTINGS.upstreams.values())
    usage = 10
    assert int(GATEWAY["stop_grace_period"].rstrip("s")) >= SETTINGS.server.drain + usage


def test_gateways_share_postgres_or_redis():
    assert GATEWAY["depends_on"]["postgres"] == {"condition": "service_healthy"}
    assert GATEWAY["depends_on"]["redis"] == {"condition": "service_healthy", "required": False}
    assert COMPOSE["services"]["redis"]["profiles"] == ["redis"]
    assert "@postgres:5432/" in environment()["TOOLWIRE_STATE"] and "@postgres:5432/" in environment()["TOOLWIRE_USAGE"]
    command = COMPOSE["services"]["redis"]["command"][-1]
    assert "requirepass %s" in command and "| redis-server -" in command and "REDIS_PASSWORD:?" in command


def test_containers_do_not_run_as_root():
    assert instruction("USER") == ["10001"]
    assert "--uid 10001 " in DOCKERFILE
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
def test_memory_of_requests_fits_into_the_container():
    assert SETTINGS.limits.memory * 2 <= int(GATEWAY["mem_limit"].removesuffix("m")) * 2**20


@pytest.mark.finding("Z26")
def test_advisories_are_a_make_target():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = makefile.partition("\nadvisories:")[2].partition("\n\n")[0]
    assert "pip-audit --requirement deploy/requirements.lock" in recipe
