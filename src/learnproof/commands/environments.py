"""What there is to learn: `learnproof envs`."""

from __future__ import annotations

from dataclasses import dataclass

from .command import PROVEN_OR_DONE, Command


@dataclass(frozen=True)
class Envs:
    """List the environments that ship with learnproof."""


def envs(arguments: Envs) -> int:
    from ..envs import shipped_environments

    for environment in shipped_environments():
        print(f"{environment.id:32} {environment.summary}")
    print(
        "\nAny other Gymnasium id works too, e.g. CartPole-v1. With --env.per-agent the agents of a team decide one by one: in task allocation,"
    )
    print("or in any PettingZoo parallel environment, named by the function that makes it (module:function).")
    return PROVEN_OR_DONE


COMMANDS = {"envs": Command(Envs, envs)}
