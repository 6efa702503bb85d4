"""What a view is made of: the settings of every augmentation, and the recipes of the paper."""

from dataclasses import dataclass, replace

Range = tuple[float, float]
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Recipe:
    """The settings of one kind of view, in the order in which the operations are applied.

    An operation whose probability is 0 is left out. The defaults crop, flip and normalise.

    Attributes:
        crop_scale: area of the crop, relative to the image.
        crop_ratio: aspect ratio of the crop, width by height.
        randaugment: probability of RandAugment.
        operations: how many of its 14 operations follow each other.
        magnitude: their strength, one of ``magnitude_bins`` counted from 0.
        magnitude_bins: into how many steps each strength is divided.
        jitter: probability of colour jitter, its four parts in random order.
        brightness: the factor is drawn within 1 -+ this; likewise the next two.
        contrast: see ``brightness``.
        saturation: see ``brightness``.
        hue: the shift is drawn within -+ this part of the circle, at most 0.5.
        grayscale: probability of dropping the colour.
        blur: probability of a Gaussian blur.
        blur_radius: PIL's radius, the standard deviation in pixels.
        solarize: probability of inverting all levels from ``solarize_threshold`` on.
        solarize_threshold: a level of 0 to 256.
        flip: probability of a horizontal flip.
        mean: of the levels divided by 255, a channel each, subtracted at the end.
        std: what they are divided by then.
    """

    crop_scale: Range = (0.08, 1.0)
    crop_ratio: Range = (3 / 4, 4 / 3)
    randaugment: float = 0.0
    operations: int = 2
    magnitude: int = 9
    magnitude_bins: int = 31
    jitter: float = 0.0
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    grayscale: float = 0.0
    blur: float = 0.0
    blur_radius: Range = (0.1, 2.0)
    solarize: float = 0.0
    solarize_threshold: float = 128.0
    flip: float = 0.5
    mean: Triple = (0.485, 0.456, 0.406)
    std: Triple = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        for name in ("randaugment", "jitter", "grayscale", "blur", "solarize", "flip"):
            _within(name, getattr(self, name), 0, 1, "a probability in [0, 1]")
        for name in ("brightness", "contrast", "saturation"):
            _within(name, getattr(self, name), 0, 1, "in [0, 1]")
        _within("hue", self.hue, 0, 0.5, "in [0, 0.5]")
        _within("solarize_threshold", self.solarize_threshold, 0, 256, "in [0, 256]")
        _range("crop_scale", self.crop_scale, upper=1)
        _range("crop_ratio", self.crop_ratio, upper=16)
        _range("blur_radius", self.blur_radius, upper=64)
        if self.operations < 1:
            raise ValueError(f"operations must be at least 1; got {self.operations}")
        if self.magnitude_bins < 2 or not 0 <= self.magnitude < self.magnitude_bins:
            raise ValueError(
                "magnitude must be in [0, magnitude_bins) and magnitude_bins at least 2; "
                f"got {self.magnitude} of {self.magnitude_bins}"
            )
        for name in ("mean", "std"):
            if len(getattr(self, name)) != 3:
                raise ValueError(f"{name} must hold 3 numbers; got {getattr(self, name)}")
        if not min(self.std) > 0:
            raise ValueError(f"std must be positive; got {self.std}")


def _within(name: str, value: float, lower: float, upper: float, what: str) -> None:
    if not lower <= value <= upper:
        raise ValueError(f"{name} must be {what}; got {value!r}")


def _range(name: str, pair: Range, upper: float) -> None:
    if len(pair) != 2 or not 0 < pair[0] <= pair[1] <= upper:
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high <= {upper}; got {pair}")


_MOCOV3 = Recipe(jitter=0.8, saturation=0.2, grayscale=0.2)

RECIPES: dict[str, Recipe] = {
    "cifar": Recipe(
        crop_scale=(0.2, 1.0),
        randaugment=0.5,
        jitter=0.8,
        grayscale=0.2,
        blur=0.5,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    ),
    "mocov3-1": replace(_MOCOV3, blur=1.0),
    "mocov3-2": replace(_MOCOV3, blur=0.1, solarize=0.2),
}
"""The recipes of the paper by name."""


def find_recipe(recipe: str | Recipe) -> Recipe:
    """A recipe by its name, or itself."""
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str) or recipe not in RECIPES:
        raise ValueError(f"recipe must be a Recipe or one of {tuple(RECIPES)}; got {recipe!r}")
    return RECIPES[recipe]
