"""The local server: what the page shows, and what a person does there; trouble becomes a sentence for the page."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from axiograd.errors import AxiogradError, InputError
from axiograd.studio.chief import Chief
from axiograd.studio.marks import Stroke, as_dicts
from axiograd.studio.mask_files import import_masks, write_masks
from axiograd.studio.mending import PRIORS
from axiograd.studio.views import Handler, Views

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


class Server:
    """What the page asks for, given to the session and to the worker."""

    def __init__(self, chief: Chief, token: str | None = None) -> None:
        self.chief, self.session = chief, chief.session
        self.token = token or secrets.token_urlsafe(24)
        shown = Views(chief).routes
        done = {
            "api/stroke": self.stroke,
            "api/undo": self.undo,
            "api/preview": self.preview,
            "api/spread": self.spread,
            "api/mend": self.mend,
            "api/stop": self.stop,
            "api/go": self.go,
            "api/judge": self.judge,
            "api/keep": self.keep,
            "api/import": self.import_masks,
            "api/export": self.export_masks,
        }
        routes = [Route(f"/{self.token}/{path}", self._said(how), methods=["GET"]) for path, how in shown.items()]
        routes += [Route(f"/{self.token}/{path}", self._said(how), methods=["POST"]) for path, how in done.items()]
        self.app = Door(Starlette(routes=routes), self.token)

    @staticmethod
    def _said(handler: Handler) -> Handler:
        """Trouble becomes a sentence for the page."""

        async def handle(request: Request) -> Response:
            try:
                answer = await handler(request)
            except AxiogradError as error:
                text = str(error)
                answer = JSONResponse({"error": text[:1].upper() + text[1:]}, 422)
            except (ValueError, KeyError, TypeError) as error:
                answer = JSONResponse({"error": f"That cannot be read: {error!r}."}, 400)
            answer.headers.update(HEADERS)
            return answer

        return handle

    async def stroke(self, request: Request) -> Response:
        given = await request.json()
        image = int(given["image"])
        if not 0 <= image < len(self.session.pictures):
            raise InputError(f"there is no image {image}.")
        stroke = as_dicts([Stroke.ensure(given)])[0]
        with self.chief.lock:
            self.session.marks.add({"do": "stroke", "image": image, **stroke})
        return self._counts()

    async def undo(self, request: Request) -> Response:  # noqa: ARG002
        with self.chief.lock:
            undone = self.session.marks.undo()
        if undone is None:
            raise InputError("there is nothing to undo.")
        return self._counts(undone=undone["do"], image=undone.get("image"))

    def _counts(self, **further: Any) -> JSONResponse:
        self.chief.tell({"kind": "marks"})
        marks = self.session.marks
        return JSONResponse({"painted": len(marks.painted()), "marked": len(marks.images()), **further})

    async def preview(self, request: Request) -> Response:
        """What a spread would hit: how many images, and some of them."""
        given = await request.json()
        image, how = int(given["image"]), str(given["how"])
        cluster = given.get("cluster")
        found = await asyncio.wrap_future(self.chief.spread(image, how, cluster, preview=True))
        total = len(self.session.pictures)
        looked = min(total, 300) if how == "patches" else total
        count = round(len(found) * total / looked) if how == "patches" else len(found)
        step = max(1, len(found) // 12)
        return JSONResponse(
            {
                "count": count,
                "estimated": how == "patches" and looked < total,
                "examples": [{"image": i, "down": d, "right": r} for i, d, r in found[::step][:12]],
            }
        )

    async def spread(self, request: Request) -> Response:
        given = await request.json()
        done = self.chief.spread(int(given["image"]), str(given["how"]), given.get("cluster"), preview=False)
        found = await asyncio.wrap_future(done)
        return self._counts(spread=len(found))

    async def mend(self, request: Request) -> Response:
        given = await request.json()
        prior, strength, seconds = str(given["prior"]), float(given["strength"]), float(given["seconds"])
        if prior not in PRIORS or not 0 < seconds <= 86_400:  # noqa: PLR2004  # a day
            raise InputError(
                f"cannot train with {prior!r} for {seconds:g} s: choose {', '.join(PRIORS)}, and up to a day."
            )
        self.chief.mend(prior, strength, seconds)
        return JSONResponse({})

    async def stop(self, request: Request) -> Response:  # noqa: ARG002
        self.chief.stop()
        return JSONResponse({})

    async def go(self, request: Request) -> Response:
        number = int((await request.json())["round"])
        with self.chief.lock:
            self.chief.check_idle()
            self.session.go_to(number)
        if self.session.survey(number) is None:
            self.chief.look(number)
        self.chief.tell({"kind": "state"})
        return JSONResponse({})

    async def judge(self, request: Request) -> Response:
        before, after = (int(one) for one in (await request.json())["rounds"])
        for one in (before, after):
            self.session.round(one)
        self.chief.check_idle()
        self.chief.judge(before, after)
        return JSONResponse({})

    async def keep(self, request: Request) -> Response:
        number = int((await request.json()).get("round", self.session.current))
        self.session.round(number)
        return JSONResponse(await asyncio.wrap_future(self.chief.keep(number)))

    async def import_masks(self, request: Request) -> Response:
        folder = Path(str((await request.json())["folder"]))
        with self.chief.lock:
            count = import_masks(folder, self.session.pictures, self.session.marks, self.session.folder)
        return self._counts(imported=count)

    async def export_masks(self, request: Request) -> Response:  # noqa: ARG002
        if not self.session.marks.images():
            raise InputError("nothing is marked yet; paint first.")
        into = self.session.folder / "masks"
        files = await asyncio.to_thread(write_masks, into, self.session.pictures, self.session.marks)
        return JSONResponse({"folder": str(into), "images": len(files)})


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
