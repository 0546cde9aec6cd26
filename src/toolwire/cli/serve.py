"""`toolwire serve`: the keys and the usage of a gateway."""

from __future__ import annotations

from typing import Any

from . import serve_keys, serve_usage

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser = commands.add_parser("serve", help="any client in front of any model")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action in (serve_keys, serve_usage):
        action.add_to(actions)
