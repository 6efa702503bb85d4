"""What the kNN evaluation costs, beside rivals: ``dsf bench knn``."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from dsf.benchmarks.report import CORES, Report, milliseconds, peak_mib, provenance, save, show
from dsf.evaluation import knn

SEED = 0
K, TEMPERATURE, WIDTH = 200, 0.1, 512
SIZES = {"cuda": (50_000, 10_000), "cpu": (5_000, 1_000)}
FAISS_SIZE = (20_000, 2_000)
SCIKIT_LEARN_SIZE = (5_000, 1_000)

_Classifier = Callable[["_Samples"], Tensor]


class _Samples(NamedTuple):
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: int


def _make(train: int, test: int, classes: int, device: str, dtype: torch.dtype) -> _Samples:
    """Noisy clusters: neighbours err for a part of the samples, as those of real features do."""
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(classes, (train + test,), generator=generator)
    centres = torch.randn(classes, WIDTH, generator=generator)
    noise = torch.randn(train + test, WIDTH, generator=generator)
    features = (centres[labels] + 5 * noise).to(device, dtype)
    labels = labels.to(device)
    return _Samples(features[:train], labels[:train], features[train:], labels[train:], classes)


def _ours(samples: _Samples) -> Tensor:
    return knn(*samples[:4], k=K, temperature=TEMPERATURE, classes=samples.classes).predictions


def _with_one_hot(samples: _Samples, batch: int = 512) -> Tensor:
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


def _with_faiss(samples: _Samples) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(WIDTH)
    index.add(normalize(samples.train, dim=1).numpy())
    similarity, indices = index.search(normalize(samples.test, dim=1).numpy(), K)
    weights = (torch.from_numpy(similarity) / TEMPERATURE).exp()
    voted = samples.train_labels[torch.from_numpy(indices)]
    votes = torch.zeros(len(weights), samples.classes).scatter_add_(1, voted, weights)
    return votes.argmax(dim=1)


def _scikit_learn(samples: _Samples) -> Tensor:
    import numpy as np
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(
        K, metric="cosine", weights=lambda distance: np.exp((1 - distance) / TEMPERATURE), n_jobs=-1
    )
    model.fit(samples.train.numpy(), samples.train_labels.numpy())
    return torch.from_numpy(model.predict(samples.test.numpy()))


def _measure(samples: _Samples, rivals: dict[str, _Classifier], repeats: int) -> list[Report]:
    device = samples.train.device.type
    expected = _ours(samples)
    rows = []
    for name, classify in {"dsf": _ours, **rivals}.items():
        agreement = (classify(samples) == expected).double().mean().item()
        if agreement < 0.99:
            raise RuntimeError(f"{name} predicts something else: {agreement:.2%} agree")
        row: Report = {"what": name, "agree": agreement}
        row["ms"] = milliseconds(partial(classify, samples), device, repeats)
        if device == "cuda":
            row["MiB"] = peak_mib(partial(classify, samples))
        rows.append(row)
    for row in rows:
        row["times_dsf"] = row["ms"] / rows[0]["ms"]
    return rows


def run(command: str, repeats: int, path: Path | None) -> None:
    """Measure; see :mod:`dsf.benchmarks`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report: Report = {
        "provenance": provenance(
            command,
            seed=SEED,
            device=device,
            cores=CORES,
            threads=torch.get_num_threads(),
            k=K,
            dimension=WIDTH,
        )
    }
    train, test = SIZES[device]
    where = report["provenance"]["gpu"] or device
    calls = 1 if device == "cuda" else min(5, repeats)  # ten calls a repeat on CUDA
    for classes in (10, 1000):
        samples = _make(train, test, classes, device, torch.float32)
        rows = _measure(samples, {"one-hot": _with_one_hot}, calls)
        accuracy = (_ours(samples) == samples.test_labels).double().mean().item()
        report[f"{classes} classes"] = {
            "train": train,
            "test": test,
            "accuracy": accuracy,
            "rows": rows,
        }
        show(f"{train:,} x {test:,}, {classes} classes, float32, on {where}", rows)
        save(report, path)
    on_cpu = (
        ("faiss-cpu", _with_faiss, FAISS_SIZE, torch.float32),
        ("scikit-learn", _scikit_learn, SCIKIT_LEARN_SIZE, torch.float64),
    )
    for name, rival, (train, test), dtype in on_cpu:
        try:
            report["provenance"][name] = version(name)
        except PackageNotFoundError:
            print(f"{name} is not installed and left out (extra: bench)")
            continue
        samples = _make(train, test, 10, "cpu", dtype)
        rows = _measure(samples, {name: rival}, min(5, repeats))
        report[name] = {"train": train, "test": test, "rows": rows}
        show(f"{train:,} x {test:,}, 10 classes, {str(dtype)[6:]}, on the CPU", rows)
        save(report, path)
