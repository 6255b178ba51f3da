"""A plain classifier on made-up clusters: frozen backbone, trained head with dropout, SGD with a cosine schedule."""

import argparse
import hashlib
import json
import random

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def make_clusters(rng, classes=5, per_class=240, features=16, spread=1.6):
    centres = rng.normal(0.0, 2.0, (classes, features))
    labels = np.repeat(np.arange(classes), per_class)
    points = centres[labels] + rng.normal(0.0, spread, (len(labels), features))
    return torch.tensor(points, dtype=torch.float32), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, classes))
        for weight in self.backbone.parameters():
            weight.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    rng = np.random.default_rng(args.seed)

    x, y = make_clusters(rng)
    loader = DataLoader(
        TensorDataset(x, y), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(args.seed)
    )
    model = Classifier(x.shape[1], int(y.max()) + 1)
    criterion = nn.CrossEntropyLoss()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = optim.SGD(trainable, lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    steps = 0
    for epoch in range(args.epochs):
        model.train()
        rate = optimizer.param_groups[0]["lr"]
        total = 0.0
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            steps += 1
            total += loss.item() * len(inputs)
        scheduler.step()
        if epoch % 10 == 9:
            model.eval()
            with torch.no_grad():
                accuracy = (model(x).argmax(1) == y).float().mean().item()
            print(f"epoch {epoch + 1}: loss {total / len(x):.4f}, accuracy {accuracy:.3f}")

    sha = hashlib.sha256()
    for p in model.parameters():
        sha.update(p.detach().numpy().tobytes())
    sha.update(repr((torch.rand(1).item(), float(rng.random()), random.random())).encode())
    facts = {
        "optimizer_steps": {"sgd": steps},
        "owned": {"sgd": len(trainable)},
        "frozen": len(list(model.backbone.parameters())),
        "learning_rate": {"sgd": rate},
        "episodes": 0,
        "episode_returns": [],
        "env_steps": 0,
        "target_updates": 0,
    }
    print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))


if __name__ == "__main__":
    main()
