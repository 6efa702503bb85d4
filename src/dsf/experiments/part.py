"""What all settings share."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A group of settings: unknown names and infinite numbers are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )
