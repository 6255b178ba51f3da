"""Named generators are the same for the same name, unrelated for others, and go on after a restart."""

import json

import numpy as np

from learnproof.seeding import derive_seed, episode_seeds, generator, generator_state, restore_generator


def test_names_decide_the_stream():
    assert derive_seed(1, "a") == derive_seed(1, "a")
    assert len({derive_seed(1, "a"), derive_seed(1, "b"), derive_seed(2, "a"), derive_seed(1, "a", "b")}) == 4
    assert derive_seed(1, "ab") != derive_seed(1, "a", "b")


def test_purposes_do_not_share_episode_seeds():
    evaluation, proof = episode_seeds(0, "evaluation", 1000), episode_seeds(0, "proof", 1000)
    assert not set(evaluation) & set(proof)
    assert evaluation[:10] == episode_seeds(0, "evaluation", 10)


def test_a_generator_goes_on_where_its_state_was_saved_as_json():
    source = generator(3, "x")
    source.random(5)
    source.integers(0, 2**32, dtype=np.uint32)
    saved = json.loads(json.dumps(generator_state(source)))
    expected = source.random(4).tolist()
    other = generator(99, "y")
    restore_generator(other, saved)
    assert other.random(4).tolist() == expected
