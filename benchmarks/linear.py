"""What the linear evaluations cost: `fast` beside scikit-learn, and all of `paper`.

    python benchmarks/linear.py [--json FILE]

Both choose one of 11 weight decays on the same tenth of the training features, held out, train
again on all of them with it, and predict the test features. On a CUDA device, if there is one, at
the size of CIFAR-10: 50,000 training and 10,000 test features of 512 numbers in ten classes;
2,000 and 500 of 64 numbers on a CPU. Features are rectified mixtures of noisy clusters whose
spectrum falls as that of a network's does. scikit-learn computes on all cores of the CPU, in
float32 too, and stops when no entry of the gradient is above 1e-4; ours when its length is below
that, which is stricter. Its time is that of one run, ours the median of calls.

``agree`` is the share of test samples that both predict alike, ``accuracy`` that of right ones,
``held_out`` the accuracy that the chosen weight decay had where it was chosen. Near-ties there may
fall to either of two neighbouring weight decays.

Before that comes the protocol `paper` from beginning to end: 30 epochs of augmented views of
50,000 images of 32 pixels through a frozen ResNet-18 in bf16, then the test of 10,000. Images are
random bytes: what they show changes nothing about the time. On a CPU 2 epochs of 500 images through
the small ResNet.
"""

import time
import warnings
from importlib.metadata import version
from typing import NamedTuple

import torch
from torch import Tensor

from dsf.benchmarks.report import CORES, Report, milliseconds, parse, provenance, save, show
from dsf.evaluation import LabelledImages, LinearPaper, Subject, Task, hold_out, linear_fast
from dsf.evaluation.linear import WEIGHT_DECAYS
from dsf.models import create_encoder

SEED, CLASSES = 0, 10
TOLERANCE, STEPS, HELD_OUT = 1e-4, 1000, 0.1
SIZES = {"cuda": (50_000, 10_000, 512), "cpu": (2_000, 500, 64)}
PAPER = {"cuda": (50_000, 10_000, 30), "cpu": (500, 100, 2)}


class Samples(NamedTuple):
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


class Found(NamedTuple):
    predictions: Tensor
    weight_decay: float
    held_out: float


def make(train: int, test: int, width: int, device: str) -> Samples:
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(CLASSES, (train + test,), generator=generator)
    centres = torch.randn(CLASSES, width, generator=generator)
    noise = torch.randn(train + test, width, generator=generator)
    spectrum = torch.arange(1, width + 1) ** -0.5
    mixing = torch.randn(width, width, generator=generator) / width**0.5
    features = ((centres[labels] + 4 * noise) * spectrum) @ mixing
    features, labels = features.relu().to(device), labels.to(device)
    return Samples(features[:train], labels[:train], features[train:], labels[train:])


def ours(samples: Samples) -> Found:
    result = linear_fast(*samples, SEED, WEIGHT_DECAYS, HELD_OUT, CLASSES, TOLERANCE, STEPS)
    best = max(row["accuracy"] for row in result.held_out)
    return Found(result.predictions.cpu(), result.chosen["weight_decay"], best)


def scikit_learn(samples: Samples) -> Found:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, train_labels, test, _ = (tensor.cpu().numpy() for tensor in samples)
    held, rest = (rows.cpu().numpy() for rows in hold_out(samples.train_labels, HELD_OUT, SEED))

    def fit(rows: slice, decay: float) -> object:
        count = len(train_labels[rows])
        model = LogisticRegression(C=1 / (count * decay), tol=TOLERANCE, max_iter=STEPS)
        return make_pipeline(StandardScaler(), model).fit(train[rows], train_labels[rows])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it did not arrive within STEPS, as ours may not
        scores = {
            decay: fit(rest, decay).score(train[held], train_labels[held])
            for decay in WEIGHT_DECAYS
        }
        decay = max(scores, key=lambda decay: (scores[decay], decay))
        predictions = fit(slice(None), decay).predict(test)
    return Found(torch.from_numpy(predictions), decay, scores[decay])


def paper(device: str) -> Report:
    """The whole protocol, the extraction of test features included."""
    train, test, epochs = PAPER[device]
    generator = torch.Generator().manual_seed(SEED)

    def images(count: int, name: str) -> LabelledImages:
        pixels = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=generator)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        return LabelledImages(pixels.permute(0, 3, 1, 2), labels, name=name)

    on_gpu = device == "cuda"
    torch.manual_seed(SEED)
    encoder = create_encoder("resnet18", stem="cifar") if on_gpu else create_encoder("resnet-small")
    task = Task(images(train, "train"), images(test, "test"), CLASSES)
    subject = Subject(encoder, task, device=device, autocast=torch.bfloat16 if on_gpu else None)
    start = time.perf_counter()
    # Of untrained features on noise; the rate changes nothing about the time, but must not diverge.
    result = LinearPaper(epochs=epochs, learning_rate=0.1).evaluate(subject, SEED)
    seconds = time.perf_counter() - start
    return {
        "images": train,
        "epochs": epochs,
        "seconds": seconds,
        "views_per_s": train * epochs / seconds,
        "accuracy": result.numbers["accuracy"],
    }


def main() -> None:
    arguments = parse(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, test, width = SIZES[device]
    samples = make(train, test, width, device)
    report: Report = {
        "provenance": provenance(
            "python benchmarks/linear.py",
            seed=SEED,
            device=device,
            cores=CORES,
            threads=torch.get_num_threads(),
            weight_decays=list(WEIGHT_DECAYS),
        )
    }
    report["provenance"]["scikit-learn"] = version("scikit-learn")
    where = report["provenance"]["gpu"] or device
    report["paper"] = paper(device)
    show(f"`paper` on {where}", [report["paper"]])
    save(report, arguments.json)
    mine = ours(samples)
    repeats = 1 if device == "cuda" else min(5, arguments.repeats)  # ten calls a repeat on CUDA
    own = milliseconds(lambda: ours(samples), device, repeats)
    start = time.perf_counter()
    theirs = scikit_learn(samples)
    other = 1e3 * (time.perf_counter() - start)
    labels = samples.test_labels.cpu()
    rows = [
        {
            "what": name,
            "ms": took,
            "times_dsf": took / own,
            "accuracy": (found.predictions == labels).double().mean().item(),
            "agree": (found.predictions == mine.predictions).double().mean().item(),
            "weight_decay": found.weight_decay,
            "held_out": found.held_out,
        }
        for name, found, took in (("dsf", mine, own), ("scikit-learn", theirs, other))
    ]
    difference = abs(rows[0]["accuracy"] - rows[1]["accuracy"])
    assert difference < 0.01, f"the two differ by {difference:.2%} of the test samples"
    report |= {"train": train, "test": test, "dimension": width, "rows": rows}
    settings = f"{len(WEIGHT_DECAYS)} weight decays"
    show(f"{train:,} x {width} to train, {test:,} to test, {settings}, dsf on {where}", rows)
    save(report, arguments.json)


if __name__ == "__main__":
    main()
