"""A method of dsf in a LightningModule.

    pip install 'dsf-ssl[lightly]'
    python examples/lightning_moco.py --data PATH   # a folder of images, flat or a folder a class

``dsf.methods`` are plain modules: ``method(views)`` gives the loss and diagnostics, and
``method.after_step()`` lets the momentum encoder follow. ``ViewLoader`` makes the views on the
device; Lightning tells it the epoch, and keeps its place in checkpoints. Without ``--data`` it
trains on the images inside the package.
"""

import argparse
from pathlib import Path

import lightning
import torch

from dsf.data import ViewLoader
from dsf.losses import DSFLoss
from dsf.methods import MoCo
from dsf.models import create_encoder, split_batch_norm

VIEWS = 8


class Learner(lightning.LightningModule):
    def __init__(self, encoder: str):
        super().__init__()
        options = {} if encoder == "resnet-small" else {"stem": "cifar"}
        loss = DSFLoss(memory_bank_size=(4096, 128), gather_distributed=True)
        self.method = MoCo(create_encoder(encoder, **options), loss)
        split_batch_norm(self.method, 8)

    def training_step(self, batch, index):
        output = self.method(batch.views)
        self.log("loss", output.loss, prog_bar=True)
        self.log_dict(output.diagnostics)
        return output.loss

    def on_train_batch_end(self, outputs, batch, index):
        self.method.after_step()
        if self.trainer.is_global_zero:
            print(f"step {self.global_step} loss {outputs['loss'].item():.4f}", flush=True)

    def configure_optimizers(self):
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.SGD(trained, lr=0.06, momentum=0.9, weight_decay=5e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of images; embedded ones by default")
    parser.add_argument("--encoder", default="resnet18", help="resnet18, resnet-small, ...")
    parser.add_argument("--size", type=int, default=32, help="of the views, in pixels")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many steps")
    arguments = parser.parse_args()

    loader = ViewLoader(
        arguments.data or "embedded", arguments.batch, VIEWS, view_size=arguments.size
    )
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        max_steps=arguments.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Learner(arguments.encoder), loader)


if __name__ == "__main__":
    main()
