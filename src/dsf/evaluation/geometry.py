"""How features lie on the sphere, and what the concentration of an image's views tells of it."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dsf.data.augment import Views
from dsf.evaluation import measures
from dsf.evaluation.features import evaluating
from dsf.evaluation.images import LabelledImages
from dsf.evaluation.knn import KNN, knn
from dsf.evaluation.protocol import Protocol, Result, plain
from dsf.vmf import fit_views

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject

_SEVERITIES = (1, 2, 3, 4, 5)
_DECILES = torch.linspace(0, 1, 11, dtype=torch.float64)


@dataclass(frozen=True)
class Geometry(Protocol):
    """What the features of test images look like, before and after the projection head.

    Of each kind of features, normalised to length 1 (see ``dsf.evaluation.measures``):
    ``alignment``, ``uniformity``, ``effective_rank``, ``class_separation``.

    Then what a distribution of views gives that a single vector does not. A von Mises-Fisher
    distribution is fitted to M augmented views of each test image, as in training; its kappa says
    how much they agree.

    - ``error_auroc``: does low kappa predict the errors of kNN? The probability that an image that
      kNN gets wrong has a lower kappa than one that it gets right; 0.5 is chance.
    - ``severity_spearman``: does kappa fall with corruption? The rank correlation of kappa with
      the severity 0 to 5 of a corruption, for each image, averaged over images and types; -1 if it
      always falls.

    kappa, the errors and the correlation are of the projection, where there is one.

    Args:
        views: M, of each image.
        shrink: lambda of ``dsf.vmf.fit_views``.
        k: neighbours of the kNN whose errors are predicted; lowered to the number of training
            images where there are fewer, and said so.
        temperature: of its votes.
        corruptions: types of ``dsf.data.corruptions``; none leaves ``severity_spearman`` out.
        images: how many test images are corrupted, the first ones.
    """

    name: ClassVar[str] = "geometry"
    method: ClassVar[str] = (
        "features of test images on the sphere; kappa of the views of an image against the errors "
        "of kNN and against the severity of corruptions"
    )
    views: int = 8
    shrink: float = 0.95
    k: int = 200
    temperature: float = 0.1
    corruptions: tuple[str, ...] = ("gaussian_noise", "gaussian_blur", "contrast", "pixelate")
    images: int = 1000

    def __post_init__(self) -> None:
        if self.views < 2:
            raise ValueError(f"views must be >= 2, to compare them; got {self.views}")
        if self.images < 1:
            raise ValueError(f"images must be >= 1; got {self.images}")

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its fields, k as it is used, and the recipe of the views."""
        recipe = {name: plain(value) for name, value in asdict(subject.recipe).items()}
        vote = self._vote(subject)
        found = super().settings(subject) | {"k": vote.k, "recipe": recipe}
        return found if vote.lowered_from is None else found | {"lowered_from": vote.lowered_from}

    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """Measure."""
        test = subject.task.tested()
        train, whole = subject.features("train"), subject.features("test")
        views = subject.views(subject.recipe, seed)
        kappa, alignment = self._kappa(subject, test, views)
        numbers: dict[str, float] = {}
        for kind, features in whole.kinds().items():
            numbers |= {
                f"{kind}_alignment": alignment[kind],
                f"{kind}_uniformity": measures.uniformity(features),
                f"{kind}_effective_rank": measures.effective_rank(features),
                f"{kind}_class_separation": measures.class_separation(features, test.labels),
            }
        last = _last(subject)
        vote = self._vote(subject)
        found = knn(
            *(train.kinds()[last], train.labels, whole.kinds()[last], whole.labels),
            *(vote.k, vote.temperature, subject.task.classes),
        )
        wrong = found.predictions != whole.labels
        details: dict[str, Any] = {
            "kappa_of": last,
            "knn_accuracy": found.accuracy,
            "kappa_mean": kappa.mean().item(),
            "kappa_deciles": kappa.double().cpu().quantile(_DECILES).tolist(),
        }
        if 0 < int(wrong.sum()) < len(wrong):
            numbers["error_auroc"] = measures.auroc(-kappa, wrong)
        else:
            details["error_auroc"] = "kNN is right or wrong about all images: nothing to predict"
        if self.corruptions:
            few = test.part(torch.arange(min(self.images, len(test))))
            by_type = self._severities(subject, few, views, kappa[: len(few)], seed)
            correlations = [found["spearman"] for found in by_type.values()]
            numbers["severity_spearman"] = sum(correlations) / len(correlations)
            details["severity"] = by_type
        return Result(self.describe(subject, seed), numbers, details)

    def _vote(self, subject: "Subject") -> KNN:
        return KNN(self.k, self.temperature).at_most(len(subject.task.train))

    def _kappa(
        self, subject: "Subject", images: LabelledImages, views: Views
    ) -> tuple[Tensor, dict[str, float]]:
        """(N,) kappa of the last kind of features, and the alignment of each kind."""
        each = subject.views_at_a_time(self.views) // self.views
        every = torch.arange(len(images), device=images.labels.device)
        found: dict[str, list[Tensor]] = {}
        kappa: list[Tensor] = []
        for batch in images.batches(every.split(each), subject.device):
            sizes = images.sizes(batch.samples)
            kinds = self._encode(subject, views, batch.images, batch.samples, sizes)
            for kind, features in kinds.items():
                found.setdefault(kind, []).append(measures.pair_distances(features))
            kappa.append(fit_views(kinds[_last(subject)], self.shrink).kappa)
        alignment = {kind: torch.cat(parts).mean().item() for kind, parts in found.items()}
        whole = torch.cat(kappa)
        if broken := int((~whole.isfinite()).sum()):
            raise ValueError(
                f"kappa of {broken} of {len(images)} images is not finite: features of their views "
                "are zero or not finite"
            )
        return whole, alignment

    @torch.no_grad()
    def _encode(
        self,
        subject: "Subject",
        views: Views,
        images: Tensor,
        samples: Tensor,
        sizes: Tensor | None,
    ) -> dict[str, Tensor]:
        """(B, M, F) features of the views of images, of each kind."""
        ids = torch.arange(self.views, device=subject.device)
        pixels = views(images, samples, 0, ids, sizes)
        with evaluating(subject.encoder):
            backbone = subject.encode(pixels.flatten(0, 1))
        kinds = {"backbone": backbone.unflatten(0, (-1, self.views))}
        projection = subject.projected(backbone)
        if projection is not None:
            kinds["projection"] = projection.unflatten(0, (-1, self.views))
        return kinds

    def _severities(
        self,
        subject: "Subject",
        images: LabelledImages,
        views: Views,
        clean: Tensor,
        seed: int,
    ) -> dict[str, dict[str, Any]]:
        """For each type the mean kappa by severity and the mean correlation of an image."""
        from dsf.data.corruptions import corrupt

        every = torch.arange(len(images), device=images.labels.device)
        each = subject.views_at_a_time()
        result: dict[str, dict[str, Any]] = {}
        for name in self.corruptions:
            rows = [clean]
            for severity in _SEVERITIES:
                # Corrupting takes far more memory than its result.
                parts = [
                    corrupt(batch.images, name, severity, seed, samples=batch.samples)
                    for batch in images.batches(every.split(each), subject.device)
                ]
                # The same samples: the very views that the clean images had.
                damaged = LabelledImages(torch.cat(parts), images.labels, images.sizes(every))
                rows.append(self._kappa(subject, damaged, views)[0])
            kappa = torch.stack(rows, dim=1)
            severity_of = torch.arange(6, device=kappa.device).expand_as(kappa)
            result[name] = {
                "kappa": kappa.mean(dim=0).tolist(),
                "spearman": measures.spearman(severity_of, kappa).mean().item(),
            }
        return result


def _last(subject: "Subject") -> str:
    """The kind of features that kappa is of."""
    return "backbone" if subject.project is None else "projection"
