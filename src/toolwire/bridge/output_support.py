"""Determine a target's support for structured outputs, before a request is sent.

Separate because a client asks it to choose between a structured output and a tool, without preparing a request.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..ir.losses import Losses
from ..ir.request import Request
from ..schema.dialects import output_dialect
from ..wire.codec import WireCodec
from ..wire.models.capabilities import UNKNOWN_MODEL, ModelCapabilities
from ..wire.models.profiles import fit_codec
from ..wire.protocol import Wire
from .fit_output import fit_output

__all__ = ["OutputSupport", "output_support"]

OutputSupport: TypeAlias = Literal["enforced", "accepted", "stated"]
"""`accepted`: the schema is sent, and the server may ignore it. `stated`: it is only part of the instructions."""


def output_support(request: Request, wire: Wire, capabilities: ModelCapabilities) -> OutputSupport:
    """Return the treatment of the schema in `request.output`, which may depend on the tools of the request."""
    if capabilities is not UNKNOWN_MODEL and isinstance(wire, WireCodec):
        wire = fit_codec(wire, capabilities)
    output = fit_output(request, wire, Losses()).output
    if output is None or output.kind != "json_schema":
        return "stated"
    is_optional = output_dialect(wire.dialect, strict=True) is not output_dialect(wire.dialect, strict=None)
    return "accepted" if is_optional and not output.strict else "enforced"
