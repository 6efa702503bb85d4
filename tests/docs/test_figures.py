import re
import runpy

import torch
from blocks import ROOT

FIGURES = runpy.run_path(str(ROOT / "docs" / "tools" / "figures.py"))
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def test_the_committed_pictures_are_those_of_the_code(tmp_path):
    """`make figures` mends it. Numbers may differ by what cannot be seen."""
    made = {path.name: path for path in FIGURES["write"](tmp_path)}
    committed = {path.name: path for path in FIGURES["FOLDER"].iterdir()}
    assert set(made) == set(committed)
    for name in (name for name in made if name.endswith(".svg")):
        ours, theirs = made[name].read_text(), committed[name].read_text()
        assert _NUMBER.split(ours) == _NUMBER.split(theirs), name
        pairs = zip(_NUMBER.findall(ours), _NUMBER.findall(theirs), strict=True)
        assert all(abs(float(a) - float(b)) < 0.6 for a, b in pairs), name


def test_each_image_is_most_similar_to_itself():
    """As the page says of the matrix."""
    split = FIGURES["load"]("embedded", "train")
    sampler = FIGURES["EpochSampler"](len(split), 1, FIGURES["SEED"], rank=0, world_size=1)
    samples = sampler.order(0)[: FIGURES["IMAGES"]]
    found = FIGURES["similarities"](FIGURES["average_colours"](split, samples))
    assert torch.equal(found.argmax(dim=1), torch.arange(FIGURES["IMAGES"]))
