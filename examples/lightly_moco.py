"""DSF in a lightly training loop: only the number of views and the loss change.

    pip install 'dsf-ssl[lightly]'
    python examples/lightly_moco.py --data PATH     # a folder of images, in any structure

lightly's two-view MoCo recipe contrasts one query with one key by ``NTXentLoss``. Here each image
gives eight views, and ``DSFLoss`` takes the lists of four queries and four keys in its place, with
no temperature to tune. Without ``--data`` it runs on random images, to show that it runs.
"""

import argparse
import copy

import torch
from lightly.data import LightlyDataset
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import (
    batch_shuffle,
    batch_unshuffle,
    deactivate_requires_grad,
    update_momentum,
)
from lightly.transforms.multi_view_transform import MultiViewTransform
from lightly.transforms.simclr_transform import SimCLRViewTransform
from torch import nn
from torchvision.datasets import FakeData
from torchvision.models import resnet18

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
    parser.add_argument("--data", help="a folder of images; random images by default")
    parser.add_argument("--size", type=int, default=32, help="of the views, in pixels")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    arguments = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = MultiViewTransform([SimCLRViewTransform(arguments.size, min_scale=0.2)] * VIEWS)
    if arguments.data:
        dataset = LightlyDataset(arguments.data, transform=transform)
    else:
        size = (3, arguments.size, arguments.size)
        dataset = LightlyDataset.from_torch_dataset(FakeData(1024, size), transform=transform)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=arguments.batch, shuffle=True, drop_last=True
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
