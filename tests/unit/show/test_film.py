"""Films are whole, small, and as long as what was played; frames that are none are refused."""

import sys

import av
import numpy as np
import pytest
from PIL import Image

from learnproof.errors import EnvironmentFault, MissingExtra
from learnproof.show import film as films
from learnproof.show.film import open_film


def frame(position, size=(40, 60)):
    canvas = np.full((*size, 3), 255, np.uint8)
    canvas[5:15, position % 50 : position % 50 + 10] = (200, 30, 30)
    return canvas


def shoot(path, count, fps=20.0, ends=(), size=(40, 60)):
    film = open_film(path, fps)
    for position in range(count):
        film.add(lambda p=position: frame(p, size), f"step {position}", last=position in ends)
    film.save()


def durations(path):
    with Image.open(path) as picture:
        lasts = []
        for position in range(picture.n_frames):
            picture.seek(position)
            lasts.append(picture.info["duration"])
        return lasts, picture.size


def test_a_gif_has_every_frame_at_the_environments_pace_and_pauses_at_the_end(tmp_path):
    shoot(tmp_path / "film.gif", 30, ends=(29,))
    lasts, size = durations(tmp_path / "film.gif")
    assert sum(lasts) == 30 * 50 + 1000
    assert lasts[-1] >= 1000
    assert size == (60, 40 + films.CAPTION_PIXELS)
    assert [found.name for found in tmp_path.iterdir()] == ["film.gif"]


def test_fast_environments_keep_at_most_25_frames_a_second_and_always_the_last(tmp_path):
    asked = []
    film = open_film(tmp_path / "film.gif", 50.0)
    for position in range(21):
        film.add(lambda p=position: asked.append(p) or frame(p), "", last=position == 19)
    film.save()
    assert asked == [*range(0, 20, 2), 19, 20], "frames that are not kept are not drawn either"


def test_a_long_film_is_thinned_and_a_wide_one_made_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(films, "MOST_FRAMES", 40)
    shoot(tmp_path / "film.gif", 300, ends=(100, 299), size=(100, 960))
    lasts, size = durations(tmp_path / "film.gif")
    assert len(lasts) <= 42
    assert sum(last >= 1000 for last in lasts) == 2
    assert size == (480, 50 + films.CAPTION_PIXELS)


def test_an_mp4_has_every_frame_and_even_sides(tmp_path):
    shoot(tmp_path / "film.mp4", 25, ends=(24,), size=(41, 61))
    with av.open(str(tmp_path / "film.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height) == (60, 62)
        assert stream.frames == 25 + 20
        assert stream.average_rate == 20


def test_an_mp4_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtra, match=r"learnproof\[enjoy\]"):
        open_film(tmp_path / "film.mp4", 20.0)
    open_film(tmp_path / "film.gif", 20.0)


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8), None]
)
def test_what_is_no_picture_is_refused(tmp_path, wrong):
    with pytest.raises(EnvironmentFault, match="rgb_array promises"):
        open_film(tmp_path / "film.gif", 20.0).add(lambda: wrong, "")
    assert list(tmp_path.iterdir()) == []
