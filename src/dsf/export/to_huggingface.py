"""For the Hugging Face Hub: safetensors and config.json, which dsf reads, and timm where it can."""

from pathlib import Path
from typing import Any

from dsf.experiments.exported import Source
from dsf.export.target import Loading, Target, literal, write_weights
from dsf.export.to_timm import LOCAL, by_name, find_model, make_config
from dsf.files import write_json
from dsf.models.pretrained import CONFIG, SECTION


class HuggingFace(Target):
    """A folder for ``dsf.from_pretrained``, and for timm and transformers if timm has the model."""

    name, library = "huggingface", "dsf-ssl"

    def write(self, source: Source, folder: Path) -> None:
        """Weights and config.json."""
        model = find_model(source)
        config: dict[str, Any] = make_config(source, model) if model else {}
        write_json(folder / CONFIG, config | {SECTION: source.section()})
        write_weights(folder, source.encoder.state_dict())

    def loadings(self, source: Source, folder: str) -> list[Loading]:
        """By dsf, and by those who share timm's format."""
        code = f"encode = dsf.from_pretrained({literal(folder)})\n"
        own = Loading("dsf", ("import dsf",), code)
        model = find_model(source)
        return [own, by_name(model, folder), _transformers(folder)] if model else [own]

    def note(self, source: Source) -> str:
        """Who else reads it."""
        if find_model(source):
            return LOCAL
        return (
            "Neither timm nor transformers has this architecture by name; huggingface_hub "
            "downloads it, and `dsf export --to timm` shows how timm loads it."
        )


def _transformers(folder: str) -> Loading:
    code = (
        f"model = AutoModel.from_pretrained({literal(folder)}).eval()\n\n\n"
        "def encode(images):\n"
        "    return model(pixel_values=images).pooler_output\n\n"
    )
    return Loading("transformers", ("from transformers import AutoModel",), code)
