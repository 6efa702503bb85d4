"""What the split BatchNorm costs in a ResNet with the CIFAR stem, forward and backward.

    python benchmarks/batch_norm.py [--json FILE]

1,024 views of 32 pixels (256 images, 4 views) in bfloat16 on a CUDA device; on a CPU 64 in float32
and a small ResNet. BatchNorm over the whole batch, SplitBatchNorm with 8 groups, and its
definition, 8 BatchNorms each on its own slice (which take too long to compile), in channels_last.
"""

import torch
from torch import Tensor, nn

from dsf.benchmarks.report import Report, milliseconds, parse, peak_mib, provenance, save, show
from dsf.models import create_encoder, split_batch_norm

SPLITS, SEED = 8, 0
CASES = {"cuda": (1024, "resnet18", {"stem": "cifar"}), "cpu": (64, "resnet-small", {})}


class Slices(nn.Module):
    """n BatchNorms of which each sees every n-th sample."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.BatchNorm2d(features) for _ in range(SPLITS))

    def forward(self, images: Tensor) -> Tensor:
        groups = [part(images[i::SPLITS]) for i, part in enumerate(self.parts)]
        return torch.stack(groups, dim=1).flatten(0, 1)


def sliced(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, Slices(child.num_features))
        else:
            sliced(child)
    return module


CANDIDATES = {
    "BatchNorm": lambda encoder: encoder,
    "SplitBatchNorm": lambda encoder: split_batch_norm(encoder, SPLITS),
    "BatchNorm on slices": sliced,
}


def measure(device: str, repeats: int) -> list[dict[str, object]]:
    views, name, options = CASES[device]
    images = torch.randn(views, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    rows: list[dict[str, object]] = []
    for what, convert in CANDIDATES.items():
        torch.manual_seed(SEED)
        torch._dynamo.reset()
        encoder = convert(create_encoder(name, **options)).to(device)
        encoder.to(memory_format=torch.channels_last)
        row: dict[str, object] = {"what": what}

        def step(encoder: nn.Module = encoder) -> None:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                features = encoder(images)
            features.float().square().mean().backward()

        for how in ("eager",) if convert is sliced else ("eager", "compiled"):
            if how == "compiled":
                encoder.compile()
            row[f"{how}_ms"] = milliseconds(step, device, repeats)
            if device == "cuda":
                row[f"{how}_MiB"] = peak_mib(step)
        rows.append(row)
    for row in rows:
        for how in ("eager", "compiled"):
            if f"{how}_ms" in row:
                row[f"{how}_times"] = row[f"{how}_ms"] / rows[0][f"{how}_ms"]
    return rows


def main() -> None:
    arguments = parse(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    report: Report = {
        "provenance": provenance("python benchmarks/batch_norm.py", seed=SEED, device=device)
    }
    report["rows"] = measure(device, arguments.repeats)
    show(f"ResNet forward and backward on {device}", report["rows"])
    save(report, arguments.json)


if __name__ == "__main__":
    main()
