"""Metrics for the dashboards that people already use: TensorBoard, Weights & Biases (offline), trackio (local).

    trackers = open_trackers(("tensorboard",), run.path, settings_as_dict, resume_step=None)
    trackers.log(8192, {"rollout/ep_rew_mean": 21.0, "train/approx_kl": 0.004})
    trackers.close()

Each is an extra, imported when it is used. Names are SB3's tags and go through unchanged. A tracker decides nothing: one
that fails is named once and dropped; training goes on. Where each writes:

    tensorboard   <run>/tensorboard/; after a resume, steps later than the checkpoint are struck out
    wandb         <run>/wandb/, never online; each process is a session of its own, in a group of the run's name;
                  `wandb sync` uploads them
    trackio       trackio's own database on this machine (TRACKIO_DIR, else its default), project "learnproof"; a
                  resumed run goes on under its name, and steps done twice are in it twice
"""

from __future__ import annotations

import contextlib
import io
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..errors import MissingExtra, SettingsError, did_you_mean
from .redaction import redact_text, redact_tree

PROJECT = "learnproof"


class Tracker(Protocol):
    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


Opener = Callable[[Path, Mapping[str, Any], int | None], Tracker]


class Trackers:
    """All trackers of a run behind one door."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._open: dict[str, Tracker] = {}
        self._warn = warn

    @property
    def names(self) -> list[str]:
        """Those still at work."""
        return list(self._open)

    def add(self, name: str, make: Callable[[], Tracker]) -> None:
        with self._dropping(name):
            self._open[name] = make()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name in self.names:
            with self._dropping(name):
                self._open[name].log(step, metrics)

    def close(self) -> None:
        for name in self.names:
            with self._dropping(name):
                self._open.pop(name).close()

    @contextlib.contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except MissingExtra:
            raise
        except Exception as error:  # each library has exceptions of its own; none of them may end a run
            self._open.pop(name, None)
            self._warn(
                f"The tracker {name} failed and is switched off for the rest of this run "
                f"({type(error).__name__}: {redact_text(str(error))}). Evidence and checkpoints are written as before."
            )


def open_trackers(
    names: Sequence[str],
    folder: Path,
    config: Mapping[str, Any],
    resume_step: int | None,
    warn: Callable[[str], None] = warnings.warn,
) -> Trackers:
    """`resume_step`: the step of the checkpoint that the run goes on from, None for a new run."""
    for name in names:
        if name not in OPENERS:
            raise SettingsError(
                f"There is no tracker {name!r}.{did_you_mean(name, OPENERS)} Known: {', '.join(OPENERS)}."
            )
    trackers = Trackers(warn)
    shown = redact_tree(config)
    for name in dict.fromkeys(names):
        try:
            trackers.add(name, partial(OPENERS[name], folder, shown, resume_step))
        except MissingExtra:
            trackers.close()
            raise
    return trackers


class TensorBoard:
    """Writes event files with tensorboard's own writer, which needs neither torch nor tensorflow."""

    def __init__(self, folder: Path, config: Mapping[str, Any], resume_step: int | None) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard", "Writing TensorBoard files") from None
        self._event = event_pb2.Event
        self._summary = summary_pb2.Summary
        self._writer = EventFileWriter(str(folder / "tensorboard"))
        if resume_step is not None:
            restart = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(self._event(wall_time=time.time(), step=resume_step + 1, session_log=restart))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    def __init__(self, folder: Path, config: Mapping[str, Any], resume_step: int | None) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it phones home at import otherwise
        try:
            import wandb
        except ImportError:
            raise MissingExtra("wandb", "wandb", "Writing metrics for Weights & Biases") from None
        name = folder.resolve().name
        self._run = wandb.init(
            project=PROJECT,
            name=name if resume_step is None else f"{name}-from-{resume_step}",
            group=name,
            dir=str(folder),
            config=dict(config),
            mode="offline",
            settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    def __init__(self, folder: Path, config: Mapping[str, Any], resume_step: int | None) -> None:
        try:
            import trackio
        except ImportError:
            raise MissingExtra("trackio", "trackio", "Writing metrics for trackio") from None
        self._finish = trackio.finish
        with _quietly_and_locally():
            self._run = trackio.init(
                project=PROJECT,
                name=folder.resolve().name,
                config=dict(config),
                resume="never" if resume_step is None else "allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        with _quietly_and_locally():
            self._finish()


@contextlib.contextmanager
def _quietly_and_locally() -> Iterator[None]:
    """trackio prints as it goes, and sends metrics away where its environment variables name a server."""
    remote = {name: os.environ.pop(name, None) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.environ.update({name: value for name, value in remote.items() if value is not None})


OPENERS: dict[str, Opener] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "trackio": Trackio}
