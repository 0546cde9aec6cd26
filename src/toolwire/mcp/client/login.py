"""Authorization for servers that require it: OAuth tokens, kept in memory and renewed when they expire.

    McpClient(spec, login=Login(Browser()))

An expired token is renewed when the server rejects it. `visit` sends the user to a URL and returns the URL that they
are redirected to; `Browser` does so with the user's browser.
"""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from ...ir.errors import ConfigError
from ...ir.terminal import neutralise_line
from .failures import NotAuthorized
from .http import Sender
from .oauth import (
    Challenge,
    ClientRegistration,
    Fetch,
    FetchResult,
    Grant,
    OAuthClient,
    OAuthSteps,
    OpenBrowser,
    authorize,
    refresh,
)

_TIMEOUT = 30.0  # seconds for a request without computation
_MAX_RESPONSE = 1024 * 1024  # bytes; metadata and tokens have a few kB


class Login:
    """The tokens of one server.

    `client_id`, `secret` and `issuer`: an existing registration at an authorization server. `metadata_url`: the URL
    of a client metadata document.
    """

    def __init__(
        self,
        visit: Callable[[str], Awaitable[str]],
        *,
        redirect: str = "http://127.0.0.1:8765/callback",
        name: str = "toolwire",
        client_id: str | None = None,
        secret: str | None = None,
        issuer: str | None = None,
        metadata_url: str | None = None,
    ) -> None:
        self._visit = visit
        self._oauth_client = OAuthClient(
            redirect,
            lambda length: secrets.token_urlsafe(length)[:length],
            name,
            client_id,
            secret,
            issuer,
            metadata_url,
        )
        self._registrations: dict[str, ClientRegistration] = {}  # by issuer
        self._grant: Grant | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str | None:
        return None if self._grant is None else self._grant.token

    async def handle_challenge(
        self, sender: Sender, url: str, status: int, challenge: str, used_token: str | None
    ) -> None:
        """Obtain a new token after a 401 or 403: by the refresh token, otherwise by asking the user.

        `used_token` is the rejected token. A second login would not help if all demanded scopes were already requested:
        that raises NotAuthorized.
        """
        async with self._lock:
            if self._grant is not None and self._grant.token != used_token:
                return  # another request has renewed the token meanwhile
            parsed_challenge = Challenge.read(challenge)
            if status == 401 and await self._renew(sender):
                return
            granted_scopes = frozenset() if self._grant is None else self._grant.scopes
            if status == 403 and parsed_challenge.scope and granted_scopes >= set(parsed_challenge.scope.split()):
                raise NotAuthorized(f"access denied although scope {parsed_challenge.scope} was requested", http=status)
            self._grant = await self._run_flow(
                sender, authorize(url, parsed_challenge, self._oauth_client, self._registrations, granted_scopes)
            )

    async def _renew(self, sender: Sender) -> bool:
        """Renew the token with the refresh token. Return False if there is none, or if it is refused."""
        if self._grant is None or self._grant.refresh_token is None:
            return False
        try:
            self._grant = await self._run_flow(sender, refresh(self._grant))
        except NotAuthorized:
            self._grant = None  # the refresh token is no longer valid
            return False
        return True

    async def _run_flow(self, sender: Sender, steps: OAuthSteps) -> Grant:
        """Run the sans-IO steps of `oauth` and return the grant: fetch URLs, and send the user to the named pages."""
        try:
            step = next(steps)
            while True:
                step = steps.send(
                    await self._visit(step.url) if isinstance(step, OpenBrowser) else await _fetch(sender, step)
                )
        except StopIteration as done:
            grant: Grant = done.value
            return grant


async def _fetch(sender: Sender, step: Fetch) -> FetchResult:
    """Perform one HTTP request of the flow; NotAuthorized if it fails, or if the response is too large.

    It is limited because the URL comes from an untrusted server.
    """
    pieces, size = [], 0
    try:
        async with sender.send(step.method, step.url, {}, step.headers, step.body, _TIMEOUT) as reply:
            while data := await reply.read():
                size += len(data)
                if size > _MAX_RESPONSE:
                    raise NotAuthorized(
                        f"the response of {neutralise_line(step.url[:200])} exceeds {_MAX_RESPONSE} bytes"
                    )
                pieces.append(data)
            return FetchResult(reply.status, b"".join(pieces))
    except OSError as error:
        raise NotAuthorized(f"cannot reach {neutralise_line(step.url[:200])}: {error}") from None


class Browser:
    """Open the user's browser, and wait for the redirect to `redirect` on this machine."""

    # A person has to log in, perhaps with a second factor.
    def __init__(self, redirect: str = "http://127.0.0.1:8765/callback", *, seconds: float = 300.0) -> None:
        parts = urlsplit(redirect)
        if parts.hostname not in ("127.0.0.1", "localhost") or parts.port is None:
            raise ConfigError(f"redirect {redirect} is not on this machine", hint="use http://127.0.0.1:8765/callback")
        self.redirect = redirect
        self._port = parts.port
        self._path = parts.path
        self._seconds = seconds

    async def __call__(self, url: str) -> str:
        """Open `url` in the browser and return the target of the redirect. Listen before the browser opens.

        NotAuthorized if the port is taken, or no redirect arrives in time.
        """
        redirect_future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Answer one request of the browser. Other requests, for example of a web page, do not end the wait."""
            target = await _read_target(reader)
            is_callback = urlsplit(target).path == self._path and _states(target) == _states(url)
            body = b"You can close this window." if is_callback else b"Not here."
            head = b"HTTP/1.1 200 OK" if is_callback else b"HTTP/1.1 404 Not Found"
            writer.write(head + b"\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n" + body)
            writer.close()
            if is_callback and not redirect_future.done():
                redirect_future.set_result(target)

        try:
            server = await asyncio.start_server(answer, "127.0.0.1", self._port)
        except OSError as error:
            raise NotAuthorized(f"cannot listen for the redirect to {self.redirect}: {error.strerror}") from None
        async with server:
            await asyncio.to_thread(webbrowser.open, url)
            try:
                return await asyncio.wait_for(redirect_future, self._seconds)
            except TimeoutError:
                raise NotAuthorized(f"no redirect from the browser within {self._seconds:g} seconds") from None


async def _read_target(reader: asyncio.StreamReader) -> str:
    """Return the target of a GET request; empty for anything else."""
    try:
        line = await asyncio.wait_for(reader.readline(), _TIMEOUT)
    except (TimeoutError, ValueError):  # too slow, or too long
        return ""
    method, _, rest = line.decode("latin-1").partition(" ")
    return rest.partition(" ")[0] if method == "GET" else ""


def _states(url: str) -> list[str]:
    """Return the values of the parameter `state`, which only the authorization server and this process know."""
    return parse_qs(urlsplit(url).query).get("state", [])
