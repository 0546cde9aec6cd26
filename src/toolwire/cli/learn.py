"""`toolwire learn`: training data, fine-tuning, Toolformer, ToolkenGPT and evaluation for open models."""

from __future__ import annotations

import argparse
from typing import Any

from .learn_eval import add_to as add_eval
from .learn_export import add_to as add_export
from .learn_mine import add_to as add_mine
from .learn_toolken import add_to as add_toolken
from .learn_train import add_to as add_train

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire learn export traces/ --format trl -o train.jsonl    recorded conversations as training data
  toolwire learn train train.jsonl -m smollm2 -o runs/tuned    fine-tune, write an adapter and a GGUF file
  toolwire learn mine texts.jsonl -m smollm2 -o runs/mined     Toolformer: find the calls that help the model
  toolwire learn toolken pairs.jsonl -m smollm2 -o runs/head   ToolkenGPT: one trained token for each tool
  toolwire learn eval bfcl -m smollm2 --format hermes --mask   the share of right calls

Every action has its own help. Models are folders or files on this machine; nothing is downloaded.
exit codes: 0 done   1 a check failed   2 wrong usage, or unreadable input
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "learn",
        help="training data, fine-tuning and evaluation for open models",
        description="Teach an open model to call tools, and measure how well it does.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for add in (add_export, add_train, add_mine, add_toolken, add_eval):
        add(actions)
