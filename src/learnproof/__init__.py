"""Reinforcement learning that proves its agents learn."""

__version__ = "0.1.0"
