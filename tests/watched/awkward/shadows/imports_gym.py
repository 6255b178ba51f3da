"""Imports a neighbour that is named like a library and fails; the last error is not caught."""

import traceback

try:
    import no_such_library  # noqa: F401
except ImportError as error:
    print(type(error).__name__, error.name)
try:
    import gym
except RuntimeError:
    print(traceback.format_exc())
import gym  # noqa: F401
