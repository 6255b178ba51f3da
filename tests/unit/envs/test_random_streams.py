"""The random streams are xoshiro256++, one per seed."""

from __future__ import annotations

import numpy as np

from learnproof.envs.random_streams import next_word, seed_stream, seed_streams, uniform, whole_number

MASK = 2**64 - 1


def slow_xoshiro(words: list[int]) -> int:
    """The published algorithm on Python's integers; advances `words`."""

    def rotate(x: int, k: int) -> int:
        return ((x << k) | (x >> (64 - k))) & MASK

    result = (rotate((words[0] + words[3]) & MASK, 23) + words[0]) & MASK
    shifted = (words[1] << 17) & MASK
    words[2] ^= words[0]
    words[3] ^= words[1]
    words[1] ^= words[2]
    words[0] ^= words[3]
    words[2] ^= shifted
    words[3] = rotate(words[3], 45)
    return result


def test_words_are_those_of_xoshiro256plusplus() -> None:
    stream = np.array([1, 2, 3, 4], np.uint64)
    words = [1, 2, 3, 4]
    for _ in range(1000):
        assert int(next_word(stream)) == slow_xoshiro(words)
    assert stream.tolist() == words


def test_numbers_are_uniform_and_whole_numbers_reach_both_ends() -> None:
    stream = seed_stream(7)
    numbers = np.array([uniform(stream) for _ in range(20_000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 / np.sqrt(12 * numbers.size)
    counts = np.bincount([whole_number(stream, 2, 5) for _ in range(4000)], minlength=7)
    assert counts[[0, 1, 6]].sum() == 0
    assert counts[2:6].min() > 850


def test_a_seed_gives_one_stream_and_no_seed_gives_another_each_time() -> None:
    assert (seed_stream(3) == seed_streams([5, 3])[1]).all()
    assert (seed_stream(3) != seed_stream(4)).any()
    assert (seed_stream(None) != seed_stream(None)).any()
