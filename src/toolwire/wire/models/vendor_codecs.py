"""The codec of a vendor: the codec of its wire with the deviations in the rows of `vendors`.

vendor_codec(find("mistral"))    # openai_chat with Mistral's rule for ids and its dialect
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

from msgspec.structs import replace

from ...ir.pointer import JSON
from ...ir.response import Fault
from .. import get
from ..codec import WireCodec
from ..faults import Signature, add_breach
from ..protocol import Wire, forced_by_schema
from .chunks import ChunkStreamDecoder
from .vendor_types import Surface, Vendor
from .vendors import ALL_HOSTED


@lru_cache(64)
def _with_hosted(codec: WireCodec, hosted: frozenset[str]) -> WireCodec:
    """Return the same object each time: values that depend on a codec are cached by it."""
    can = codec.capabilities
    return replace(codec, capabilities=replace(can, hosted=can.hosted & hosted))


@lru_cache(16)  # versions of wires
def _in_chunks(codec: WireCodec) -> WireCodec:
    """Return the codec with the streams and the errors of Bedrock's InvokeModel."""
    return replace(codec, stream_decoder=partial(ChunkStreamDecoder, codec), read_error=_read_chunked_error)


def _read_chunked_error(
    status: int | None, body: JSON, headers: Mapping[str, str] | None, signatures: tuple[Signature, ...]
) -> Fault:
    """Decode an error in Bedrock's form; the wire's own signatures find an exceeded limit in its message."""
    return add_breach(get("bedrock").decode_error(status, body, headers), signatures)


def surface_codec(codec: Wire, surface: Surface | None, hosted: frozenset[str] = ALL_HOSTED) -> Wire:
    """Return the codec with the deviations of a surface, and of a vendor that runs only these `hosted` tools.

    A server with the wire of another provider rarely runs the tools of that provider.
    """
    if isinstance(codec, WireCodec) and not codec.capabilities.hosted <= hosted:
        codec = _with_hosted(codec, hosted)
    if surface is not None and surface.in_chunks and isinstance(codec, WireCodec):
        codec = _in_chunks(codec)
    if surface is None or not isinstance(codec, WireCodec) or (surface.counts_on_request and surface.marks_body):
        return codec
    can = codec.capabilities
    cache = can.cache if surface.marks_body else can.cache - {"request"}
    counts_on_request = can.counts_on_request and surface.counts_on_request
    return replace(codec, capabilities=replace(can, cache=cache, counts_on_request=counts_on_request))


def vendor_codec(vendor: Vendor, wire: str | None = None) -> Wire:
    """Return the codec of `wire`, by default the vendor's wire, with the deviations of the vendor if it is its wire."""
    codec = get(wire or vendor.wire)
    if not isinstance(codec, WireCodec) or codec.name != get(vendor.wire).name:
        return codec  # a third party's implementation declares its own deviations
    changes: dict[str, object] = {}
    if vendor.dialect is not None:
        changes["dialect"] = vendor.dialect
    limits = codec.limits
    if vendor.id is not None:
        limits = replace(limits, id=vendor.id, id_length=vendor.id_length)
    if not vendor.limits_tools:
        limits = replace(limits, tools=None)
    if limits is not codec.limits:
        changes["limits"] = limits
    can = codec.capabilities
    if vendor.choice_by_schema is not None:
        can = forced_by_schema(can, vendor.choice_by_schema)
    if not vendor.cache_marks:
        can = replace(can, cache=frozenset({"request"}) if vendor.marks_body else frozenset())
    if not vendor.counts_on_request:
        can = replace(can, counts_on_request=False)
    if vendor.rejected_fields or vendor.rejected_kinds:
        can = replace(can, rejected_fields=vendor.rejected_fields, rejected_kinds=vendor.rejected_kinds)
    if can is not codec.capabilities:
        changes["capabilities"] = can
    return replace(codec, **changes) if changes else codec
