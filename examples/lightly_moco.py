"""DSF in a lightly training loop: only the loader and the loss change.

    pip install 'dsf-ssl[lightly]'
    python examples/lightly_moco.py --data PATH     # a folder of images, flat or a folder a class

lightly's two-view MoCo recipe contrasts one query with one key by ``NTXentLoss``. Here each image
gives eight views, and ``DSFLoss`` takes the lists of four queries and four keys in its place, with
no temperature to tune. ``ViewLoader`` stands for the data set, its transform and the
``DataLoader``, and gives batches in lightly's form; the views are made on the device. Without
``--data`` it trains on the images inside the package.
"""

import argparse
import copy
from pathlib import Path

import torch
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import (
    batch_shuffle,
    batch_unshuffle,
    deactivate_requires_grad,
    update_momentum,
)
from torch import nn
from torchvision.models import resnet18

from dsf.data import ViewLoader
from dsf.losses import DSFLoss

VIEWS = 8


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        backbone = resnet18()
        backbone.fc = nn.Identity()
        self.backbone = backbone
        # BatchNorm in the head: without it DSF can stall at the start.
        self.projection_head = MoCoProjectionHead(512, 512, 128, batch_norm=True)
        self.key_backbone = copy.deepcopy(self.backbone)
        self.key_projection_head = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.key_backbone)
        deactivate_requires_grad(self.key_projection_head)

    def forward(self, images):
        return self.projection_head(self.backbone(images))

    @torch.no_grad()
    def forward_key(self, images):
        images, order = batch_shuffle(images)
        return batch_unshuffle(self.key_projection_head(self.key_backbone(images)), order)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of images; embedded ones by default")
    parser.add_argument("--size", type=int, default=32, help="of the views, in pixels")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = ViewLoader(  # was LightlyDataset, MultiViewTransform and DataLoader
        arguments.data or "embedded",
        arguments.batch,
        VIEWS,
        view_size=arguments.size,
        form="lightly",
        device=device,
    )

    model = MoCo().to(device)
    criterion = DSFLoss(memory_bank_size=(4096, 128)).to(device)  # was NTXentLoss
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9, weight_decay=5e-4)
    step = 0
    for epoch in range(arguments.epochs):
        for batch in loader:
            views = [view.to(device) for view in batch[0]]
            update_momentum(model.backbone, model.key_backbone, 0.99)
            update_momentum(model.projection_head, model.key_projection_head, 0.99)
            queries = [model(view) for view in views[: VIEWS // 2]]
            keys = [model.forward_key(view) for view in views[VIEWS // 2 :]]
            loss = criterion(queries, keys)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if step == arguments.steps:
                return


if __name__ == "__main__":
    main()
