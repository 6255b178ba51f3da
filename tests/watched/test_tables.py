"""A loop whose batches stay tables of steps and environments, and which calls its network once more before it scores the actions."""

import subprocess
import sys

import pytest

from learnproof.evidence import Evidence
from learnproof.proof.verdict import judge

pytestmark = pytest.mark.slow

SCRIPT = """
import sys

import gymnasium as gym
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
sign = -1.0 if "reversed" in sys.argv else 1.0
copies, steps, gamma = 8, 16, 0.99
mode = gym.vector.AutoresetMode.SAME_STEP
env = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * copies, autoreset_mode=mode)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
obs = torch.as_tensor(env.reset(seed=0)[0])
for _ in range(280):
    rows = []
    for _ in range(steps):
        with torch.no_grad():
            action = net(obs)[0].sample()
        following, reward, ended, cut, _ = env.step(action.numpy())
        rows.append((obs, action, torch.as_tensor(reward).float(), torch.as_tensor(ended | cut).float()))
        obs = torch.as_tensor(following)
    seen, actions, rewards, dones = (torch.stack(column) for column in zip(*rows))
    distribution, values = net(seen)
    with torch.no_grad():
        future, returns = net(obs)[1], torch.zeros(steps, copies)
        for t in reversed(range(steps)):
            future = returns[t] = rewards[t] + gamma * future * (1 - dones[t])
    advantages = (returns - values).detach()
    loss = 0.5 * (returns - values).pow(2).mean() - sign * (distribution.log_prob(actions) * advantages).mean()
    loss = loss - 0.01 * distribution.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("way", ["right", "reversed"])
def test_rows_of_a_table_are_found_again(tmp_path, way):
    script = tmp_path / "table.py"
    script.write_text(SCRIPT)
    watch = [
        sys.executable,
        "-m",
        "learnproof",
        "watch",
        "--quiet",
        "--no-report",
        "--out",
        str(tmp_path / "run"),
        "--",
    ]
    subprocess.run([*watch, sys.executable, str(script), way], check=False, capture_output=True, timeout=300)
    verdict = judge(Evidence.read(tmp_path / "run"), None)
    found = {finding.check: finding for finding in verdict.findings}
    assert found["returns_recomputed"].status == "pass", found["returns_recomputed"].summary
    if way == "right":
        assert verdict.verdict == "proven", verdict.missing
    else:
        assert verdict.verdict == "broken"
        assert found["policy_direction"].status == "fail"
