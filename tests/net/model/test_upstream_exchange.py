"""The meaning of each reply of an upstream."""

from tables import every_case
from toolwire.ir.response import Fault
from toolwire.net.model.upstream_exchange import UpstreamExchange

JSON = {"content-type": "application/json; charset=utf-8"}
EVENTS = {"content-type": "text/event-stream"}


class KeyedEndpoint:
    """An endpoint whose key a command can renew, if `renews`."""

    def __init__(self, *, renews):
        self.renews = renews
        self.dropped = []

    def url(self, *, stream):
        return "https://upstream.example/stream" if stream else "https://upstream.example/whole"

    def drop_key(self, status, secrets):
        if status == 401:
            self.dropped.append(secrets)
        return status == 401 and self.renews


class Sent:
    """A request that was sent; its errors are decoded to a fault with their bytes."""

    body, headers = b"{}", {}

    def __init__(self, *, renews=False):
        self.endpoint = KeyedEndpoint(renews=renews)

    def decode_fault(self, status, data, headers):
        return Fault("server", data.decode(), status)


@every_case(
    ("stream", "status", "headers", "meaning"),
    [
        (False, 200, JSON, "whole"),
        (False, 200, {}, "whole"),
        (True, 200, EVENTS, "stream"),
        (True, 201, {}, "stream"),
        (True, 200, JSON, "whole"),  # a server that does not stream
        (True, 200, {"content-type": " Application/JSON "}, "whole"),
        (False, 302, {"location": "https://elsewhere.example"}, "redirect"),
        (False, 400, JSON, "fault"),
        (True, 401, JSON, "fault"),
        (True, 503, {}, "fault"),
        (True, 199, {}, "fault"),
    ],
)
def test_reply_has_one_meaning(stream, status, headers, meaning):
    exchange = UpstreamExchange(Sent(), stream)
    assert exchange.url.endswith("stream" if stream else "whole")
    assert exchange.receive_head(status, headers, {}) == meaning


def test_refused_key_is_renewed_once():
    sent = Sent(renews=True)
    exchange = UpstreamExchange(sent, _stream=False)
    assert exchange.receive_head(401, {}, {"key": "old"}) == "resend"
    assert exchange.receive_head(401, {}, {"key": "new"}) == "fault"
    assert sent.endpoint.dropped == [{"key": "old"}]


def test_fault_has_the_date_of_its_retry():
    exchange = UpstreamExchange(Sent(), _stream=False)
    assert exchange.receive_head(429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, {}) == "fault"
    fault = exchange.receive_fault(b"too many")
    assert (fault.status, fault.message, fault.retry_after) == (429, "too many", 0.0)
