"""What is done with a trained policy: `learnproof export`, `learnproof enjoy`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from .command import PROVEN_OR_DONE, Command


@dataclass(frozen=True)
class Export:
    """Write a run's best policy as an ONNX file, after checking that it acts the same: learnproof export runs/cartpole

    The file takes the environment's own observations and gives the environment's own deterministic actions: normalisation,
    bounds and types are inside. onnxruntime's answers are compared with the policy's; a file that differs is not written.
    Needs the extra 'export'.
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Path | None = None
    """The file; default: policy.onnx in the run's folder."""
    observations: int = 1_000
    """Compare on this many observations of the environment, and on as many random ones."""


@dataclass(frozen=True)
class Enjoy:
    """Watch a run's best policy play: learnproof enjoy runs/cartpole

    As a GIF where the environment can draw itself, else as a table of steps. The return is printed in any case.
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 1
    """How many, one after the other."""
    form: Literal["auto", "gif", "mp4", "text"] = "auto"
    """auto = gif where the environment draws itself, else text; mp4 needs the extra 'enjoy'."""
    out: Path | None = None
    """The GIF or MP4; default: enjoy.gif or enjoy.mp4 in the run's folder."""
    mode: Literal["deterministic", "sampled"] | None = None
    """How actions are chosen; default: the mode that the run was proven in."""
    seed: int | None = None
    """Root of the episode seeds; default: the run's own."""
    rows: int = 30
    """Steps shown of each episode in the table, evenly spaced; 0 = all."""


def export(arguments: Export) -> int:
    from ..exporting.export import export_policy
    from ..show.export_sheet import print_export

    print_export(export_policy(arguments.run, arguments.out, observations=arguments.observations).to_json())
    return PROVEN_OR_DONE


def enjoy(arguments: Enjoy) -> int:
    from ..show.playback import show_playback
    from ..training.playing import play

    played = play(
        arguments.run,
        episodes=arguments.episodes,
        seed=arguments.seed,
        mode=arguments.mode,
        form=arguments.form,
        out=arguments.out,
    )
    show_playback(played, rows=arguments.rows)
    return PROVEN_OR_DONE


COMMANDS = {"export": Command(Export, export), "enjoy": Command(Enjoy, enjoy)}
