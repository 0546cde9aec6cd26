"""Twelve tools with one planted fault each; `toolwire test examples/faulty_tools.py` has to find them."""

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import toolwire
from toolwire import ToolError
from toolwire.run import CallContext

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
RECENT_SEARCHES = Path("recent_searches.txt")  # relative paths: created in the working directory
LEDGER = Path("ledger.jsonl")

CATALOGUE = json.loads("""{
    "kettle": {"title": "Kettle, 1.7 l", "grams": 1150},
    "teapot": {"title": "Teapot, cast iron", "grams": 1480},
    "voucher": {"title": "Gift voucher", "grams": "n/a"}
}""")
DEFAULT_LABELS = ["new"]


# 1: crash on empty input
@toolwire.tool(effect="pure")
def common_prefix(names: list[str]) -> str:
    """Return the longest prefix that all names share."""
    ordered = sorted(names)
    first, last = ordered[0], ordered[-1]  # the two names that differ earliest
    length = 0
    for left, right in zip(first, last, strict=False):
        if left != right:
            break
        length += 1
    return first[:length]


# 2: Unicode crash
@toolwire.tool(effect="pure")
def avatar_url(email: str, size: Literal[32, 64, 128] = 64) -> str:
    """Return the URL of the avatar for an e-mail address."""
    digest = hashlib.sha256(email.strip().lower().encode("ascii")).hexdigest()
    return f"https://avatars.example.com/{digest}?s={size}"


# 3: hang
@toolwire.tool(effect="pure")
def count_occurrences(text: str, word: str) -> int:
    """Count the occurrences of a word in a text, without overlaps."""
    count = 0
    position = text.find(word)
    while position != -1:
        count += 1
        position = text.find(word, position + len(word))
    return count


# 4: unbounded output. It is a generator, so that a caller can stop before its memory is full.
@toolwire.tool(effect="pure")
def invoice_numbers(count: int, series: Literal["A", "B"] = "A") -> Iterator[str]:
    """List the first invoice numbers of a series."""
    for number in range(1, count + 1):
        yield f"{series}-2026-{number:06}"


@dataclass(frozen=True)
class Product:
    sku: str
    title: str
    grams: int


# 5: result not matching its schema
@toolwire.tool(effect="read")
def get_product(sku: Literal["kettle", "teapot", "voucher"]) -> Product:
    """Get a product of the catalogue, with its weight in grams."""
    row = CATALOGUE[sku]
    return Product(sku, row["title"], row["grams"])


# 6: non-deterministic pure tool
@toolwire.tool(effect="pure")
def ticket_reference(title: str) -> str:
    """Build a short reference for a ticket from its title."""
    letters = "".join(char for char in title.lower() if char.isalnum())
    return f"{letters[:12] or 'ticket'}-{secrets.token_hex(3)}"


# 7: a read tool that writes
@toolwire.tool(effect="read")
def search_products(query: str) -> list[str]:
    """Search the titles of the catalogue."""
    with RECENT_SEARCHES.open("a", encoding="utf-8", errors="backslashreplace") as recent:
        recent.write(f"{query}\n")
    return [sku for sku, row in CATALOGUE.items() if query.lower() in row["title"].lower()]


# 8: shared mutable default
@toolwire.tool(effect="pure")
def label_ticket(title: str, labels: list[str] = DEFAULT_LABELS) -> list[str]:
    """Return the labels of a ticket: those given, and the part of its title before the colon."""
    area, _, _ = title.partition(":")
    labels.append(area.strip().lower())
    return labels


class ReceiptPrinter:
    def __init__(self) -> None:
        self.lines: list[str] = []

    async def add(self, item: str) -> None:
        await asyncio.sleep(0.005)  # the price service
        self.lines.append(f"{len(self.lines) + 1}. {item}")


PRINTER = ReceiptPrinter()


# 9: race
@toolwire.tool(effect="read")
async def preview_receipt(items: list[str]) -> str:
    """Preview the receipt for a list of items, one numbered line for each."""
    PRINTER.lines.clear()
    for item in items:
        await PRINTER.add(item)
    return "\n".join(PRINTER.lines)


# 10: double effect on the same idempotency key
@toolwire.tool(effect="idempotent")
def add_credit(account: str, cents: int, context: CallContext) -> str:
    """Add credit to an account. A repeated call with the same idempotency key adds nothing."""
    entry = {"key": context.idempotency_key, "account": account, "cents": cents}
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(entry) + "\n")
    entries = [json.loads(line) for line in LEDGER.read_text(encoding="utf-8").splitlines()]
    balance = sum(entry["cents"] for entry in entries if entry["account"] == account)
    return f"the balance is {balance} cents"


# 11: path escape
@toolwire.tool(effect="read")
def read_example(path: str) -> str:
    """Read the beginning of a file in the folder of the examples, such as `portable.py`."""
    if Path(path).is_absolute():
        raise ToolError(f"path must be relative to the folder of the examples, got {path!r}")
    try:
        with (FOLDER / path).open(encoding="utf-8", errors="replace") as file:
            return file.read(4000)
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot read {path!r}: {error}") from error


# 12: swallowed cancellation
@toolwire.tool(effect="read")
async def wait_for_build(branch: str) -> str:
    """Wait until the build of a branch is complete, for a second at most."""
    for attempt in range(10):
        try:
            await asyncio.sleep(0.1)  # the build service
        except (asyncio.CancelledError, ConnectionError):
            logger.info("attempt %d to poll the build was interrupted; trying again", attempt)
    return f"the build of {branch} is complete"
