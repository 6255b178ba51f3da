"""Two models are trained at once, in two threads, while a third thread plays."""

import threading

import torch
from little_env import Line
from little_training import network, train, weights

done = {}


def learn(name, seed):
    model = networks[name]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    last = [train(model, optimizer, updates=1, seed=seed) for _ in range(60)][-1]
    done[name] = (last, weights(model))


def play():
    env = Line()
    total = 0.0
    for episode in range(20):
        env.reset(seed=episode)
        ended = cut = False
        while not (ended or cut):
            _, reward, ended, cut, _ = env.step(1)
            total += reward
    done["played"] = total


networks = {name: network(seed=seed) for seed, name in enumerate(("first", "second"))}
torch.set_num_threads(1)
workers = [threading.Thread(target=learn, args=(name, seed)) for seed, name in enumerate(networks)]
workers.append(threading.Thread(target=play))
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
for name in sorted(done):
    print(name, done[name])
broken = threading.Thread(target=lambda: networks["first"](torch.zeros(1, 3)), name="broken")
broken.start()
broken.join()
print([thread.name for thread in threading.enumerate()])
