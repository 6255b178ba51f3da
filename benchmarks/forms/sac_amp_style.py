"""SAC on a small continuous task, with the optimizer steps written as a mixed-precision loop would have them.

Form: both critics live in one ModuleList; the actor's gradients are taken by torch.autograd.grad, tested for being
finite and only then assigned to ``.grad`` by hand, as a loss scaler does; the targets follow by
torch._foreach_lerp_ over flat lists.

Why it is right: autograd.grad for the actor's parameters leaves no trace in the critics' ``.grad``, so nothing has
to be cleared there; each assignment overwrites the last gradient. The task has no terminal state: an episode is cut
after 50 steps, the cut is not seen by the agent, and so each transition bootstraps, with the true successor that is
stored before the reset.
"""

import argparse
import math
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cart:
    """A batch of carts on a line with drag: bring the cart to the origin and hold it there."""

    limit = 50

    def __init__(self, n: int, gen: torch.Generator) -> None:
        self.n, self.gen = n, gen

    def reset(self) -> Tensor:
        self.t = 0
        self.x = 4.0 * torch.rand(self.n, generator=self.gen) - 2.0
        self.v = 2.0 * torch.rand(self.n, generator=self.gen) - 1.0
        return self.observe()

    def observe(self) -> Tensor:
        return torch.stack((self.x, self.v), dim=1)

    def step(self, force: Tensor) -> tuple[Tensor, Tensor, bool]:
        u = force.squeeze(1).clamp(-1.0, 1.0)
        reward = -(self.x**2 + 0.1 * self.v**2 + 0.05 * u**2)
        self.v = 0.95 * self.v + 0.25 * u
        self.x = (self.x + 0.1 * self.v).clamp(-4.0, 4.0)
        self.t += 1
        return self.observe(), reward, self.t >= self.limit


class Memory:
    def __init__(self, size: int) -> None:
        self.size, self.n, self.at = size, 0, 0
        self.obs, self.nxt = torch.zeros(size, 2), torch.zeros(size, 2)
        self.act, self.rew = torch.zeros(size, 1), torch.zeros(size)

    def extend(self, obs: Tensor, act: Tensor, rew: Tensor, nxt: Tensor) -> None:
        where = torch.arange(self.at, self.at + len(rew)) % self.size
        self.obs[where], self.act[where], self.rew[where], self.nxt[where] = obs, act, rew, nxt
        self.at = (self.at + len(rew)) % self.size
        self.n = min(self.n + len(rew), self.size)

    def sample(self, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        i = torch.randint(self.n, (k,))
        return self.obs[i], self.act[i], self.rew[i], self.nxt[i]


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.body(obs).chunk(2, dim=-1)
        log_std = -4.0 + 2.75 * (torch.tanh(raw) + 1.0)
        noise = torch.randn_like(mean)
        pre = mean + log_std.exp() * noise
        log_gauss = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)
        log_jacobian = 2.0 * (math.log(2.0) - pre - F.softplus(-2.0 * pre))
        return torch.tanh(pre), (log_gauss - log_jacobian).sum(-1)

    def mode(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.body(obs).chunk(2, dim=-1)[0])


def make_critic() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def q_values(critics: nn.ModuleList, obs: Tensor, act: Tensor) -> Tensor:
    x = torch.cat((obs, act), dim=-1)
    return torch.stack([c(x).squeeze(-1) for c in critics])


def guarded_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> bool:
    """Differentiate with respect to what the optimizer owns; step only if all gradients are finite."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    grads = torch.autograd.grad(loss, params)
    if not all(bool(g.isfinite().all()) for g in grads):
        return False
    for p, g in zip(params, grads, strict=True):
        p.grad = g
    optimizer.step()
    return True


@torch.no_grad()
def evaluate(actor: Actor, seed: int) -> float:
    env = Cart(32, torch.Generator().manual_seed(seed))
    obs, total, over = env.reset(), torch.zeros(32), False
    while not over:
        obs, rew, over = env.step(actor.mode(obs))
        total += rew
    return total.mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    torch.manual_seed(seed)
    torch.set_num_threads(1)

    gamma, tau, batch, iterations, warmup = 0.97, 0.01, 128, 1800, 100
    env = Cart(4, torch.Generator().manual_seed(seed))
    memory = Memory(20_000)
    actor = Actor()
    critics = nn.ModuleList([make_critic() for _ in range(2)])
    targets = deepcopy(critics).requires_grad_(False)
    log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
    target_entropy = -1.0

    actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_opt = torch.optim.Adam(critics.parameters(), lr=1e-3)
    alpha_opt = torch.optim.Adam([log_alpha], lr=3e-3)
    fast, slow = list(critics.parameters()), list(targets.parameters())

    print(f"before training: return {evaluate(actor, seed + 1):8.2f}")
    obs, skipped = env.reset(), 0
    for it in range(1, iterations + 1):
        with torch.no_grad():
            act = 2.0 * torch.rand(env.n, 1) - 1.0 if it <= warmup else actor(obs)[0]
        nxt, rew, over = env.step(act)
        memory.extend(obs, act, rew, nxt)
        obs = env.reset() if over else nxt
        if it <= warmup:
            continue

        s, a, r, s2 = memory.sample(batch)
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            a2, logp2 = actor(s2)
            y = r + gamma * (q_values(targets, s2, a2).amin(0) - alpha * logp2)
        critic_loss = ((q_values(critics, s, a) - y) ** 2).mean(1).sum()
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()

        fresh, logp = actor(s)
        actor_loss = (alpha * logp - q_values(critics, s, fresh).amin(0)).mean()
        skipped += not guarded_step(actor_opt, actor_loss)

        alpha_loss = -(log_alpha.exp() * (logp.detach() + target_entropy)).mean()
        alpha_opt.zero_grad()
        alpha_loss.backward()
        alpha_opt.step()

        with torch.no_grad():
            torch._foreach_lerp_(slow, fast, tau)

        if it % 300 == 0:
            print(
                f"iter {it:5d}: return {evaluate(actor, seed + 1):8.2f}  q_loss {critic_loss.item():.4f}  "
                f"alpha {alpha.item():.4f}  skipped {skipped}"
            )


if __name__ == "__main__":
    main()
