"""The process that holds the network: it looks, spreads, trains and judges, and can be stopped at any moment.

Messages to it: ("job", number, kind, arguments), ("stop",). From it: ("answer", number, result),
("failed", number, sentence), ("event", kind, content). While a job runs, heat maps are answered in between.
"""

from __future__ import annotations

import copy
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import torch
from torch import nn

from axiograd.attribution import XGradient
from axiograd.datasets.pictures import Pictures
from axiograd.errors import AxiogradError
from axiograd.studio import clusters, judging, mending, network, spreading
from axiograd.studio.keeping import keep
from axiograd.studio.marks import Marks, Stroke
from axiograd.studio.network import Origin
from axiograd.studio.pictures import heat_map
from axiograd.studio.split import sample, split
from axiograd.studio.survey import explained, look

#: Images that are looked at for clusters, and judged by; the others are looked at when they are shown.
LOOKED_AT, JUDGED_BY = 3000, 2000
#: Networks of other rounds that are kept at hand.
AT_HAND = 3
#: Seconds between two signs of life.
OFTEN = 0.2


class Stopped(Exception):  # noqa: N818  # asked for
    """The job was stopped."""


def run(connection: Connection, pictures: Pictures, origin: Origin, folder: Path) -> None:
    """The process's main function; it ends when the other side of the connection is gone."""
    torch.set_num_threads(max(1, torch.get_num_threads()))
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt, ConnectionResetError):
        Worker(connection, pictures, origin, folder).serve()


@cache
def _warm_up() -> None:
    """Import beside everything else what the first training needs: it takes seconds."""

    def load() -> None:
        with suppress(ImportError):
            import lightning.fabric  # noqa: F401

    Thread(target=load, daemon=True).start()


class Worker:
    """One network at a time, and the jobs on it."""

    def __init__(self, connection: Connection, pictures: Pictures, origin: Origin, folder: Path) -> None:
        self.connection, self.pictures, self.origin, self.folder = connection, pictures, origin, folder
        self.split = split(pictures.targets.tolist())
        self.waiting: deque[tuple[Any, ...]] = deque()
        self.stop = False
        self.models: dict[int, XGradient] = {}
        #: The network that is being trained, and the round that it will be.
        self.in_training: tuple[int, XGradient] | None = None
        self._told = 0.0
        self.quick: dict[str, Callable[..., Any]] = {"map": self.map}
        self.jobs: dict[str, Callable[..., Any]] = {
            "start": self.start,
            "look": self.look,
            "spread": self.spread,
            "mend": self.mend,
            "judge": self.judge,
            "keep": self.keep,
        }

    def serve(self) -> None:
        """Job after job, forever."""
        while True:
            self.stop = False
            if self.models:
                _warm_up()
            message = self.waiting.popleft() if self.waiting else self.connection.recv()
            if message[0] == "job":
                self._do(message)

    def _do(self, message: tuple[Any, ...]) -> None:
        _, number, kind, arguments = message
        try:
            result = (self.quick | self.jobs)[kind](**arguments)
        except Stopped:
            self.connection.send(("failed", number, "Stopped."))
        except AxiogradError as error:
            self.connection.send(("failed", number, str(error)))
        except (MemoryError, RuntimeError) as error:
            self.connection.send(("failed", number, _of_memory(error) or _unforeseen(error)))
        except Exception as error:  # noqa: BLE001  # a sentence for the page, whatever it is
            self.connection.send(("failed", number, _unforeseen(error)))
        else:
            self.connection.send(("answer", number, result))

    def between(self, done: int, total: int) -> None:
        """Between two batches: answer what is quick, put off what is not, stop if asked to; tell how far it is."""
        while self.connection.poll():
            message = self.connection.recv()
            if message[0] == "stop":
                self.stop = True
            elif message[2] in self.quick:
                self._do(message)
            else:
                self.waiting.append(message)
        if self.stop:
            raise Stopped
        if total and monotonic() - self._told > OFTEN:
            self._told = monotonic()
            self.tell("progress", done=done, total=total)

    def tell(self, kind: str, **content: Any) -> None:
        """An event for the page."""
        self.connection.send(("event", kind, content))

    def weights(self, number: int) -> Path:
        """Where a round's network is."""
        return self.folder / "rounds" / str(number) / "model.safetensors"

    def method(self, number: int) -> XGradient:
        """The network of a round, with its attribution."""
        if self.in_training is not None and number == self.in_training[0]:
            return self.in_training[1]
        if number not in self.models:
            model = network.rebuild(self.origin.bare(), self.weights(number))
            self.models = dict(list(self.models.items())[-AT_HAND:])
            self.models[number] = XGradient(model)
        return self.models[number]

    def model(self, number: int) -> nn.Module:
        """The network of a round."""
        model = self.method(number).model
        assert isinstance(model, nn.Module)  # noqa: S101  # made so above
        return model

    def marks(self) -> Marks:
        """What is painted, from the disk: whatever the page was told is there."""
        return Marks.read(self.folder / "marks.jsonl", self.pictures.shape)

    def map(self, image: int, number: int) -> tuple[bytes, int, float]:
        """The heat map of an image, with prediction and confidence."""
        model = self.model(number)
        training = model.training
        model.eval()
        outputs, attributions = explained(self.method(number), self.pictures.batch([image]))
        model.train(training)
        confidence, prediction = outputs.softmax(1)[0].max(0)
        return heat_map(attributions[0].sum(0).numpy()), int(prediction), float(confidence)

    def start(self, number: int) -> dict[str, Any]:
        """The network of a round; round 0 is made, and converted if need be, when there is none yet."""
        if self.weights(number).exists():
            self.method(number)
            return {}
        self.tell("job", words="Loading the network")
        made = self.origin.make(self.between)
        rows = sample(self.split.train, 200)
        examples = self.pictures.batch(rows)
        self.tell("job", words="Proving that it is an X-DNN, or making it one")
        outputs = made.eval()(examples[:2])
        if outputs.ndim != 2 or outputs.shape[1] < len(self.pictures.classes):  # noqa: PLR2004
            raise AxiogradError(
                f"the model gives outputs of shape {list(outputs.shape)} for two images, and the data have "
                f"{len(self.pictures.classes)} classes: it needs one output for each."
            )
        start = network.become_xdnn(made, examples[:8], examples)
        network.save(self.weights(number), start.model, start.how, tuple(examples.shape[1:]))
        held = sample(self.split.held_out or self.split.train, JUDGED_BY)
        before, after = (self._accuracy(model, held) for model in (made, start.model))
        self.models[number] = XGradient(start.model)
        return {"how": start.how, "words": start.words, "before": before, "after": after}

    @torch.no_grad()
    def _accuracy(self, model: nn.Module, rows: list[int]) -> float:
        hits = 0
        for at in range(0, len(rows), 100):
            self.between(at, len(rows))
            chosen = rows[at : at + 100]
            hits += int((model(self.pictures.batch(chosen)).argmax(1) == self.pictures.targets[chosen]).sum())
        return hits / len(rows)

    def look(self, number: int) -> list[dict[str, Any]]:
        """Survey and clusters of a round, kept beside its network."""
        model, method = self.model(number), self.method(number)
        rows = sample(range(len(self.pictures)), LOOKED_AT)
        self.tell("job", words="Looking at the images")
        survey = look(model, method, self.pictures, rows, self.between)
        self.tell("job", words="Measuring how much each place matters")
        found = clusters.find_clusters(model, self.pictures, survey, self.between)
        survey.save(self.weights(number).with_name("survey.npz"))
        return [one.to_dict() | {"rows": list(one.members)} for one in found]

    def spread(
        self, how: str, image: int, strokes: list[dict[str, Any]], members: list[int] | None, *, only: int | None
    ) -> list[spreading.Target]:
        """Where strokes would go; of a sample of the images, or of all."""
        mask = spreading.painted([Stroke.ensure(one) for one in strokes], self.pictures.shape)
        rows = list(range(len(self.pictures)))
        rows = rows if only is None or how != "patches" else sample(rows, only)
        return spreading.targets(how, image, mask, self.pictures, rows, self.between, members=members)

    def mend(
        self, parent: int, number: int, prior: mending.PriorName, strength: float, seconds: float, seed: int
    ) -> dict[str, Any]:
        """Train the network of one round into that of another; what was done."""
        marks = self.marks()
        self.tell("job", words="Getting ready to train")
        model = copy.deepcopy(self.model(parent))
        data = mending.data_set(self.pictures, self.split.train, marks, mending.MendingPlan(prior, 1.0, seed=seed))
        plan = mending.sensible(model, data, prior, strength, seed)
        self.in_training = (number, XGradient(model))
        self.tell("job", words="Training")

        def tell(step: mending.Step) -> bool:
            try:
                self.between(0, 0)
            except Stopped:
                return False
            self._told_step(step, seconds)
            return True

        try:
            epochs = mending.mend(model, data, plan, tell, seconds=seconds)
        finally:
            self.in_training = None
        if not epochs:
            raise AxiogradError("stopped before the first pass over the images was complete; nothing has changed.")
        how, shape = network.header(self.weights(parent))
        network.save(self.weights(number), model, how, shape)
        self.models[number] = XGradient(model)
        images = marks.images()
        done = {**asdict(plan), "epochs": epochs, "strength": strength}
        return {"plan": done, "marked": len(images), "painted": len(marks.painted()), "actions": len(marks.actions)}

    def _told_step(self, step: mending.Step, seconds: float) -> None:
        if monotonic() - self._told > OFTEN:
            self._told = monotonic()
            self.tell("step", **asdict(step), of=seconds)

    def judge(self, numbers: list[int]) -> dict[int, dict[str, Any]]:
        """Rounds on the held-out images, with what is painted now."""
        marks, rows = self.marks(), sample(self.split.held_out, JUDGED_BY)
        self.tell("job", words="Judging on held-out images")
        return {
            one: judging.judge(self.model(one), self.method(one), self.pictures, rows, marks, self.between).to_dict()
            for one in numbers
        }

    def keep(self, number: int, rounds: list[dict[str, Any]], into: str) -> dict[str, Any]:
        """Everything that outlives the studio, in a folder."""
        self.tell("job", words="Writing the files")
        return keep(
            Path(into),
            pictures=self.pictures,
            split=self.split,
            marks=self.marks(),
            origin=self.origin,
            rounds=rounds,
            number=number,
            weights=self.weights,
            method=self.method,
        )


def _of_memory(error: BaseException) -> str | None:
    words = str(error).lower()
    if isinstance(error, MemoryError) or "can't allocate memory" in words or "out of memory" in words:
        return "there was not enough memory for that; close other programs, or choose smaller images (--size)."
    return None


def _unforeseen(error: BaseException) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first} ({Path(at.filename).name}, line {at.lineno})."
