"""An environment class of the script itself is sent to other processes by value, as vector environments do it."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import cloudpickle
import gymnasium
from little_env import Line


class Own(Line):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)

    def step(self, action):
        return super().step(action)


class OwnWrapper(gymnasium.Wrapper):
    def reset(self, **options):
        return self.env.reset(**options)


def play(seed):
    env = OwnWrapper(Own())
    return env.reset(seed=seed)[0].tolist(), env.step(1)[1:3], __name__


def attempt(what, function):
    try:
        print(what, function())
    except Exception as error:
        print(what, "failed:", type(error).__name__, error)


def by_value():
    again = pickle.loads(cloudpickle.dumps(lambda: OwnWrapper(Own())))()
    return again.reset(seed=1), again.step(1)[1:]


def in_spawned_processes():
    envs = gymnasium.vector.AsyncVectorEnv([lambda: OwnWrapper(Own())], context="spawn")
    seen = envs.reset(seed=1)[0].tolist(), envs.step([1])[1].tolist()
    envs.close()
    return seen


if __name__ == "__main__":
    env = OwnWrapper(Own())
    print(env.reset(seed=1), env.step(1)[1:])
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        print(pool.map(play, range(2)))
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        print(list(executor.map(play, range(2))))
    attempt("cloudpickle", by_value)
    attempt("pickle", lambda: pickle.loads(pickle.dumps(env)).step(1)[1:])
    attempt("spawn", in_spawned_processes)
