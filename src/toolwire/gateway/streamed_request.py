"""A request whose body is sent on while it arrives: only its first fields are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..bridge.conversation.reasoning_envelope import ENVELOPE_WIRES
from ..ir.errors import ProtocolError, ToolwireError
from ..ir.request import Request
from .client_body import ClientBody
from .client_request import ClientRequest, check_model
from .dependencies import Dependencies
from .field_scan import CountedObjects
from .routes import Route
from .routing import Target

__all__ = ["StreamedRequest", "open_streamed_request"]


class StreamedRequest(ClientRequest):
    """A request that is passed through without being held.

    Whether the answer is a stream is known from the path, or else from the upstream's reply.
    """

    has_envelopes = False  # its pieces are searched before they are sent on

    def __init__(self, route: Route, upload: ClientBody, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        self._read_head(route, headers, query)
        self.upload = upload
        self.own_work = 0  # nothing is decoded
        self.wire = route.ingress.codec_for(headers)
        self.body = b""
        self.body_model = upload.model
        self.model = check_model(route, route.model or upload.model)
        self.stream = route.stream is not False
        self.has_tools = True  # perhaps

    @property
    def request(self) -> Request:
        """Raise ProtocolError: the request is not held."""
        raise ProtocolError("the request is not held")

    def may_have_calls(self) -> bool:
        """Return False: no stored turn can be restored in it."""
        return False


def open_streamed_request(
    dependencies: Dependencies,
    route: Route,
    client_body: ClientBody,
    headers: Mapping[str, str],
    query: Mapping[str, str],
) -> StreamedRequest | None:
    """Return the request if all of its targets get the same bytes as it arrives; None if it must be read whole."""
    model = route.model or client_body.model
    if (
        not model
        or route.ingress.stores_responses
        or headers.get("content-encoding", "identity") != "identity"
        or dependencies.turn_store.has_any
        or dependencies.runner_for(model) is not None
    ):
        return None
    try:
        targets = dependencies.router.plan(model, tools=True)
        renamed = targets[0].endpoint.renamed_fields
        if (
            any(len(new) > len(old) for old, new in renamed.items())  # names of a streamed body cannot grow
            or not all(_takes_bytes(target, route.ingress.wire, renamed) for target in targets)
            or not client_body.may_stream(
                renamed,
                may_have_envelopes=route.ingress.wire in ENVELOPE_WIRES,
                counted=_count_tools(targets, route),
            )
        ):
            return None
        return StreamedRequest(route, client_body, headers, query)
    except ToolwireError:
        return None  # which is reported after the body was read


def _count_tools(targets: Sequence[Target], route: Route) -> CountedObjects | None:
    """Return the tools to count in the body: no target may get more than it accepts."""
    limits = [target.max_tools for target in targets if target.max_tools is not None]
    return CountedObjects("tools", route.ingress.tool_depth, min(limits)) if limits else None


def _takes_bytes(target: Target, wire: str, renamed: Mapping[str, str]) -> bool:
    return (
        target.keeps_requests
        and target.row.tools
        and target.endpoint.renamed_fields == renamed
        and not target.row.cache
        and target.endpoint.wire.name == wire
    )
