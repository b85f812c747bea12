"""PPO on a vectorised cart-pole (own numpy environment, no gym needed)."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class CartPoleVec:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.05, 0.05, (n, 4))
        self.t = np.zeros(n, int)

    def step(self, a):
        x, v, th, w = self.s.T
        f = np.where(a == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (f + 0.05 * w**2 * s) / 1.1
        ta = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        xa = tmp - 0.05 * ta * c / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * xa, th + 0.02 * w, w + 0.02 * ta], 1)
        self.t += 1
        done = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.21) | (self.t >= 200)
        k = int(done.sum())
        if k:
            self.s[done] = self.rng.uniform(-0.05, 0.05, (k, 4))
            self.t[done] = 0
        return self.s.astype(np.float32), np.ones(self.n, np.float32), done


class ActorCritic(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.v = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return Categorical(logits=self.pi(x)), self.v(x).squeeze(-1)


@torch.no_grad()
def rollout(env, net, obs, T):
    O, A, LP, R, D, V = [], [], [], [], [], []
    for _ in range(T):
        dist, v = net(obs)
        a = dist.sample()
        nxt, r, done = env.step(a.numpy())
        O.append(obs), A.append(a), LP.append(dist.log_prob(a)), V.append(v)
        R.append(torch.from_numpy(r)), D.append(torch.from_numpy(done).float())
        obs = torch.from_numpy(nxt)
    V.append(net(obs)[1])
    return obs, [torch.stack(z) for z in (O, A, LP, R, D, V)]


def advantages(rewards, dones, values, gamma, lam):
    """Generalised advantage estimate: A_t = sum_k (gamma * lam)^k delta_{t+k}"""
    T = len(rewards)
    adv = torch.zeros_like(rewards)
    last = torch.zeros_like(rewards[0])
    for t in reversed(range(T)):
        delta = rewards[t] + gamma * values[t + 1] * (1 - dones[t]) - values[t]
        adv[t] = last = delta + gamma * lam * (1 - dones[t]) * last
    return adv


def update(net, opt, batch, args):
    obs, act, logp, adv, ret = batch
    n = len(obs)
    for _ in range(args.passes):
        for idx in torch.randperm(n).split(n // args.minibatches):
            dist, v = net(obs[idx])
            ratio = (dist.log_prob(act[idx]) - logp[idx]).exp()
            a = adv[idx]
            a = (a - a.mean()) / (a.std() + 1e-8)
            pi_loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            loss = pi_loss + 0.5 * (v - ret[idx]).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=16)
    ap.add_argument("--envs", type=int, default=32)
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--passes", type=int, default=6)
    ap.add_argument("--minibatches", type=int, default=8)
    ap.add_argument("--gamma", type=float, default=0.99)
    ap.add_argument("--lam", type=float, default=0.95)
    args = ap.parse_args()

    torch.manual_seed(0)
    env = CartPoleVec(args.envs, seed=0)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=7e-4, eps=1e-5)
    obs = torch.from_numpy(env.s.astype(np.float32))

    t0, n = time.time(), 0
    for u in range(args.updates):
        obs, (O, A, LP, R, D, V) = rollout(env, net, obs, args.steps)
        adv = advantages(R, D, V, args.gamma, args.lam)
        ret = adv + V[:-1]
        flat = [z.flatten(0, 1) for z in (O, A, LP, adv, ret)]
        update(net, opt, flat, args)
        n += args.envs * args.steps
        if u % 4 == 3:
            print(f"update {u + 1}: episode length ~{R.numel() / max(D.sum().item(), 1):.0f}")
    print(f"trained {n} samples in {time.time() - t0:.2f} s")
