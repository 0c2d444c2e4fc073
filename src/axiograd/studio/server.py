"""The local server: one page and what it asks for; nobody without the token in the address is answered."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from axiograd._version import __version__
from axiograd.errors import AxiogradError, InputError
from axiograd.studio.chief import Chief
from axiograd.studio.marks import Stroke, as_dicts
from axiograd.studio.mask_files import import_masks, write_masks
from axiograd.studio.mending import PRIORS
from axiograd.studio.pictures import mask_picture, png

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
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
#: Pixels of the longer side of a picture on the wall.
THUMBNAIL = 160
#: Maps that are kept, by image and round.
MAPS = 2000


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
            answer = PlainTextResponse("The address is not complete: open the one that the studio has printed.", 403)
        elif int(headers.get("content-length", "0") or 0) > LONGEST:
            answer = PlainTextResponse("That is too long.", 413)
        else:
            await self.app(scope, receive, send)
            return
        answer.headers.update(HEADERS)
        await answer(scope, receive, send)


Handler = Callable[[Request], Awaitable[Response]]


class Server:
    """What the page asks, answered from the session and by the worker."""

    def __init__(self, chief: Chief, token: str | None = None) -> None:
        self.chief, self.session = chief, chief.session
        self.token = token or secrets.token_urlsafe(24)
        self._maps: dict[tuple[int, int], tuple[bytes, int, float]] = {}
        self._thumbnail = lru_cache(4000)(self._make_thumbnail)
        get = {
            "": self.page,
            "assets/{name}": self.asset,
            "api/state": self.state,
            "api/images": self.images,
            "api/thumb/{image:int}.png": self.thumbnail,
            "api/image/{image:int}.png": self.picture,
            "api/mask/{image:int}.png": self.mask,
            "api/map/{round:int}/{image:int}.png": self.map,
            "api/about/{image:int}": self.about,
            "api/events": self.events,
        }
        post = {
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
        routes = [Route(f"/{self.token}/{path}", self._said(how), methods=["GET"]) for path, how in get.items()]
        routes += [Route(f"/{self.token}/{path}", self._said(how), methods=["POST"]) for path, how in post.items()]
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

    async def page(self, request: Request) -> Response:  # noqa: ARG002
        return self._file("studio.html")

    async def asset(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    @staticmethod
    def _file(name: str) -> Response:
        known = {one.name: one for one in resources.files("axiograd.studio").joinpath("assets").iterdir()}
        kind = TYPES.get(Path(name).suffix)
        if name not in known or kind is None:
            return PlainTextResponse("There is no such file.", 404)
        return Response(known[name].read_bytes(), media_type=kind)

    async def state(self, request: Request) -> Response:  # noqa: ARG002
        """Everything but the images."""
        session, chief = self.session, self.chief
        pictures = session.pictures
        rounds = [{key: value for key, value in one.items() if key != "clusters"} for one in session.rounds]
        for one in rounds:
            if one.get("verdict"):
                one["verdict"] = {key: value for key, value in one["verdict"].items() if key != "right"}
        clusters = session.round(session.current)["clusters"] if session.rounds else []
        painted, marked = session.marks.painted(), session.marks.images()
        return JSONResponse(
            {
                "version": __version__,
                "data": pictures.name,
                "model": chief.origin.name,
                "images": len(pictures),
                "size": [session.shape[1], session.shape[0]],
                "classes": list(pictures.classes),
                "skipped": list(pictures.skipped[:20]),
                "skipped_count": len(pictures.skipped),
                "rounds": rounds,
                "current": session.current,
                "compared": session.state["compared"],
                "changes": self._changes(),
                "clusters": [{key: value for key, value in one.items() if key != "rows"} for one in clusters],
                "painted": len(painted),
                "marked": len(marked),
                "job": chief.job,
                "steps": chief.steps[-400:],
                "messages": chief.messages[-5:],
                "trouble": chief.trouble,
                "folder": str(session.folder),
            }
        )

    def _changes(self) -> dict[str, Any] | None:
        """What became right and what became wrong between the two rounds that are compared."""
        compared = self.session.state["compared"]
        if not compared or compared[0] == compared[1]:
            return None
        before, after = (set(self.session.round(one)["verdict"]["right"]) for one in compared)
        gained, lost = sorted(after - before), sorted(before - after)
        return {"gained": len(gained), "lost": len(lost), "gained_rows": gained[:24], "lost_rows": lost[:24]}

    async def images(self, request: Request) -> Response:
        """A part of what is found."""
        asked = request.query_params
        label = asked.get("label")
        cluster = asked.get("cluster")
        rows = self.session.find(
            label=int(label) if label else None,
            show=asked.get("show", "all"),
            text=asked.get("text", "")[:200],
            cluster=int(cluster) if cluster else None,
            sort=asked.get("sort", "suspicious"),
        )
        start, count = max(0, int(asked.get("start", "0"))), min(200, int(asked.get("count", "60")))
        return JSONResponse({"total": len(rows), "images": [self._about(row) for row in rows[start : start + count]]})

    def _about(self, image: int) -> dict[str, Any]:
        session = self.session
        pictures = session.pictures
        found: dict[str, Any] = {
            "image": image,
            "name": pictures.names[image],
            "label": int(pictures.targets[image]),
            "marked": any(mask is not None for mask in session.marks.masks(image)),
        }
        survey = session.survey(session.current) if session.rounds else None
        if survey is not None:
            place = int(survey.rows.searchsorted(image))
            if place < len(survey.rows) and survey.rows[place] == image:
                found |= {"prediction": int(survey.predictions[place]), "confidence": float(survey.confidences[place])}
        return found

    async def about(self, request: Request) -> Response:
        image = self._image(request)
        strokes = as_dicts(self.session.marks.strokes(image))
        return JSONResponse(self._about(image) | {"strokes": strokes})

    def _image(self, request: Request) -> int:
        image = int(request.path_params["image"])
        if image >= len(self.session.pictures):
            raise InputError(f"there is no image {image}; there are {len(self.session.pictures)}.")
        return image

    def _make_thumbnail(self, image: int) -> bytes:
        return png(self.session.pictures.picture(image), THUMBNAIL)

    async def thumbnail(self, request: Request) -> Response:
        content = await asyncio.to_thread(self._thumbnail, self._image(request))
        return Response(content, media_type="image/png")

    async def picture(self, request: Request) -> Response:
        image = self._image(request)
        content = await asyncio.to_thread(lambda: png(self.session.pictures.picture(image)))
        return Response(content, media_type="image/png")

    async def mask(self, request: Request) -> Response:
        wrong, right = self.session.marks.masks(self._image(request))
        return Response(mask_picture(wrong, right, self.session.shape), media_type="image/png")

    async def map(self, request: Request) -> Response:
        """A heat map, with the prediction in the headers; during training, of the network as it is now."""
        image, number = self._image(request), int(request.path_params["round"])
        key = (image, number)
        if key not in self._maps:
            found = await asyncio.wrap_future(self.chief.ask("map", image=image, number=number))
            if number < len(self.session.rounds):
                self._maps[key] = found
                if len(self._maps) > MAPS:
                    del self._maps[next(iter(self._maps))]
        else:
            found = self._maps[key]
        content, prediction, confidence = found
        headers = {"x-prediction": str(prediction), "x-confidence": f"{confidence:.4f}"}
        return Response(content, media_type="image/png", headers=headers)

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
            raise InputError(f"a training with {prior!r} for {seconds:g} s cannot be done.")
        self.chief.mend(prior, strength, seconds)
        return JSONResponse({})

    async def stop(self, request: Request) -> Response:  # noqa: ARG002
        self.chief.stop()
        return JSONResponse({})

    async def go(self, request: Request) -> Response:
        number = int((await request.json())["round"])
        with self.chief.lock:
            self.chief._idle()  # noqa: SLF001  # its own room
            self.session.go_to(number)
        if self.session.survey(number) is None:
            self.chief.look(number)
        self.chief.tell({"kind": "state"})
        return JSONResponse({})

    async def judge(self, request: Request) -> Response:
        before, after = (int(one) for one in (await request.json())["rounds"])
        for one in (before, after):
            self.session.round(one)
        self.chief._idle()  # noqa: SLF001
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

    async def events(self, request: Request) -> Response:
        """Server-sent events: what happens, as it happens."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]]()

        def listen(event: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        async def stream() -> AsyncIterator[str]:
            self.chief.listeners.append(listen)
            try:
                yield "retry: 1000\n\n"
                while not await request.is_disconnected():
                    try:
                        event = await asyncio.wait_for(queue.get(), 10)
                    except TimeoutError:
                        yield ": still here\n\n"
                        continue
                    yield f"data: {json.dumps(event)}\n\n"
            finally:
                self.chief.listeners.remove(listen)

        return StreamingResponse(stream(), media_type="text/event-stream")
