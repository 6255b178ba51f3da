"""One-step actor-critic, fully online, in a small maze: one update of actor and critic per environment step.

Form: no batch, no buffer, no rollout. Each step gives one TD error, with which the critic (SGD, larger rate) and
the actor (SGD, smaller rate) are moved at once. The factor gamma**t of the textbook's episodic algorithm is left
out, as is usual.

Why it is right: the goal is the only end of an episode and its value is 0; there is no time limit, so nothing else
has to be bootstrapped. The TD error is a plain number for both losses, so this is the semi-gradient update, and the
action's log-prob is that of the very distribution it was drawn from.
"""

import argparse

import torch
from torch import nn, optim

MAZE = """
#########
#S..#...#
#.#.#.#.#
#.#...#.#
#.#####.#
#......G#
#########
""".strip().splitlines()
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
GAMMA = 0.97
STEPS = 16_000

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
torch.manual_seed(ap.parse_args().seed)
torch.set_num_threads(1)

free = [(r, c) for r, line in enumerate(MAZE) for c, ch in enumerate(line) if ch != "#"]
number = {cell: i for i, cell in enumerate(free)}
start = next(cell for cell in free if MAZE[cell[0]][cell[1]] == "S")
goal = next(cell for cell in free if MAZE[cell[0]][cell[1]] == "G")


def move(cell, action):
    """-1 per step; walking into a wall leaves the agent where it is."""
    dr, dc = MOVES[action]
    new = (cell[0] + dr, cell[1] + dc)
    new = new if new in number else cell
    return new, -1.0, new == goal


one_hot = torch.eye(len(free))
actor = nn.Linear(len(free), len(MOVES), bias=False)
critic = nn.Linear(len(free), 1, bias=False)
nn.init.zeros_(actor.weight)
nn.init.zeros_(critic.weight)
actor_sgd = optim.SGD(actor.parameters(), lr=0.1)
critic_sgd = optim.SGD(critic.parameters(), lr=0.2)

cell, length, lengths = start, 0, []
for step in range(1, STEPS + 1):
    state = one_hot[number[cell]]
    log_probs = actor(state).log_softmax(dim=-1)
    action = torch.multinomial(log_probs.detach().exp(), 1).item()
    new_cell, reward, at_goal = move(cell, action)

    value = critic(state).squeeze()
    with torch.no_grad():
        next_value = 0.0 if at_goal else critic(one_hot[number[new_cell]]).item()
    td_error = reward + GAMMA * next_value - value.item()

    critic_sgd.zero_grad()
    critic_loss = 0.5 * (reward + GAMMA * next_value - value) ** 2
    critic_loss.backward()
    critic_sgd.step()

    actor_sgd.zero_grad()
    actor_loss = -td_error * log_probs[action]
    actor_loss.backward()
    actor_sgd.step()

    length += 1
    cell = new_cell
    if at_goal:
        lengths.append(length)
        cell, length = start, 0
    if step % 2_000 == 0:
        recent = lengths[-20:]
        v0 = critic(one_hot[number[start]]).item()
        print(
            f"step {step:6d}  episodes {len(lengths):5d}  steps to goal {sum(recent) / max(len(recent), 1):6.1f}  "
            f"V(start) {v0:7.2f}"
        )

cell, path = start, 0
while cell != goal and path < 100:
    with torch.no_grad():
        cell, _, _ = move(cell, actor(one_hot[number[cell]]).argmax().item())
    path += 1
print(f"greedy path: {path} steps")
