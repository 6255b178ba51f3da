"""Plays a little; imported relatively."""

import gymnasium

from . import settings


def play():
    env = gymnasium.make(settings.ENVIRONMENT)
    env.reset(seed=settings.SEED)
    return [env.step(step % 2)[1:4] for step in range(settings.STEPS)]
