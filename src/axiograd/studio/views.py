"""What the page shows: its files, the state, images with their thumbnails, masks and heat maps, and events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from axiograd._version import __version__
from axiograd.errors import InputError
from axiograd.studio.chief import Chief
from axiograd.studio.marks import as_dicts
from axiograd.studio.pictures import mask_picture, png

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Pixels of the longer side of a picture on the wall.
THUMBNAIL = 160
#: Maps that are kept, by image and round.
MAPS = 2000

Handler = Callable[[Request], Awaitable[Response]]


class Views:
    """Answers that change nothing, from the session and by the worker."""

    def __init__(self, chief: Chief) -> None:
        self.chief, self.session = chief, chief.session
        self._maps: dict[tuple[int, int], tuple[bytes, int, float]] = {}
        self._thumbnail = lru_cache(4000)(self._make_thumbnail)
        self.routes: dict[str, Handler] = {
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
