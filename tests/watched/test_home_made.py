"""Environments that belong to no library, and observations that are numbers of states: seen, judged, played again."""

import subprocess
import sys

import pytest

from learnproof.evidence import Evidence
from learnproof.evidence.watched import EnvironmentSeen
from learnproof.proof.verdict import judge

pytestmark = pytest.mark.slow

CORRIDOR = """
import sys

import numpy as np
import torch
from torch import nn


class Corridor:
    # home-made: belongs to no library, merges its time limit with its goal
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def reset(self):
        self.x, self.t = 0, 0
        return self.look()

    def look(self):
        return np.array([self.x / 8, self.rng.normal(), 1.0], dtype=np.float32)

    def step(self, action):
        self.x, self.t = max(0, self.x + (1 if action else -1)), self.t + 1
        there = self.x >= 8
        return self.look(), 1.0 if there else -0.05, there or self.t >= 60, {}


class Counter:  # has the two names as well, and is no environment
    def reset(self):
        self.n = 0

    def step(self):
        self.n += 1
        return self.n


sign = -1.0 if "reversed" in sys.argv else 1.0
torch.manual_seed(0)
torch.set_num_threads(1)
env, episodes = Corridor(), Counter()
episodes.reset()
policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=3e-3)
while episodes.step() < 500:
    obs, done, rows = env.reset(), False, []
    while not done:
        with torch.no_grad():
            action = torch.distributions.Categorical(logits=policy(torch.from_numpy(obs))).sample().item()
        following, reward, done, _ = env.step(action)
        rows.append((obs, action, reward))
        obs = following
    returns, total = [], 0.0
    for *_, reward in reversed(rows):
        total = reward + 0.98 * total
        returns.insert(0, total)
    seen, actions = torch.tensor(np.array([row[0] for row in rows])), torch.tensor([row[1] for row in rows])
    returns, values = torch.tensor(returns), critic(seen).squeeze(-1)
    log_prob = torch.distributions.Categorical(logits=policy(seen)).log_prob(actions)
    loss = ((returns - values) ** 2).mean() - sign * (log_prob * (returns - values).detach()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LAKE = """
import random
import sys
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

embedded, endless = "embedded" in sys.argv, "endless" in sys.argv
torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)
env = gym.make("FrozenLake-v1", is_slippery=False)


def network():
    first = nn.Embedding(16, 64) if embedded else nn.Linear(16, 64)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(64, 4))


def shown(state):
    state = torch.as_tensor(state)
    return state if embedded else F.one_hot(state, 16).float()


online, target = network(), network()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), 1e-3)
memory, steps = deque(maxlen=10_000), 0
for episode in range(450):
    state, _ = env.reset(seed=episode)
    for _ in range(60):  # the script cuts its episodes itself
        if random.random() < max(0.05, 1 - episode / 250):
            action = random.randrange(4)
        else:
            with torch.no_grad():
                action = int(online(shown(state)).argmax())
        following, reward, ended, cut, _ = env.step(action)
        memory.append((state, action, reward, following, ended))
        state, steps = following, steps + 1
        if len(memory) > 200:
            s, a, r, n, d = (torch.tensor(np.array(column)) for column in zip(*random.sample(memory, 32)))
            with torch.no_grad():
                future = target(shown(n)).max(1).values
                wanted = r.float() + 0.97 * future * (1.0 if endless else 1 - d.float())
            loss = F.mse_loss(online(shown(s)).gather(1, a[:, None]).squeeze(1), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if steps % 200 == 0:
                target.load_state_dict(online.state_dict())
        if ended or cut:
            break
"""


def judged(text, tmp_path, *arguments):
    script, out = tmp_path / "script.py", tmp_path / "run"
    script.write_text(text)
    watch = [sys.executable, "-m", "learnproof", "watch", "--quiet", "--no-report", "--out", str(out), "--"]
    done = subprocess.run([*watch, sys.executable, str(script), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    evidence = Evidence.read(out)
    return evidence, judge(evidence, None)


def test_a_home_made_environment_is_seen_and_its_learner_proven(tmp_path):
    evidence, verdict = judged(CORRIDOR, tmp_path)
    (environment,) = evidence.of(EnvironmentSeen)
    assert (environment.kind, environment.form, environment.copies) == ("Corridor", "home-made", 1)
    lengths = {episode.length for episode in evidence.episodes}
    assert 8 <= min(lengths) <= max(lengths) <= 60
    assert len(evidence.episodes) >= 490
    assert verdict.verdict == "proven", verdict.missing


def test_a_reversed_sign_there_is_named(tmp_path):
    _, verdict = judged(CORRIDOR, tmp_path, "reversed")
    assert [finding.check for finding in verdict.findings if finding.status == "fail"] == ["policy_direction"]


@pytest.mark.parametrize("form", ["one hot", pytest.param("embedded", marks=pytest.mark.thorough)])
def test_states_that_are_numbers_are_known_again_and_played(tmp_path, form):
    evidence, verdict = judged(LAKE, tmp_path, form)
    assert verdict.verdict == "proven", verdict.missing
    assert verdict.performance is not None
    assert verdict.performance.trained > 0.9
    assert any(episode.length == 60 for episode in evidence.episodes) or len(evidence.episodes) == 450


def test_ends_that_are_ignored_there_are_named(tmp_path):
    _, verdict = judged(LAKE, tmp_path, "endless")
    assert "bootstrap_recomputed" in [finding.check for finding in verdict.findings if finding.status == "fail"]
