"""Who is answered: requests with the token, to this machine by its own name, and from the page itself."""

from __future__ import annotations

import secrets

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

#: Nothing from elsewhere, no inline script, no frame around it, and no address with its token told to anybody.
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
#: Bytes of the longest request: a stroke of twenty thousand points.
LONGEST = 2_000_000


class Door:
    """Answers only requests with the token, to this machine by its own name, and from the page itself."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        origin = headers.get("origin")
        first = scope["path"].split("/")[1] if scope["path"].count("/") else ""
        if host not in {"127.0.0.1", "localhost"} or (origin is not None and origin != f"http://{headers['host']}"):
            answer: Response = PlainTextResponse("This page is for this machine alone.", 403)
        elif not secrets.compare_digest(first.encode(), self.token.encode()):
            answer = PlainTextResponse("The address is not complete: open the one that the studio printed.", 403)
        elif int(headers.get("content-length", "0") or 0) > LONGEST:
            answer = PlainTextResponse("That is too long.", 413)
        else:
            await self.app(scope, receive, send)
            return
        answer.headers.update(HEADERS)
        await answer(scope, receive, send)
