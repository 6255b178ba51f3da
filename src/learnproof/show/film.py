"""Frames of an environment as a film: a GIF through Pillow, or an MP4 through PyAV (extra 'enjoy').

    film = open_film(path, fps)
    film.add(env.render, "step 3")    # asked for the frame only where it is kept: uint8 [height, width, 3]
    film.save()                       # whole or not at all

A GIF of every frame of a long episode would be hundreds of megabytes: frames are made smaller, at most 25 a second are kept,
and where there are more than MOST_FRAMES every other one is dropped, which makes the film faster, not shorter.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..errors import EnvironmentFault, MissingExtra
from ..runs.atomic import write_file

WIDEST = 480
GIF_FPS = 25.0
MOST_FRAMES = 500
COLOURS = 128
PAUSE_SECONDS = 1.0
CAPTION_PIXELS = 22
PAPER, INK = "#ffffff", "#1d2733"
Render = Callable[[], Any]


class Film(Protocol):
    def add(self, render: Render, caption: str, *, last: bool = False) -> None:
        """`last` of an episode: it is always kept, and stands still for a second."""
        ...

    def save(self) -> None: ...


def open_film(path: Path, fps: float) -> Film:
    return Mp4Film(path, fps) if path.suffix.lower() == ".mp4" else GifFilm(path, fps)


class GifFilm:
    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.every = max(1, round(fps / GIF_FPS))
        self.milliseconds = max(20, round(1000 * self.every / fps))
        self._seen = 0
        self._frames: list[Image.Image] = []
        self._pauses: set[int] = set()

    def add(self, render: Render, caption: str, *, last: bool = False) -> None:
        self._seen += 1
        if (self._seen - 1) % self.every and not last:
            return
        picture = _picture(render())
        if picture.width > WIDEST:
            height = round(picture.height * WIDEST / picture.width)
            picture = picture.resize((WIDEST, height), Image.Resampling.BILINEAR)
        picture = _captioned(picture, caption)
        self._frames.append(picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
        if last:
            self._pauses.add(len(self._frames) - 1)
        if len(self._frames) > MOST_FRAMES:
            self._thin()

    def _thin(self) -> None:
        kept = [i for i in range(len(self._frames)) if i % 2 == 0 or i in self._pauses]
        self._pauses = {new for new, old in enumerate(kept) if old in self._pauses}
        self._frames = [self._frames[i] for i in kept]
        self.every *= 2

    def save(self) -> None:
        lasts = [
            self.milliseconds + (round(1000 * PAUSE_SECONDS) if i in self._pauses else 0)
            for i in range(len(self._frames))
        ]
        body = io.BytesIO()
        first, *rest = self._frames
        first.save(body, "GIF", save_all=True, append_images=rest, duration=lasts, loop=0)
        write_file(self.path, body.getvalue())


class Mp4Film:
    """Every frame in its own size; H.264 where this PyAV has it, else MPEG-4."""

    def __init__(self, path: Path, fps: float) -> None:
        try:
            import av
        except ImportError:
            raise MissingExtra("av", "enjoy", "An MP4") from None
        self.path = path
        self._av = av
        self._rate = max(1, round(fps))
        self._body = io.BytesIO()
        self._container: Any = av.open(self._body, "w", format="mp4")
        self._stream: Any = None

    def add(self, render: Render, caption: str, *, last: bool = False) -> None:
        array = np.asarray(_captioned(_picture(render()), caption))
        even = array.shape[0] // 2 * 2, array.shape[1] // 2 * 2  # as H.264 wants it
        array = np.ascontiguousarray(array[: even[0], : even[1]])
        if self._stream is None:
            codec = "libx264" if "libx264" in self._av.codecs_available else "mpeg4"
            self._stream = self._container.add_stream(codec, rate=self._rate)
            self._stream.height, self._stream.width = even
            self._stream.pix_fmt = "yuv420p"
        for _ in range(1 + last * round(PAUSE_SECONDS * self._rate)):
            for packet in self._stream.encode(self._av.VideoFrame.from_ndarray(array, format="rgb24")):
                self._container.mux(packet)

    def save(self) -> None:
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()
        write_file(self.path, self._body.getvalue())


def _captioned(picture: Image.Image, caption: str) -> Image.Image:
    """A line of text under the picture, so that it hides nothing."""
    sheet = Image.new("RGB", (picture.width, picture.height + CAPTION_PIXELS), PAPER)
    sheet.paste(picture, (0, 0))
    place = (6, picture.height + CAPTION_PIXELS // 2)
    ImageDraw.Draw(sheet).text(place, caption, fill=INK, font=ImageFont.load_default(13), anchor="lm")
    return sheet


def _picture(frame: Any) -> Image.Image:
    array = np.asarray(frame)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise EnvironmentFault(
            f"The environment rendered {array.dtype} {array.shape}; rgb_array promises uint8 (height, width, 3). "
            "`--form text` shows the steps without it."
        )
    return Image.fromarray(array)
