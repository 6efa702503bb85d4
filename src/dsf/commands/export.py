"""``dsf export``: a run's encoder for another library."""

import argparse
import sys
from pathlib import Path

from dsf.commands.parser import Parser, asked

_DESCRIPTION = """\
Write a run's encoder for another library: weights, and a model card with the
code to load them and the run's results. That code is run first: its features
must equal the run's to 1e-4.
  timm         timm.create_model("local-dir:FOLDER", pretrained=True), if timm
               has the model by name; else (the demo's, say) the card's code
  torchvision  a state dict for its ResNets and vision transformers
  huggingface  dsf.from_pretrained(FOLDER); transformers, if timm has the model
  onnx         one file for ONNX Runtime, with batches of any size"""


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="write an encoder for timm, torchvision, the Hub or ONNX",
        description=_DESCRIPTION,
        example="dsf export runs/demo --to timm -o demo-timm",
    )
    parser.add_argument("source", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--to",
        required=True,
        choices=("timm", "torchvision", "huggingface", "onnx"),
        metavar="LIBRARY",
        help="one of the above",
    )
    parser.add_argument(
        "-o",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="a new one (RUN/exports/LIBRARY)",
    )
    parser.add_argument("--push", metavar="USER/NAME", help="and upload to the Hugging Face Hub")
    parser.add_argument("--private", action="store_true", help="there, for its owner only")
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    from dsf.export import export_run

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with asked() as begin:
        folder, difference = export_run(
            options.source,
            options.to,
            options.folder,
            push_to=options.push,
            private=options.private,
            say=say,
            begin=begin,
        )
    print(f"equal features: they differ by {difference:.1g} at most", file=sys.stderr)
    print(folder)
