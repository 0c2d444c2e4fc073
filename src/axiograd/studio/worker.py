"""The one thread that works with the network: it looks, trains, judges and keeps, and can be stopped between batches.

There is one job at a time. Heat maps and previews are quick, and are answered between the batches of a job.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from axiograd.attribution import XGradient
from axiograd.errors import AxiogradError, InputError
from axiograd.homogeneity import to_xdnn
from axiograd.studio import clusters, fixing, network, spreading
from axiograd.studio.images import heat_map
from axiograd.studio.judging import judge
from axiograd.studio.keeping import keep
from axiograd.studio.network import Origin
from axiograd.studio.session import Session
from axiograd.studio.survey import Progress, explained, look, quietly, sample, split

#: Images that are looked at for clusters, and judged by; the others are looked at when they are shown.
LOOKED_AT, JUDGED_BY = 3000, 2000
#: Examples that a network is converted on.
EXAMPLES = 200
#: Images by which a spread is previewed.
PREVIEWED = 300
#: Networks and heat maps that are kept at hand.
NETWORKS, MAPS = 3, 2000
#: Seconds between two signs of life.
OFTEN = 0.2

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818  # asked for
    """The job was stopped."""


class Worker:
    """Jobs on the networks of a session; what comes of them is in the session before the page hears of it."""

    def __init__(self, session: Session, origin: Origin) -> None:
        self.session, self.origin, self.pictures = session, origin, session.pictures
        self.train_rows, self.held_out = split(self.pictures.targets)
        #: What is being done, for the page: kind, words, done, total.
        self.job: dict[str, Any] | None = None
        self.steps: list[dict[str, Any]] = []
        self.messages: list[str] = []
        #: Why there is no network, and so nothing to do.
        self.trouble: str | None = None
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        #: The round that is being trained, and its network, which changes with every step.
        self._in_training: tuple[int, XGradient] | None = None
        self._methods: dict[int, XGradient] = {}
        self._maps: dict[tuple[int, int], bytes] = {}
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._questions: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._stop = self._closing = False
        self._told = 0.0
        self._thread = Thread(target=self._serve, name="axiograd-studio", daemon=True)

    def open(self) -> None:
        """Start, and do what is left to do."""
        self.begin("start", "Loading the network", lambda: self.show(self.session.current))
        self._thread.start()

    def close(self) -> None:
        """Stop what is being done; it is over within a batch, or is left behind."""
        self._stop = self._closing = True
        self._jobs.put(None)
        self.tell("closed")
        self._thread.join(10)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    # What the page asks for.

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Something quick, answered between batches."""
        future: Future[T] = Future()
        self._questions.put((future, question))
        self._jobs.put(self._answer)
        return future

    def _answer(self) -> None:
        while not self._questions.empty():
            future, question = self._questions.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(question())
                except Exception as error:  # noqa: BLE001  # for whoever has asked
                    future.set_exception(error)

    def begin(self, kind: str, words: str, work: Callable[[], T]) -> Future[T]:
        """A job of some length, which the page shows."""
        if self.trouble is not None or self.job is not None:
            raise InputError(self.trouble or f"wait until this is done, or stop it: {self.job and self.job['words']}.")
        future: Future[T] = Future()
        self._stop = False
        self.job = {"kind": kind, "words": words, "done": 0, "total": 0}
        self.tell("job", job=self.job)
        self._jobs.put(partial(self._do, future, work))
        return future

    def stop(self) -> None:
        """End the job that runs; a training keeps its complete passes."""
        self._stop = True

    def _do(self, future: Future[T], work: Callable[[], T]) -> None:
        sentence = ""
        try:
            result = work()
        except Stopped as error:
            sentence = str(error) or "Stopped."
        except Exception as error:  # noqa: BLE001  # a sentence for the page, whatever it is
            words = str(error) if isinstance(error, AxiogradError) else f"{type(error).__name__}: {error}"
            sentence = words.strip().split("\n")[0]
            if not self.session.rounds:
                self.trouble = sentence
        self.job = None
        self.tell("state")
        if sentence:
            self.say(sentence[:1].upper() + sentence[1:])
            future.set_exception(InputError(sentence))
        else:
            future.set_result(result)

    def _on_progress(self, done: int, total: int) -> None:
        self._answer()
        if self._stop:
            raise Stopped
        self._show(done=done, total=total)

    def _show(self, words: str = "", **content: Any) -> None:
        """Tell the page what is being done, at once if it is something else, or how far it is."""
        if self.job is not None and (words or monotonic() - self._told > OFTEN):
            self._told = monotonic()
            # A new dictionary: pages may be reading the last one.
            self.job = self.job | ({"words": words, "done": 0, "total": 0} if words else {}) | content
            self.tell("job", job=self.job)

    def say(self, sentence: str) -> None:
        """A sentence for the page."""
        self.messages = [*self.messages[-4:], sentence]
        self.tell("message", text=sentence)

    def tell(self, kind: str, **content: Any) -> None:
        """Every page that listens."""
        for listener in list(self.listeners):
            listener({"kind": kind, **content})

    # Quick ones.

    def map(self, image: int, number: int) -> bytes:
        """The heat map of an image, in a round or in the one that is being trained."""
        if (image, number) in self._maps:
            return self._maps[image, number]
        _, attributions = explained(self.method(number), self.pictures.batch([image]))
        found = heat_map(attributions[0].sum(0).numpy())
        if self._in_training is None or number != self._in_training[0]:
            self._maps = dict(list(self._maps.items())[1 - MAPS :]) | {(image, number): found}
        return found

    def preview(self, image: int, how: spreading.How) -> dict[str, Any]:
        """What a spread would hit: how many images of which classes, and some of them."""
        total = len(self.pictures)
        rows = sample(range(total), PREVIEWED) if how == "patches" else range(total)
        found = self._targets(image, how, rows, quietly)
        labels = self.pictures.targets[[row for row, *_ in found]].unique().tolist()
        return {
            "count": round(len(found) * total / len(rows)),
            "estimated": len(rows) < total,
            "classes": [self.pictures.classes[label] for label in labels],
            "examples": found[:: max(1, len(found) // 12)][:12],
        }

    def _targets(
        self, image: int, how: spreading.How, rows: Sequence[int], on_progress: Progress
    ) -> list[spreading.Target]:
        strokes = self.session.marks.strokes(image)
        covered = [stroke.raster(*self.pictures.shape) for stroke in strokes if stroke.kind != "erase"]
        if not covered:
            raise InputError("there is nothing painted on this image to spread; paint first.")
        return spreading.targets(how, image, np.any(covered, axis=0), self.pictures, rows, on_progress)

    # Jobs.

    def spread(self, image: int, how: spreading.How) -> list[spreading.Target]:
        """Where the strokes of an image go, in all images."""
        return self._targets(image, how, range(len(self.pictures)), self._on_progress)

    def fix(self, prior: fixing.PriorName, strength: float, seconds: float) -> None:
        """Train the current network into that of a new round, which is judged and looked at.

        A stop in the middle of a pass goes back to its beginning, so that the numbers can be repeated.
        """
        session, number, parent = self.session, len(self.session.rounds), self.session.current
        self.steps, marks = [], session.marks.after(len(session.marks.actions))
        shutil.rmtree(session.weights(number).parent, ignore_errors=True)
        model = copy.deepcopy(self.model(parent))
        data = fixing.marked_images(self.pictures, self.train_rows, marks, prior, seed=number)
        plan = fixing.choose_plan(model, data, prior, strength, seed=number)
        self._in_training = number, XGradient(model)
        about = {"parent": parent, "strength": strength, "actions": len(marks.actions), "marked": len(marks.images())}
        shape = tuple(self.pictures.read(0).shape)
        self._show("Training", round=number)
        started = monotonic()
        try:
            for step in fixing.fix(model, data, plan):
                if step.ends_pass:
                    network.save(session.weights(number), model, self.session.rounds[0]["how"], shape)
                    session.put_round(number, **about, plan=asdict(plan) | {"passes": step.passes, "size": data.size})
                    if monotonic() - started > seconds:
                        break
                self._told_step(step, monotonic() - started, seconds)
        except Stopped:
            if number == len(session.rounds):
                raise Stopped("Stopped before the first pass over the images; nothing has changed.") from None
            self._stop = self._closing
        finally:
            # From here on the round's network is the one that was written.
            self._in_training = None
        self._show("Training", round=None)
        self.look(number)
        session.save(current=number)
        self.judge(number)
        self.say(f"Round {number} is trained; passes over the images: {session.round(number)['plan']['passes']}.")

    def _told_step(self, step: fixing.Step, passed: float, seconds: float) -> None:
        if monotonic() - self._told > OFTEN:
            self.steps = [*self.steps[-399:], asdict(step) | {"seconds": passed, "of": seconds}]
            self.tell("step", **self.steps[-1])
        self._on_progress(int(passed), int(seconds))

    def look(self, number: int) -> None:
        """Survey and clusters of a round, kept beside its network; places on which nothing depends are left out."""
        self._show("Looking at the images")
        survey = look(
            self.method(number), self.pictures, sample(range(len(self.pictures)), LOOKED_AT), self._on_progress
        )
        self._show("Measuring how much each place matters")
        found = clusters.find_clusters(self.model(number), self.pictures, survey, self._on_progress)
        survey.save(self.session.weights(number).with_name("survey.npz"))
        named = [asdict(one) | {"rows": one.members, "members": len(one.members)} for one in found]
        self.session.put_round(number, clusters=[one for one in named if one["changed"] >= 0.005])  # noqa: PLR2004

    def judge(self, number: int) -> None:
        """A round and the one that it came from on held-out images, with what is painted now."""
        self._show("Judging on held-out images")
        rows = sample(self.held_out or self.train_rows, JUDGED_BY)
        for one in sorted({number, self.session.round(number)["parent"]} - {None}):
            verdict = judge(self.method(one), self.pictures, rows, self.session.marks, self._on_progress)
            self.session.put_round(one, verdict=asdict(verdict))

    def keep(self, number: int) -> None:
        """Everything that outlives the studio, in a folder."""
        folder = self.session.folder / "kept" / f"round-{number}"
        methods = self.method(0), self.method(number)
        files, missing = keep(folder, self.session, self.origin, number, self.train_rows, self.held_out, methods)
        self.say(" ".join([f"Kept in {folder}: {', '.join(files)}.", *missing]))

    def show(self, number: int) -> None:
        """Make a round the current one, and do what is still to be done for it."""
        if not self.session.rounds:
            self._make()
        made = self.session.round(number)
        if made["clusters"] is None:
            self.look(number)
        self.session.save(current=number)
        if made["verdict"] is None or made["parent"] is not None:
            self.judge(number)

    def _make(self) -> None:
        """Round 0: the network that was given, as an X-DNN."""
        made = self.origin.make().eval()
        examples = self.pictures.batch(sample(self.train_rows, EXAMPLES))
        with torch.no_grad():
            outputs = made(examples[:2])
        if outputs.ndim != 2 or outputs.shape[1] < len(self.pictures.classes):  # noqa: PLR2004
            raise InputError(
                f"the model gives outputs of shape {list(outputs.shape)} for two images, and the data have "
                f"{len(self.pictures.classes)} classes: it needs one output for each."
            )
        self._show("Making it an X-DNN")
        conversion = to_xdnn(made, examples)
        words = "It is an X-DNN as it is."
        if conversion.edits:
            words = f"It was converted by {conversion.how}; same prediction: {conversion.kept}."
        network.save(self.session.weights(0), conversion.model, conversion.how, tuple(examples.shape[1:]))
        self._methods[0] = XGradient(conversion.model.eval())
        self.session.put_round(0, parent=None, how=conversion.how, words=words)

    def method(self, number: int) -> XGradient:
        """The attribution of a round's network, for looking."""
        if self._in_training is not None and number == self._in_training[0]:
            method = self._in_training[1]
        elif number in self._methods:
            method = self._methods[number]
        else:
            model = network.rebuild(self.origin.bare(), self.session.weights(number))
            method = XGradient(model)
            self._methods = dict(list(self._methods.items())[1 - NETWORKS :]) | {number: method}
        cast("nn.Module", method.model).eval()
        return method

    def model(self, number: int) -> nn.Module:
        """A round's network, for looking."""
        return cast("nn.Module", self.method(number).model)
