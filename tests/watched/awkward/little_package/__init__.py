"""A package that is run with -m."""

from .learner import play as play
