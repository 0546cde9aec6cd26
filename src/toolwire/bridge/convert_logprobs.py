"""Convert the log probabilities of an answer to the form of another wire.

Every wire has them at the end of a stream, so they are delivered there: Chat in the chunk with the finish reason, Gemini
and Ollama in their last event, Responses in the text of `response.completed`.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.events import Event, ResponseEnd, TextEnd
from ..ir.losses import Losses
from ..ir.parts import Extra, Part, Text
from ..ir.pointer import Object
from ..ir.response import Response, Stop
from ..wire import get
from ..wire.codec import LogprobForm

__all__ = ["LogprobConverter", "may_have_logprobs"]


class LogprobConverter:
    """Move an answer's log probabilities from its wire's extras to the extras of `wire`.

    `take` and `take_event` remove them from the answer, so that they are not reported as lost; `put` and `put_event` add
    them in their new form. A wire without log probabilities gets the answer as it is.
    """

    __slots__ = ("_losses", "_target", "_tokens", "_wire")

    def __init__(self, wire: str, losses: Losses) -> None:
        self._wire = wire
        self._target: LogprobForm | None = getattr(get(wire), "logprobs", None)
        self._losses = losses
        self._tokens: dict[int, list[Object]] = {}  # by choice

    def take(self, response: Response) -> Response:
        if self._target is None:
            return response
        parts = tuple([self._take_text(part) for part in response.parts])
        stop = self._take_stop(0, response.stop)
        others = tuple(
            [
                replace(other, stop=self._take_stop(number, other.stop))
                for number, other in enumerate(response.alternatives, 1)
            ]
        )
        extra = self._take(0, response.extra, "response", "")
        return replace(response, parts=parts, stop=stop, alternatives=others, extra=extra)

    def put(self, response: Response) -> Response:
        target, tokens = self._target, self._tokens
        if target is None or not tokens:
            return response
        if target.position == "response":
            return replace(response, extra=self._put(0, response.extra, target))
        if target.position == "text":
            parts, number = list(response.parts), _first_text(response.parts)
            text = None if number is None else parts[number]
            if number is None or not isinstance(text, Text):
                self._losses.add("/stop", "logprobs", "dropped", "the answer has no text", "info")
                return response
            parts[number] = replace(text, extra=self._put(0, text.extra, target))
            return replace(response, parts=tuple(parts))
        others = [
            replace(other, stop=self._put_stop(number, other.stop, target))
            for number, other in enumerate(response.alternatives, 1)
        ]
        return replace(response, stop=self._put_stop(0, response.stop, target), alternatives=tuple(others))

    def take_event(self, event: Event) -> Event:
        if self._target is None:
            return event
        if type(event) is TextEnd:
            return replace(event, extra=self._take(0, event.extra, "text", "")) if event.extra else event
        if type(event) is ResponseEnd:
            stops = tuple([self._take_stop(number, stop) for number, stop in enumerate(event.stops)])
            return replace(event, stops=stops, extra=self._take(0, event.extra, "response", ""))
        return event

    def put_event(self, event: Event) -> Event:
        target = self._target
        if target is None or not self._tokens or type(event) is not ResponseEnd:
            return event
        if target.position == "response":
            return replace(event, extra=self._put(0, event.extra, target))
        # the texts of a stream have ended, so the encoder finds the first choice's log probabilities at its stop
        return replace(
            event, stops=tuple([self._put_stop(number, stop, target) for number, stop in enumerate(event.stops)])
        )

    def _take_text(self, part: Part) -> Part:
        if not isinstance(part, Text) or not part.extra:
            return part
        return replace(part, extra=self._take(0, part.extra, "text", ""))

    def _take_stop(self, choice: int, stop: Stop | None) -> Stop | None:
        if stop is None or not stop.extra:
            return stop
        path = f"/alternatives/{choice - 1}/stop" if choice else "/stop"
        return replace(stop, extra=self._take(choice, stop.extra, "stop", path))

    def _take(self, choice: int, extra: Extra, position: str, path: str) -> Extra:
        """Remove the log probabilities of another wire from an extra, and keep their tokens."""
        for scope, fields in extra.items():
            form = None if scope.partition("/")[0] == self._wire else _find_form(scope)
            if form is None or form.position != position or form.field not in fields:
                continue
            tokens = form.read(fields[form.field])
            if tokens is None:
                continue
            self._tokens.setdefault(choice, []).extend(tokens)
            if form.omitted is not None:
                detail = f"{self._wire} has no such field of a token"
                self._losses.add(f"{path}/{form.field}", form.omitted, "dropped", detail, "info")
            rest = {name: value for name, value in fields.items() if name != form.field}
            return {name: rest if name == scope else value for name, value in extra.items() if name != scope or rest}
        return extra

    def _put(self, choice: int, extra: Extra, target: LogprobForm) -> Extra:
        tokens = self._tokens.get(choice)
        if not tokens:
            return extra
        return {**extra, target.scope: {**extra.get(target.scope, {}), target.field: target.write(tokens)}}

    def _put_stop(self, choice: int, stop: Stop | None, target: LogprobForm) -> Stop | None:
        return stop if stop is None else replace(stop, extra=self._put(choice, stop.extra, target))


def may_have_logprobs(response: Response) -> bool:
    """Return whether an answer may have log probabilities. Nearly all have none, and need no converter."""
    stop = response.stop
    if response.alternatives or (stop is not None and stop.extra) or any(map(_find_form, response.extra)):
        return True
    return any(part.extra for part in response.parts if type(part) is Text)


@lru_cache(256)
def _find_form(scope: str) -> LogprobForm | None:
    """Return the form of the wire whose extras have this name, or None if they have no log probabilities."""
    try:
        form: LogprobForm | None = getattr(get(scope.partition("/")[0]), "logprobs", None)
    except ConfigError:
        return None  # an extra of something else than a wire
    return form if form is not None and form.scope == scope else None


def _first_text(parts: tuple[Part, ...]) -> int | None:
    return next((number for number, part in enumerate(parts) if isinstance(part, Text)), None)
