"""DSF in a plain PyTorch loop: views made on the device, any encoder, a loss.

    pip install dsf-ssl
    python examples/plain_loop.py --data PATH       # a folder of images, flat or a folder a class
    python examples/plain_loop.py --batch 32 --steps 3              # a try on a CPU

``ViewLoader`` takes the place of a ``DataLoader`` and its transforms: it gives all views of a batch
as one tensor on the device. Without ``--data`` it trains on the images inside the package. Under
torchrun wrap the model in ``DistributedDataParallel``; the loader shares the images by itself.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torchvision.models import resnet18

from dsf.data import ViewLoader
from dsf.losses import DSFLoss

VIEWS = 8


def build_model():
    model = resnet18()
    # BatchNorm in the head: without it DSF can stall at the start.
    model.fc = nn.Sequential(
        nn.Linear(512, 512, bias=False),
        nn.BatchNorm1d(512),
        nn.ReLU(),
        nn.Linear(512, 128, bias=False),
        nn.BatchNorm1d(128, affine=False),
    )
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of images; embedded ones by default")
    parser.add_argument("--size", type=int, default=32, help="of the views, in pixels")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    arguments = parser.parse_args()

    loader = ViewLoader(
        arguments.data or "embedded", arguments.batch, VIEWS, view_size=arguments.size
    )
    model = build_model().to(loader.device)
    criterion = DSFLoss()  # all images of the batch contrast with each other
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9, weight_decay=5e-4)
    step = 0
    for epoch in range(arguments.epochs):
        for views, _, _ in loader:  # labels and indices are not needed
            features = model(views.flatten(0, 1)).unflatten(0, views.shape[:2])
            loss = criterion(*features.chunk(2, dim=1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if step == arguments.steps:
                return


if __name__ == "__main__":
    main()
