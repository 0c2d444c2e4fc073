"""The server's side of the worker: starts it, gives it jobs, writes down what comes of them, and tells the page."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch.multiprocessing as processes

from axiograd.errors import AxiogradError, InputError
from axiograd.studio import worker
from axiograd.studio.marks import as_dicts
from axiograd.studio.network import Origin
from axiograd.studio.session import Session
from axiograd.studio.spreading import HOWS

Listener = Callable[[dict[str, Any]], None]
#: How often a worker is started again in a row.
RESTARTS = 3


class Chief:
    """Jobs one after the other; their results are in the session before the page hears of them."""

    def __init__(self, session: Session, origin: Origin, *, method: str = "spawn") -> None:
        self.session, self.origin, self._method = session, origin, method
        self.lock = threading.RLock()
        self.listeners: list[Listener] = []
        #: What is to be done, in its order, for a page that is opened in the middle: kind, words, done, total.
        self._jobs: dict[int, dict[str, Any]] = {}
        self.steps: list[dict[str, Any]] = []
        self.messages: list[str] = []
        #: Why there is no network, and so nothing to do.
        self.trouble: str | None = None
        self._numbers = itertools.count()
        self._futures: dict[int, Future[Any]] = {}
        self._then: dict[int, Callable[[Any], None]] = {}
        self._closing = False
        self._restarts = 0

    @property
    def job(self) -> dict[str, Any] | None:
        """What is being done."""
        return next(iter(self._jobs.values()), None)

    def open(self) -> None:
        """Start the worker, and do what is left to do."""
        self._launch()
        if self.session.state.get("pending") is not None:
            self.say("Training was interrupted when the studio was closed; it resumes after its last complete pass.")
        self._start()

    def _launch(self) -> None:
        context: Any = processes.get_context(self._method)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=worker.run,
            args=(theirs, self.session.pictures, self.origin, self.session.folder),
            daemon=True,
            name="axiograd-studio-worker",
        )
        self._process.start()
        theirs.close()
        self._reader = threading.Thread(target=self._read, args=(self._connection,), daemon=True)
        self._reader.start()

    def close(self) -> None:
        """End the worker."""
        self._closing = True
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5)

    # What the page asks for.

    def ask(self, kind: str, **arguments: Any) -> Future[Any]:
        """Something quick, answered in between."""
        return self._send(kind, arguments)

    def begin(self, kind: str, words: str, then: Callable[[Any], None], **arguments: Any) -> Future[Any]:
        """A job of some length, which the page shows."""
        with self.lock:
            number = next(self._numbers)
            self._jobs[number] = {"kind": kind, "words": words, "done": 0, "total": 0}
            self._then[number] = then
        future = self._send(kind, arguments, number)
        self.tell({"kind": "job", "job": self.job})
        return future

    def stop(self) -> None:
        """End the job that runs."""
        self._connection.send(("stop",))

    def mend(self, prior: str, strength: float, seconds: float) -> None:
        """Train from the current round, to a new one."""
        self.check_idle()
        number = len(self.session.rounds)
        shutil.rmtree(self.session.folder / "rounds" / str(number), ignore_errors=True)
        plan = {
            "parent": self.session.current,
            "number": number,
            "prior": prior,
            "strength": strength,
            "seconds": seconds,
            "seed": number,
        }
        self.session.save(pending=plan)
        self._mend(plan)

    def _mend(self, plan: dict[str, Any]) -> None:
        self.steps = []
        self.begin("mend", "Training", lambda done: self._mended(plan, done), **plan)

    def _mended(self, plan: dict[str, Any], done: dict[str, Any]) -> None:
        made = self.session.add_round(plan["parent"], seconds=plan["seconds"], **done)
        self.say(f"Round {made['id']} is trained; passes over the images: {done['plan']['epochs']}.")
        self.judge(plan["parent"], made["id"])
        self.look(made["id"])

    def look(self, number: int) -> None:
        """Survey and clusters of a round."""

        def then(found: list[dict[str, Any]]) -> None:
            self.session.change_round(number, clusters=found)
            self.session.forget_survey()

        self.begin("look", "Looking at the images", then, number=number)

    def judge(self, before: int, after: int) -> None:
        """Two rounds on held-out images, with what is painted now."""

        def then(found: dict[int, dict[str, Any]]) -> None:
            for number, verdict in found.items():
                self.session.change_round(number, verdict=verdict)
            self.session.save(compared=[before, after])

        self.begin("judge", "Judging", then, numbers=sorted({before, after}))

    def spread(self, image: int, how: str, cluster: int | None, *, preview: bool) -> Future[Any]:
        """Where the strokes of an image would go; and, without preview, put them there."""
        if how not in HOWS:
            raise InputError(f"strokes spread to {', '.join(HOWS)}; not to {how!r}.")
        strokes = self.session.marks.strokes(image)
        if not strokes:
            raise InputError("there is nothing painted on this image to spread; paint first.")
        members = None
        if how == "cluster":
            members = self._members(image, cluster)
        arguments = {"how": how, "image": image, "strokes": as_dicts(strokes), "members": members}
        if preview:
            return self.begin("spread", "Looking for matching images", lambda _: None, only=300, **arguments)
        self.check_idle()

        def then(found: list[Any]) -> None:
            if found:
                to = [list(one) for one in found]
                self.session.marks.add({"do": "spread", "how": how, "strokes": as_dicts(strokes), "to": to})
            self.say(f"Spread to {len(found)} images." if found else "No other image matches.")

        return self.begin("spread", "Spreading", then, only=None, **arguments)

    def _members(self, image: int, cluster: int | None) -> list[int]:
        if cluster is not None:
            return self.session.cluster(cluster)
        found = self.session.round(self.session.current)["clusters"]
        members = next((one["rows"] for one in found if image in one["rows"]), None)
        if members is None:
            raise InputError("this image is in no cluster; spread to the same place, the class, or similar patches.")
        rows: list[int] = members
        return rows

    def keep(self, number: int) -> Future[Any]:
        """Write the files of a round."""
        self.check_idle()
        into = self.session.folder / "kept" / f"round-{number}"

        def then(done: dict[str, Any]) -> None:
            self.say(" ".join([f"Kept in {done['folder']}: {', '.join(done['files'])}.", *done["missing"]]))

        return self.begin("keep", "Writing the files", then, number=number, rounds=self.session.rounds, into=str(into))

    def check_idle(self) -> None:
        """Raise where something is being done, or nothing can be."""
        if self.trouble is not None:
            raise InputError(self.trouble)
        if self.job is not None:
            raise InputError(f"wait until this is done, or stop it: {self.job['words']}.")

    # What comes back.

    def _start(self) -> None:
        session = self.session
        known = bool(session.rounds)

        def then(found: dict[str, Any]) -> None:
            if not known:
                session.add_round(
                    None, how=found["how"], words=found["words"], before=found["before"], after=found["after"]
                )
            number = session.current
            if not session.round(number).get("clusters") and session.survey(number) is None:
                self.look(number)
            if not session.round(number).get("verdict"):
                self.judge(number, number)
            if session.state.get("pending") is not None:
                self._mend(session.state["pending"])

        self.begin("start", "Starting", then, number=session.current if known else 0)

    def _send(self, kind: str, arguments: dict[str, Any], number: int | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        with self.lock:
            place = next(self._numbers) if number is None else number
            self._futures[place] = future
            try:
                self._connection.send(("job", place, kind, arguments))
            except (OSError, ValueError) as error:
                self._futures.pop(place)
                future.set_exception(InputError(f"the worker process has ended ({error}); it is being restarted."))
        return future

    def _read(self, connection: Any) -> None:
        while True:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                break
            self._hear(message)
        if not self._closing:
            self._lost()

    def _hear(self, message: tuple[Any, ...]) -> None:
        if message[0] == "event":
            _, kind, content = message
            if kind == "step":
                self.steps.append(content)
                self.tell({"kind": "step", **content})
            elif (job := self.job) is not None:
                job |= content
                self.tell({"kind": "job", "job": job})
            return
        kind, number, result = message
        with self.lock:
            future, then = self._futures.pop(number), self._then.pop(number, None)
            if then is not None:
                self._jobs.pop(number, None)
                self._restarts = 0
            if kind == "answer":
                if then is not None:
                    try:
                        then(result)
                    except AxiogradError as error:
                        self.say(str(error))
                future.set_result(result)
            else:
                if then is not None:
                    self._failed(str(result))
                future.set_exception(InputError(str(result)))
        if then is not None:
            self.tell({"kind": "state"})

    def _failed(self, sentence: str) -> None:
        if not self.session.rounds:
            self.trouble = sentence
        if self.session.state.get("pending") is not None:
            self.session.save(pending=None)
        self.say(sentence[:1].upper() + sentence[1:])

    def _lost(self) -> None:
        self._process.join(5)
        code = self._process.exitcode
        why = "it was killed, probably because the memory was full" if code in {-9, 137} else f"exit code {code}"
        with self.lock:
            futures, self._futures = self._futures, {}
            self._then, self._jobs = {}, {}
            if self.session.state.get("pending") is not None:
                self.session.save(pending=None)
            self._restarts += 1
        sentence = f"The worker process ended ({why}). What was painted and trained before is kept."
        for future in futures.values():
            future.set_exception(InputError(sentence))
        if self._restarts > RESTARTS:
            self.trouble = f"{sentence} It was restarted {RESTARTS} times without success."
            self.say(self.trouble)
        else:
            self.say(f"{sentence} It has been restarted.")
            self._launch()
            self._start()
        self.tell({"kind": "state"})

    # The page's ears.

    def say(self, sentence: str) -> None:
        """A sentence for the page."""
        with self.lock:
            self.messages = [*self.messages[-20:], sentence]
        self.tell({"kind": "message", "text": sentence})

    def tell(self, event: dict[str, Any]) -> None:
        """Every page that listens."""
        for listener in list(self.listeners):
            listener(event)
