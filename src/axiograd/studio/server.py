"""The local server: what the page shows, and what a person does there; an error becomes a sentence for the page."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from axiograd.errors import AxiogradError, InputError
from axiograd.studio.images import mask_image, png
from axiograd.studio.marks import as_dicts
from axiograd.studio.worker import Worker

#: Pixels of the longer side of an image on the wall.
THUMBNAIL = 160


class Server:
    """What the page asks for, given to the session and to the worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.session, self.pictures = worker, worker.session, worker.pictures
        #: Who does not know it sees nothing.
        self.token = secrets.token_urlsafe(24)
        self._thumbnail = lru_cache(4000)(lambda image: png(self.pictures.picture(image), THUMBNAIL))
        assets = Path(__file__).parent / "assets"

        async def page(request: Request) -> Response:  # noqa: ARG001
            return FileResponse(assets / "studio.html")

        shown = {
            "state": self.state,
            "images": self.images,
            "thumb/{image:int}.png": self.thumbnail,
            "image/{image:int}.png": self.image,
            "mask/{image:int}.png": self.mask,
            "map/{round:int}/{image:int}.png": self.map,
            "about/{image:int}": self.about,
            "events": self.events,
        }
        done = {
            "stroke": self.stroke,
            "undo": self.undo,
            "preview": self.preview,
            "spread": self.spread,
            "fix": self.fix,
            "stop": self.stop,
            "go": self.go,
            "keep": self.keep,
        }
        routes = [
            Route("/", page),
            *(Route(f"/api/{path}", handler, methods=["GET"]) for path, handler in shown.items()),
            *(Route(f"/api/{path}", handler, methods=["POST"]) for path, handler in done.items()),
            Mount("/assets", StaticFiles(directory=assets)),
            Mount("/shared", StaticFiles(packages=[("axiograd.report", "assets")])),
        ]
        self.app = Starlette(
            routes=[Mount(f"/{self.token}", routes=routes)],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
            exception_handlers={AxiogradError: _sentence},
        )

    async def state(self, request: Request) -> Response:  # noqa: ARG002
        """Everything but the images."""
        session, worker, pictures = self.session, self.worker, self.pictures
        rounds = [one | {"clusters": None, "verdict": _without(one["verdict"], "right")} for one in session.rounds]
        height, width = pictures.shape
        return JSONResponse(
            {
                "data": pictures.name,
                "model": worker.origin.name,
                "images": len(pictures),
                "size": [width, height],
                "classes": list(pictures.classes),
                "skipped": list(pictures.skipped[:20]),
                "skipped_count": len(pictures.skipped),
                "rounds": rounds,
                "current": session.current,
                "changes": self._changes(),
                "clusters": [_without(one, "rows") for one in session.clusters()],
                **self._marked(),
                "job": worker.job,
                "steps": worker.steps,
                "messages": worker.messages,
                "trouble": worker.trouble,
            }
        )

    def _marked(self) -> dict[str, int]:
        return {"painted": len(self.session.marks.painted()), "marked": len(self.session.marks.images())}

    def _changes(self) -> dict[str, Any] | None:
        """What became right, and what became wrong, in the current round."""
        after = self.session.rounds[self.session.current] if self.session.rounds else None
        if after is None or after["parent"] is None or after["verdict"] is None:
            return None
        right = [set(one["verdict"]["right"]) for one in (self.session.round(after["parent"]), after)]
        gained, lost = sorted(right[1] - right[0]), sorted(right[0] - right[1])
        return {"gained": len(gained), "lost": len(lost), "shown": [*gained, *lost][:2]}

    async def images(self, request: Request) -> Response:
        """A part of what is found."""
        asked = request.query_params
        rows = self.session.find(
            label=int(asked["label"]) if asked.get("label") else None,
            show=asked["show"],
            text=asked["text"],
            cluster=int(asked["cluster"]) if asked.get("cluster") else None,
        )
        start, count = int(asked["start"]), int(asked["count"])
        return JSONResponse({"total": len(rows), "images": self._described(rows[start : start + count])})

    def _described(self, images: Iterable[int]) -> list[dict[str, Any]]:
        survey = self.session.survey(self.session.current)
        seen = {} if survey is None else {int(row): place for place, row in enumerate(survey.rows)}
        found = []
        for image in images:
            one = {"image": image, "name": self.pictures.names[image], "label": int(self.pictures.targets[image])}
            if survey is not None and (place := seen.get(image)) is not None:
                one["prediction"] = int(survey.predictions[place])
                one["confidence"] = float(survey.confidences[place])
            found.append(one)
        return found

    def _image(self, image: int) -> int:
        if not 0 <= image < len(self.pictures):
            raise InputError(f"there is no image {image}; there are {len(self.pictures)}.")
        return image

    async def about(self, request: Request) -> Response:
        image = self._image(request.path_params["image"])
        strokes = as_dicts(self.session.marks.strokes(image))
        return JSONResponse(self._described([image])[0] | {"strokes": strokes})

    async def thumbnail(self, request: Request) -> Response:
        content = await asyncio.to_thread(self._thumbnail, self._image(request.path_params["image"]))
        return Response(content, media_type="image/png")

    async def image(self, request: Request) -> Response:
        image = self._image(request.path_params["image"])
        content = await asyncio.to_thread(lambda: png(self.pictures.picture(image)))
        return Response(content, media_type="image/png")

    async def mask(self, request: Request) -> Response:
        wrong, right = self.session.marks.masks(self._image(request.path_params["image"]))
        return Response(mask_image(wrong, right, self.pictures.shape), media_type="image/png")

    async def map(self, request: Request) -> Response:
        """A heat map; during training, of the network as it is now."""
        image, number = self._image(request.path_params["image"]), request.path_params["round"]
        content = await asyncio.wrap_future(self.worker.ask(partial(self.worker.map, image, number)))
        return Response(content, media_type="image/png")

    async def events(self, request: Request) -> Response:  # noqa: ARG002
        """Server-sent events: what happens, as it happens."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]]()

        def listen(event: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        async def stream() -> AsyncIterator[str]:
            self.worker.listeners.append(listen)
            try:
                yield "retry: 1000\n\n"
                while (event := await queue.get())["kind"] != "closed":
                    yield f"data: {json.dumps(event)}\n\n"
            finally:
                self.worker.listeners.remove(listen)

        return StreamingResponse(stream(), media_type="text/event-stream")

    # What a person does.

    async def stroke(self, request: Request) -> Response:
        given = await request.json()
        self.session.marks.add(given | {"do": "stroke", "image": self._image(given["image"])})
        return self._painted()

    async def undo(self, request: Request) -> Response:
        image = (await request.json())["image"]
        undone = self.session.marks.undo(image)
        if undone is None:
            raise InputError("nothing was painted on this image itself; the eraser takes off what was spread here.")
        return self._painted(undone=undone["do"])

    def _painted(self, **further: Any) -> JSONResponse:
        self.worker.tell("marks", **self._marked())
        return JSONResponse(further)

    async def preview(self, request: Request) -> Response:
        """What a spread would hit."""
        given = await request.json()
        question = partial(self.worker.preview, given["image"], given["how"])
        return JSONResponse(await asyncio.wrap_future(self.worker.ask(question)))

    async def spread(self, request: Request) -> Response:
        given = await request.json()
        image, how, marks = given["image"], given["how"], self.session.marks
        strokes = as_dicts(marks.strokes(image))
        work = partial(self.worker.spread, image, how)
        found = await asyncio.wrap_future(self.worker.begin("spread", "Spreading", work))
        if found:
            marks.add({"do": "spread", "image": image, "how": how, "strokes": strokes, "to": found})
        return self._painted(spread=len(found))

    async def fix(self, request: Request) -> Response:
        given = await request.json()
        work = partial(self.worker.fix, given["prior"], float(given["strength"]), float(given["seconds"]))
        self.worker.begin("fix", "Getting ready to train", work)
        return JSONResponse({})

    async def stop(self, request: Request) -> Response:  # noqa: ARG002
        self.worker.stop()
        return JSONResponse({})

    async def go(self, request: Request) -> Response:
        number = (await request.json())["round"]
        self.worker.begin("show", "Going there", partial(self.worker.show, number))
        return JSONResponse({})

    async def keep(self, request: Request) -> Response:  # noqa: ARG002
        self.worker.begin("keep", "Writing the files", partial(self.worker.keep, self.session.current))
        return JSONResponse({})


async def _sentence(request: Request, error: Exception) -> Response:  # noqa: ARG001
    text = str(error)
    return JSONResponse({"error": text[:1].upper() + text[1:]}, 422)


def _without(content: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    return content and {key: value for key, value in content.items() if key != name}
