"""What corruption evaluation costs, and each corruption beside one image at a time.

    python benchmarks/corruption.py [--json FILE]

The evaluation is that of the paper's table over all severities: 18 types x 5 severities of 10,000
images of 32 pixels through a ResNet-18 with the CIFAR stem, untrained, in bf16 on the CUDA device;
1 severity of 100 images through a narrow ResNet on a CPU. It runs twice, and must give the same
numbers. Its time is split by a run whose classifier does nothing.

The second table has the time of each type for 1,000 images (100 on a CPU), the mean over its five
severities, on the device. The third compares with the usual way, one image after the other in one
process on the CPU, written with NumPy, SciPy and Pillow as the published sets were made. The
results of those without chance are compared first.

Without the package imagecorruptions, frost takes noise for its textures: the time is the same.
"""

import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dsf.benchmarks.report import CORES, Report, milliseconds, parse, provenance, save, show
from dsf.data import load
from dsf.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from dsf.data.corruptions.constants import CIFAR
from dsf.data.corruptions.textures import find_textures
from dsf.evaluation.corruption import CorruptionResult, corruption_errors
from dsf.models import create_encoder

SEED = 0
IMAGES = {"cuda": 10_000, "cpu": 100}
BATCH = {"cuda": 1_000, "cpu": 100}
EVALUATED = {"cuda": SEVERITIES, "cpu": (1,)}
ENCODER = {"cuda": ("resnet18", {"stem": "cifar"}), "cpu": ("resnet-small", {})}
TEXTURES = ((900, 600), (560, 315), (560, 315), (527, 350), (660, 495))
RIVAL_SEVERITY = 3

Pixels = np.ndarray
OneImage = Callable[[Pixels, tuple[float, ...]], Pixels]


def ensure_textures(folder: str) -> str:
    """Where frost's textures come from; noise of their sizes where they are not installed."""
    try:
        find_textures()
        return "imagecorruptions"
    except FileNotFoundError:
        frost = Path(folder, "imagecorruptions", "frost")
        frost.mkdir(parents=True)
        (frost.parent / "__init__.py").touch()
        generator = np.random.default_rng(SEED)
        for number, (width, height) in enumerate(TEXTURES, start=1):
            noise = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
            ending = "png" if number < 4 else "jpg"
            Image.fromarray(noise).save(frost / f"frost{number}.{ending}")
        sys.path.append(folder)
        return "noise"


def some_images(count: int, device: str) -> tuple[Tensor, Tensor]:
    split = load("embedded", "test")
    rows = torch.arange(count) % len(split)
    return split.images()[rows].to(device), split.labels()[rows].to(device)


def classifier(device: str) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(SEED)
    name, options = ENCODER[device]
    encoder = create_encoder(name, **options)
    network = nn.Sequential(encoder, nn.Linear(encoder.num_features, 10)).eval()
    network = network.to(device, memory_format=torch.channels_last)

    def predict(batch: Tensor) -> Tensor:
        levels = batch.to(torch.float32, memory_format=torch.channels_last) / 127.5 - 1
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            return network(levels).argmax(dim=1)

    return predict


def evaluation(device: str) -> tuple[list[Report], CorruptionResult]:
    images, labels = some_images(IMAGES[device], device)

    def run(predict: Callable[[Tensor], Tensor]) -> tuple[float, CorruptionResult]:
        start = time.perf_counter()
        result = corruption_errors(
            predict,
            images,
            labels,
            severities=EVALUATED[device],
            seed=SEED,
            batch_size=BATCH[device],
        )
        return time.perf_counter() - start, result

    predict = classifier(device)
    first, result = run(predict)
    again, repeated = run(predict)
    assert repeated == result, "the same seed must give the same numbers"
    nothing, _ = run(lambda batch: batch[:, 0, 0, 0].long())
    seen = images.shape[0] * (1 + len(CORRUPTIONS) * len(EVALUATED[device]))
    rows: list[Report] = [
        {"what": "first run", "s": first, "images_per_s": seen / first},
        {"what": "again", "s": again, "images_per_s": seen / again},
        {"what": "of that, corruption", "s": nothing, "images_per_s": seen / nothing},
    ]
    return rows, result


def by_type(device: str, repeats: int) -> list[Report]:
    images, _ = some_images(BATCH[device], device)
    rows = []
    for name in (*CORRUPTIONS, "fog"):

        def call(name: str = name) -> None:
            for severity in SEVERITIES:
                corrupt(images, name, severity, SEED)

        taken = milliseconds(call, device, repeats) / len(SEVERITIES)
        rows.append({"type": name, "ms": taken, "images_per_s": 1e3 * len(images) / taken})
    return rows


def cut(levels: Pixels) -> Pixels:
    return np.clip(levels + 1e-6, 0, 255).astype(np.uint8)


def noisy(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    return cut(image + 255 * constants[0] * np.random.default_rng().normal(size=image.shape))


def blurred(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    from scipy.ndimage import gaussian_filter

    sigma = (constants[0], constants[0], 0)
    return cut(gaussian_filter(image.astype(np.float64), sigma, mode="nearest"))


def frosted_glass(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    sigma, delta, passes = constants[0], int(constants[1]), int(constants[2])
    pixels = blurred(image, (sigma,))
    generator = np.random.default_rng()
    for _ in range(passes):
        for row in range(len(image) - delta, delta, -1):
            for column in range(len(image) - delta, delta, -1):
                right, down = generator.integers(-delta, delta, 2)
                pixels[row, column] = pixels[row + down, column + right]
    return blurred(pixels, (sigma,))


def zoomed(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    from scipy.ndimage import zoom

    total, side = image.astype(np.float64), len(image)
    factors = np.arange(1, *constants)
    for factor in factors:
        part = int(np.ceil(side / factor))
        start = (side - part) // 2
        middle = image[start : start + part, start : start + part].astype(np.float64)
        large = zoom(middle, (factor, factor, 1), order=1)
        surplus = (len(large) - side) // 2
        total = total + large[surplus : surplus + side, surplus : surplus + side]
    return cut(total / (len(factors) + 1))


def flat(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    mean = image.mean(axis=(0, 1))
    return cut((image - mean) * constants[0] + mean)


def coarse(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    side = int(len(image) * constants[0])
    small = Image.fromarray(image).resize((side, side), Image.Resampling.BOX)
    return np.asarray(small.resize(image.shape[:2], Image.Resampling.BOX))


def compressed(image: Pixels, constants: tuple[float, ...]) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=int(constants[0]))
    return np.asarray(Image.open(file))


RIVALS: dict[str, tuple[OneImage, bool]] = {  # whether chance has no part in it
    "gaussian_noise": (noisy, False),
    "glass_blur": (frosted_glass, False),
    "zoom_blur": (zoomed, True),
    "contrast": (flat, True),
    "pixelate": (coarse, True),
    "jpeg_compression": (compressed, True),
    "gaussian_blur": (blurred, True),
}


def beside_rivals(device: str, repeats: int) -> list[Report]:
    images, _ = some_images(100, "cpu")
    arrays = list(images.permute(0, 2, 3, 1).contiguous().numpy())
    rows = []
    for name, (one, certain) in RIVALS.items():
        constants = CIFAR[name][RIVAL_SEVERITY - 1]
        if certain:
            expected = torch.from_numpy(np.stack([one(image, constants) for image in arrays]))
            found = corrupt(images, name, RIVAL_SEVERITY).permute(0, 2, 3, 1)
            agreement = (found == expected).double().mean().item()
            assert agreement > 0.999, f"{name} differs: {agreement:.2%} of the bytes agree"

        def usual(one: OneImage = one, constants: tuple[float, ...] = constants) -> None:
            for image in arrays:
                one(image, constants)

        row: Report = {"type": name}
        row["one_by_one_ms"] = milliseconds(usual, "cpu", min(3, repeats))
        for where in dict.fromkeys(("cpu", device)):
            batch = images.to(where)
            many = batch.repeat(10, 1, 1, 1) if where == "cuda" else batch

            def ours(many: Tensor = many, name: str = name) -> Tensor:
                return corrupt(many, name, RIVAL_SEVERITY, SEED)

            per_hundred = milliseconds(ours, where, repeats) * len(images) / len(many)
            row[f"dsf_{where}_ms"] = per_hundred
            row[f"times_{where}"] = row["one_by_one_ms"] / per_hundred
        rows.append(row)
    return rows


def main() -> None:
    arguments = parse(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    repeats = 1 if device == "cuda" else min(3, arguments.repeats)  # ten calls a repeat on CUDA
    with tempfile.TemporaryDirectory() as folder:
        report: Report = {
            "provenance": provenance(
                "python benchmarks/corruption.py",
                seed=SEED,
                device=device,
                cores=CORES,
                threads=torch.get_num_threads(),
                pillow=Image.__version__,
                frost_textures=ensure_textures(folder),
            )
        }
        where = report["provenance"]["gpu"] or device
        rows, result = evaluation(device)
        report["evaluation"] = {
            "encoder": ENCODER[device][0],
            "images": IMAGES[device],
            "severities": list(EVALUATED[device]),
            "mce": result.mce,
            "clean_error": result.clean_error,
            "rows": rows,
        }
        show(
            f"{len(CORRUPTIONS)} types x {len(EVALUATED[device])} severities of "
            f"{IMAGES[device]:,} images through {ENCODER[device][0]}, on {where}",
            rows,
        )
        save(report, arguments.json)
        report["types"] = by_type(device, repeats)
        show(f"{BATCH[device]:,} images, mean over severities, on {where}", report["types"])
        save(report, arguments.json)
        report["rivals"] = beside_rivals(device, repeats)
        show(f"100 images of severity {RIVAL_SEVERITY}, ms", report["rivals"])
    save(report, arguments.json)


if __name__ == "__main__":
    main()
