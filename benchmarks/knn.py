"""What the kNN evaluation costs, beside the usual way to write it, FAISS and scikit-learn.

    python benchmarks/knn.py [--json FILE]

At the size of CIFAR-10: 50,000 training and 10,000 test features of 512 numbers, ten classes,
k = 200, t = 0.1, on the CUDA device if there is one; 5,000 x 1,000 on a CPU. "one-hot" is the
implementation most repositories share: votes from a (B k) x C one-hot matrix, here for batches of
512; a second table repeats both for 1,000 classes, where that matrix grows and ours does not.
The last tables are for the CPU: FAISS's exact index with the votes counted as ours are, on 20,000
x 2,000 features in float32, and scikit-learn on a smaller set in float64, each against ours there.
All predictions are compared first: they may differ where the two best votes nearly tie.

``MiB`` is what a call allocates at most beyond the features, ``ms`` the median of calls.
"""

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import torch
from report import Report, milliseconds, parse, peak_mib, provenance, save, show
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from dsf.evaluation import knn

SEED = 0
K, TEMPERATURE, WIDTH = 200, 0.1, 512
SIZES = {"cuda": (50_000, 10_000), "cpu": (5_000, 1_000)}
FAISS_SIZE = (20_000, 2_000)
SCIKIT_LEARN_SIZE = (5_000, 1_000)

Classifier = Callable[["Samples"], Tensor]


class Samples(NamedTuple):
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: int


def make(train: int, test: int, classes: int, device: str, dtype: torch.dtype) -> Samples:
    """Noisy clusters: neighbours err for a part of the samples, as those of real features do."""
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(classes, (train + test,), generator=generator)
    centres = torch.randn(classes, WIDTH, generator=generator)
    noise = torch.randn(train + test, WIDTH, generator=generator)
    features = (centres[labels] + 5 * noise).to(device, dtype)
    labels = labels.to(device)
    return Samples(features[:train], labels[:train], features[train:], labels[train:], classes)


def ours(samples: Samples) -> Tensor:
    return knn(*samples[:4], k=K, temperature=TEMPERATURE, classes=samples.classes).predictions


def with_one_hot(samples: Samples, batch: int = 512) -> Tensor:
    keys = normalize(samples.train, dim=1).T
    predictions = []
    for features in normalize(samples.test, dim=1).split(batch):
        weights, indices = (features @ keys).topk(K, dim=1)
        weights = (weights / TEMPERATURE).exp()
        votes = one_hot(samples.train_labels[indices].flatten(), samples.classes)
        votes = votes.to(weights.dtype).view(len(features), K, samples.classes)
        scores = (votes * weights[:, :, None]).sum(dim=1)
        predictions.append(scores.argsort(dim=1, descending=True)[:, 0])
    return torch.cat(predictions)


def with_faiss(samples: Samples) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(WIDTH)
    index.add(normalize(samples.train, dim=1).numpy())
    similarity, indices = index.search(normalize(samples.test, dim=1).numpy(), K)
    weights = (torch.from_numpy(similarity) / TEMPERATURE).exp()
    voted = samples.train_labels[torch.from_numpy(indices)]
    votes = torch.zeros(len(weights), samples.classes).scatter_add_(1, voted, weights)
    return votes.argmax(dim=1)


def scikit_learn(samples: Samples) -> Tensor:
    import numpy as np
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(
        K, metric="cosine", weights=lambda distance: np.exp((1 - distance) / TEMPERATURE), n_jobs=-1
    )
    model.fit(samples.train.numpy(), samples.train_labels.numpy())
    return torch.from_numpy(model.predict(samples.test.numpy()))


def measure(samples: Samples, rivals: dict[str, Classifier], repeats: int) -> list[Report]:
    device = samples.train.device.type
    expected = ours(samples)
    rows = []
    for name, classify in {"dsf": ours, **rivals}.items():
        agreement = (classify(samples) == expected).double().mean().item()
        assert agreement > 0.99, f"{name} predicts something else: {agreement:.2%} agree"
        row: Report = {"what": name, "agree": agreement}
        row["ms"] = milliseconds(lambda f=classify: f(samples), device, repeats)
        if device == "cuda":
            row["MiB"] = peak_mib(lambda f=classify: f(samples))
        rows.append(row)
    for row in rows:
        row["times_dsf"] = row["ms"] / rows[0]["ms"]
    return rows


def main() -> None:
    arguments = parse(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report: Report = {
        "provenance": provenance(
            "benchmarks/knn.py",
            arguments,
            seed=SEED,
            device=device,
            cores=len(os.sched_getaffinity(0)),
            threads=torch.get_num_threads(),
            k=K,
            dimension=WIDTH,
        )
    }
    train, test = SIZES[device]
    where = report["provenance"]["gpu"] or device
    repeats = 1 if device == "cuda" else min(5, arguments.repeats)  # ten calls a repeat on CUDA
    for classes in (10, 1000):
        samples = make(train, test, classes, device, torch.float32)
        rows = measure(samples, {"one-hot": with_one_hot}, repeats)
        accuracy = (ours(samples) == samples.test_labels).double().mean().item()
        report[f"{classes} classes"] = {
            "train": train,
            "test": test,
            "accuracy": accuracy,
            "rows": rows,
        }
        show(f"{train:,} x {test:,}, {classes} classes, float32, on {where}", rows)
        save(report, arguments)
    on_cpu = (
        ("faiss-cpu", with_faiss, FAISS_SIZE, torch.float32),
        ("scikit-learn", scikit_learn, SCIKIT_LEARN_SIZE, torch.float64),
    )
    for name, rival, (train, test), dtype in on_cpu:
        try:
            report["provenance"][name] = version(name)
        except PackageNotFoundError:
            print(f"{name} is not installed and left out (extra: bench)")
            continue
        samples = make(train, test, 10, "cpu", dtype)
        rows = measure(samples, {name: rival}, min(5, arguments.repeats))
        report[name] = {"train": train, "test": test, "rows": rows}
        show(f"{train:,} x {test:,}, 10 classes, {str(dtype)[6:]}, on the CPU", rows)
        save(report, arguments)


if __name__ == "__main__":
    main()
