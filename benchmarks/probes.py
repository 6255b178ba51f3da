"""Is each rung of the probe ladder climbed by learners that work, and refused to learners that do not?

    python benchmarks/probes.py [--seeds 3] [--only NAME] [--jobs 2] [--show]

Climbers are learnproof's own algorithms and their peers of Stable-Baselines3; each must climb every rung that it can be asked
on. Then every rung gets a learner with the fault that it was made for, and must refuse it. A row is kept per rung and learner
in benchmarks/results/probes.jsonl, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from learnproof.probing.climbing import climb_ladder, ladder
from learnproof.probing.rungs import LADDER

ROWS = Path(__file__).parent / "results" / "probes.jsonl"
Make = Callable[[], gym.Env[Any, Any]]


def learnproof_ppo(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
    settings: dict[str, Any] = {
        "ppo.n_steps": 64,
        "ppo.minibatch_size": 64,
        "ppo.learning_rate": 1e-3,
        "ppo.gamma": gamma,
    }
    return learnproof_learner(make_env, steps, seed, copies=4, **settings, **{"policy.activation": "tanh"})


def learnproof_learner(make_env: Make, steps: int, seed: int, copies: int, **chosen: Any) -> Any:
    import learnproof

    env = gym.vector.SyncVectorEnv([make_env] * copies)
    settings = {
        "seed": seed,
        "policy.hidden": (64, 64),
        "evaluation.every_steps": 0,
        "evidence.enabled": False,
        **chosen,
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        with contextlib.redirect_stdout(io.StringIO()):
            result = learnproof.train(env, steps=steps, out=f"{folder}/run", **settings)
        return learnproof.load_policy(result.path, env)


def learnproof_dqn(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
    settings: dict[str, Any] = {
        "algorithm": "dqn", "dqn.gamma": gamma, "dqn.learning_rate": 1e-3, "dqn.learning_starts": 200, "dqn.train_every": 2,
        "dqn.replay_size": 5_000, "dqn.target_every": 50, "dqn.epsilon_fraction": 0.5, "dqn.epsilon_end": 0.2,
    }  # fmt: skip
    return learnproof_learner(make_env, steps, seed, copies=1, **settings)


def trained_sb3_ppo(make_env: Make, steps: int, seed: int, gamma: float, **options: Any) -> Any:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    settings: dict[str, Any] = {"n_steps": 64, "batch_size": 64, "learning_rate": 1e-3, "gamma": gamma, **options}
    model = PPO("MlpPolicy", DummyVecEnv([make_env] * 4), seed=seed, device="cpu", **settings)
    return model.learn(steps)


def sb3_ppo(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
    return trained_sb3_ppo(make_env, steps, seed, gamma)


def sb3_dqn(env: gym.Env[Any, Any], steps: int, seed: int, gamma: float) -> Any:
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy", env, learning_rate=1e-3, gamma=gamma, seed=seed, device="cpu", buffer_size=5_000, learning_starts=200,
        train_freq=2, target_update_interval=100, exploration_fraction=0.5, exploration_final_eps=0.2,
    )  # fmt: skip
    return model.learn(steps)


CLIMBERS: dict[str, Callable[..., Any]] = {
    "learnproof PPO": learnproof_ppo,
    "learnproof DQN": learnproof_dqn,
    "SB3 PPO": sb3_ppo,
    "SB3 DQN": sb3_dqn,
}


class Changed(gym.Wrapper[Any, Any, Any, Any]):
    """What a fault makes of an environment's answers."""

    def __init__(self, env: gym.Env[Any, Any], change: Callable[..., tuple[Any, Any, bool, bool]]) -> None:
        super().__init__(env)
        self.change = change

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, ended, cut, info = self.env.step(action)
        return (*self.change(seen, reward, ended, cut), info)


class Endless(gym.Wrapper[Any, Any, Any, Any]):
    """Ends are kept from the learner: one episode runs on into the next."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, ended, cut, info = self.env.step(action)
        if ended or cut:
            seen, info = self.env.reset()
        return seen, reward, False, False, info


def endless(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
    return trained_sb3_ppo(lambda: Endless(make_env()), steps, seed, gamma)


def changed(change: Callable[..., tuple[Any, Any, bool, bool]]) -> Callable[..., Any]:
    def train(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
        return trained_sb3_ppo(lambda: Changed(make_env(), change), steps, seed, gamma)

    return train


def blind(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
    model = trained_sb3_ppo(
        lambda: gym.wrappers.TransformObservation(make_env(), np.zeros_like, None), steps, seed, gamma
    )

    def value(seen: np.ndarray[Any, Any]) -> float:
        rows, _ = model.policy.obs_to_tensor(np.zeros_like(seen)[None])
        return float(model.policy.predict_values(rows).detach())

    return (lambda seen: model.predict(np.zeros_like(seen), deterministic=True)[0]), value


def discounted_by(own: float) -> Callable[..., Any]:
    def train(make_env: Make, steps: int, seed: int) -> Any:
        return trained_sb3_ppo(make_env, steps, seed, own)

    return train


def unvalued(make_env: Make, steps: int, seed: int, gamma: float) -> Any:
    return trained_sb3_ppo(make_env, steps, seed, gamma, vf_coef=0.0)


SABOTAGED: dict[str, tuple[str, Callable[..., Any]]] = {
    "constant_reward": ("value loss with coefficient 0", unvalued),
    "reward_by_observation": ("observations lost", blind),
    "delayed_reward": ("gamma 0", discounted_by(0.0)),
    "action_reward": ("reward reversed", changed(lambda seen, reward, ended, cut: (seen, -reward, ended, cut))),
    "action_by_observation": ("observations lost", blind),
    "delayed_credit": ("gamma 0", discounted_by(0.0)),
    "discounting": ("gamma 1", discounted_by(1.0)),
    "time_limit": ("limit as end", changed(lambda seen, reward, ended, cut: (seen, reward, ended or cut, False))),
    "terminal": ("ends kept from it", endless),
    "agents": ("gamma 0", discounted_by(0.0)),
    "stochastic": ("reward's sign", changed(lambda seen, reward, ended, cut: (seen, np.sign(reward), ended, cut))),
}


def measure(learner: str, rung: str, seeds: int) -> dict[str, Any]:
    train = SABOTAGED[rung][1] if learner == "sabotaged" else CLIMBERS[learner]
    climb = next(climb_ladder(train, rungs=ladder([rung]), seeds=seeds))
    return {"learner": learner, "seeds": seeds, **climb.to_json()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="learners or rungs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="only print what is known")
    options = parser.parse_args()
    ROWS.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    known = {(row["learner"], row["rung"], row["seeds"]) for row in rows}
    wanted = [
        (learner, rung.name, options.seeds)
        for learner in (*CLIMBERS, "sabotaged")
        for rung in LADDER
        if (learner, rung.name, options.seeds) not in known and options.only in f"{learner} {rung.name}"
    ]
    if not options.show:
        with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:
            for done in as_completed([pool.submit(measure, *each) for each in wanted]):
                row = done.result()
                rows.append(row)
                with open(ROWS, "a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{row['learner']:16} {row['rung']:22} {row['status']:9} {row['seconds']:6.1f} s", flush=True)
    return 0 if summarise(rows, options.seeds) else 1


def summarise(rows: list[dict[str, Any]], seeds: int) -> bool:
    table = {(row["learner"], row["rung"]): row for row in rows if row["seeds"] == seeds}
    print(f"\n{'':24}" + "".join(f"{name:16}" for name in (*CLIMBERS, "sabotaged")))
    met = True
    for rung in LADDER:
        cells = []
        for learner in (*CLIMBERS, "sabotaged"):
            row = table.get((learner, rung.name))
            wanted = "failed" if learner == "sabotaged" else "climbed"
            met &= row is not None and row["status"] == wanted
            cells.append("-" if row is None else row["status"])
        print(f"{rung.name:24}" + "".join(f"{cell:16}" for cell in cells) + SABOTAGED[rung.name][0])
    return met


if __name__ == "__main__":
    sys.exit(main())
