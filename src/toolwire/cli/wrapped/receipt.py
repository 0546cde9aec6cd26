"""The receipt of `toolwire with`: sums over the gateway's own records of the requests.

turns   12, 1 failed: rate_limit
calls   9: Read 6, Bash 3
tokens  45,210 in (87 % cached), 3,120 out
cost    0.1825
losses  5: top_k, seed; 3 info: id 2, status
model   openai/gpt-5.6
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from shlex import quote
from typing import TYPE_CHECKING

from ...ir.response import Response, Usage, add_usage
from ...ir.terminal import count_of, neutralise_line
from ..terminal.output import paint, print_note, table

if TYPE_CHECKING:
    from ...gateway.observe.request_log import RequestLog

_MAX_SHOWN = 5  # names of a kind, so that a row is a line or two
_MAX_NAMES = 500  # names of a kind that are counted; a model may call any number of tools that do not exist
_OTHERS = "others"


class Receipt:
    """A sink that sums the requests of the command. `price` computes the cost of an answer."""

    def __init__(self, price: Callable[[Response], float] | None) -> None:
        self._price = price
        self._turns = 0
        self._failures: Counter[str] = Counter()  # by kind of fault
        self._calls: Counter[str] = Counter()  # by tool
        self._losses: Counter[str] = Counter()  # warnings and errors, by concept
        self._infos: Counter[str] = Counter()  # losses without effect on the meaning
        self._models: Counter[str] = Counter()  # that answered
        self._usage: Usage | None = None
        self._is_estimated = False
        self._cost = 0.0
        self._strangers = 0  # requests without the key, which the command has not sent

    def __call__(self, request_log: RequestLog, /) -> None:
        """Add a request for a model; requests of other kinds have no tokens."""
        if request_log.action != "generate":
            return
        if not request_log.caller:
            self._strangers += 1
            return
        self._turns += 1
        if request_log.error is not None:
            _count(self._failures, {request_log.error: 1})
        _count(self._calls, Counter(request_log.calls))
        losses = request_log.count_losses()
        _count(self._losses, Counter(losses) - Counter(request_log.info_counts))
        _count(self._infos, request_log.info_counts)
        if request_log.upstream:
            _count(self._models, {f"{request_log.upstream}/{request_log.upstream_model}": 1})
        if request_log.usage is not None:
            self._usage = add_usage(self._usage, request_log.usage)
            self._is_estimated |= request_log.is_estimated
            if self._price is not None:
                self._cost += self._price(Response(usage=request_log.usage))

    def print(
        self, *, recording: str | None, unrecorded: int, clean: Callable[[str], str], settings_file: str | None = None
    ) -> None:
        """Print the receipt to standard error. `clean` removes secrets from names that clients and models choose."""
        rows = [
            ("turns", self._describe_turns()),
            ("calls", _describe(self._calls)),
            ("tokens", self._describe_tokens()),
        ]
        if self._price is not None and self._usage is not None:
            rows.append(("cost", f"{'about ' * self._is_estimated}{self._cost:.4f}"))
        rows.append(("losses", self._describe_losses()))
        if self._models:
            rows.append(("model", ", ".join(self._models) if len(self._models) == 1 else _describe(self._models)))
        if settings_file is not None:
            rows.append(("settings", settings_file))
        if recording is not None:
            lost = f", without {count_of(unrecorded, 'exchange')} that could not be written" if unrecorded else ""
            rows.append(("record", f"{recording}{lost}"))
        print(paint("toolwire", "bold", sys.stderr), file=sys.stderr)
        cells = [(name, neutralise_line(clean(text))) for name, text in rows]
        print("\n".join(table(cells, indent="  ", stream=sys.stderr)), file=sys.stderr, flush=True)
        if recording is not None:
            print_note(f"toolwire trace show {quote(recording)}", None)
        if self._strangers:
            print_note(f"refused {count_of(self._strangers, 'request')} without the key of this run")

    def _describe_turns(self) -> str:
        failed = self._failures.total()
        return f"{self._turns:,}" + (f", {failed:,} failed: {_list_names(self._failures)}" if failed else "")

    def _describe_losses(self) -> str:
        """Describe warnings and errors first: losses of severity `info` have no effect on the meaning."""
        if not self._infos:
            return _describe(self._losses)
        infos = f"{self._infos.total():,} info: {_list_names(self._infos)}"
        if not self._losses:
            return infos
        return f"{self._losses.total() + self._infos.total():,}: {_list_names(self._losses)}; {infos}"

    def _describe_tokens(self) -> str:
        usage = self._usage
        if usage is None:
            return "unknown" if self._turns else "0"
        share = f" ({(usage.cached or 0) / usage.input:.0%} cached)" if usage.cached and usage.input else ""
        estimate = ", estimated in part" if self._is_estimated else ""
        return f"{usage.input or 0:,} in{share}, {usage.output or 0:,} out{estimate}"


def _count(counter: Counter[str], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        is_known = name in counter or len(counter) < _MAX_NAMES
        counter[name if is_known else _OTHERS] += count


def _describe(counter: Counter[str]) -> str:
    return f"{counter.total():,}: {_list_names(counter)}" if counter else "0"


def _list_names(counter: Counter[str]) -> str:
    shown = [name if count == 1 else f"{name} {count:,}" for name, count in counter.most_common(_MAX_SHOWN)]
    rest = len(counter) - _MAX_SHOWN
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
