"""The settings of the views."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from dsf.data.augment.recipe import RECIPES, Recipe
from dsf.experiments.part import Part


class Local(Part):
    """Smaller views besides, as queries only: multi-crop (Caron et al., 2020).

    Attributes:
        count: how many an image; 0: none.
        size: their height and width; by default half that of the views, in steps of 16 pixels.
        crop_scale: the area of their crops, relative to the image; by default SwAV's. All else is
            as in views.recipe.
    """

    count: NonNegativeInt = 0
    size: Annotated[int, Field(ge=4, le=4096)] = 16
    crop_scale: tuple[float, float] = (0.05, 0.14)


class Views(Part):
    """How the views of an image are made.

    Attributes:
        count: M, views an image; one half are queries, the other keys.
        size: their height and width.
        recipe: by what augmentation.
        second: by what those of the second half, where it is another.
        options: what to change in both, of ``dsf.data.augment.Recipe``.
        local: smaller ones, besides.
        exact: torchvision's order of operations; false: movements are part of the crop.
    """

    count: Annotated[int, Field(ge=2, multiple_of=2)] = 8
    size: Annotated[int, Field(ge=4, le=4096)] = 32
    recipe: str = "cifar"
    second: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    exact: bool = True
    local: Local = Local()

    @model_validator(mode="before")
    @classmethod
    def _half(cls, values: Any) -> Any:
        """The size of local views, unless it is given."""
        if not isinstance(values, Mapping):
            return values
        local, size = values.get("local", {}), values.get("size", cls.model_fields["size"].default)
        if not isinstance(local, Mapping) or "size" in local or not isinstance(size, int):
            return values  # or the check of its field will say what is wrong
        half = max(4, size // 2)
        half -= half % 16 if half >= 16 else 0
        return {**values, "local": {**local, "size": half}}

    @field_validator("recipe", "second")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in RECIPES:
            raise ValueError(f"must be one of {', '.join(RECIPES)}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        try:
            self.recipes()
        except (TypeError, ValueError) as error:
            message = str(error).replace("Recipe.__init__() got an unexpected keyword", "no such")
            raise ValueError(f"views.options: {message}") from None
        try:
            self.local_recipe()
        except ValueError as error:
            raise ValueError(f"views.local: {error}") from None
        if self.local.count and self.local.size > self.size:
            raise ValueError(
                f"views.local.size: must be at most views.size, {self.size}; got {self.local.size}"
            )
        return self

    @property
    def total(self) -> int:
        """All views of an image, local ones too."""
        return self.count + self.local.count

    def local_recipe(self) -> Recipe:
        """That of the local views."""
        return replace(self.recipes()[0], crop_scale=self.local.crop_scale)

    def recipes(self) -> list[Recipe]:
        """One recipe, or one a half; a normalisation for all, which evaluation can share."""
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.options.items()
        }
        first = replace(RECIPES[self.recipe], **options)
        if self.second is None:
            return [first]
        shared = {"mean": first.mean, "std": first.std}
        return [first, replace(RECIPES[self.second], **options | shared)]
