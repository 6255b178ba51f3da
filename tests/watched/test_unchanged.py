"""A watched script does what it would have done: the same words, the same weights, the same next random numbers."""

import pytest
import watched_runs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("script", watched_runs.NAMES)
def test_the_output_is_the_same(script):
    bare, watched = watched_runs.bare(script), watched_runs.watched(script)
    assert bare.returncode == 0, bare.stderr[-3000:]
    assert bare.sha
    assert watched.returncode == bare.returncode, watched.stderr[-3000:]
    assert watched.sha == bare.sha
    assert watched.stdout == bare.stdout


@pytest.mark.parametrize("script", watched_runs.NAMES)
def test_a_quiet_watcher_says_nothing(script):
    assert watched_runs.watched(script).stderr == watched_runs.bare(script).stderr


def test_another_seed_gives_other_weights():
    """Else equal digests would prove nothing."""
    assert watched_runs.bare("supervised", "--seed", "7").sha != watched_runs.bare("supervised").sha


def test_a_script_that_fails_fails_alike():
    bare = watched_runs.bare("supervised", "--epochs", "none")
    watched = watched_runs.watched("supervised", "--epochs", "none")
    assert bare.returncode == 2
    assert (watched.returncode, watched.stdout, watched.stderr) == (bare.returncode, bare.stdout, bare.stderr)
