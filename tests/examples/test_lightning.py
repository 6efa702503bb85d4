"""A loader that Lightning drives: its epochs, and its place in a checkpoint."""

import pytest
import torch

from dsf.data import ViewLoader
from dsf.data.augment import Recipe

pytestmark = pytest.mark.slow
lightning = pytest.importorskip("lightning")


class Recorder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def training_step(self, batch, index):
        self.seen.append((self.current_epoch, index, batch.samples.tolist(), batch.views.sum()))
        return self.weight * batch.views.mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (22, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return ViewLoader(images, 4, 2, Recipe(), device="cpu")


class Save(lightning.Callback):
    """Saves a checkpoint after some step, as one does who may be killed at any time."""

    def __init__(self, step, path):
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def fit(*callbacks, resume=None):
    model = Recorder()
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader(), ckpt_path=resume)
    return model.seen


def test_its_epochs_are_the_loaders():
    own = loader()
    expected = [
        (epoch, index, batch.samples.tolist(), batch.views.sum())
        for epoch in range(3)
        for index, batch in enumerate(own)
    ]
    assert fit() == expected


@pytest.mark.parametrize("step", [3, 5, 7])
def test_a_checkpoint_goes_on_with_the_next_batch(tmp_path, step):
    whole = fit(Save(step, tmp_path / "last.ckpt"))
    rest = fit(resume=tmp_path / "last.ckpt")
    assert len(whole) == 15
    assert rest == whole[step:]
