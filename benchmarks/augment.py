"""How many views a second: dsf on one device, torchvision on all cores, kornia on that device.

    python benchmarks/augment.py [--json FILE]
    dsf bench augment [--json FILE]

Two settings: the full ``cifar`` recipe at 32 pixels, and the two of ``mocov3``, half of the views
each, at 224 pixels from images stored at 256. The images are 64 of CIFAR-10's, enlarged for the
second. dsf starts from bytes on the device and ends in normalised channels_last tensors there;
``graph_ms`` is the compiled call replayed as a CUDA graph, as a captured training step does it.

The rivals get the better of every doubt. torchvision works on decoded PIL images in one process a
core, and its views stay where they were made: no loader collects them, none crosses to the GPU.
kornia starts from floats on the device; its RandAugment draws one pair of operations for all
views of a batch where ours and torchvision's draw one a view, and its other operations are not
torchvision's to the level. It is left out where it is not installed.
"""

from dsf.benchmarks.augment import run
from dsf.benchmarks.report import parse

if __name__ == "__main__":
    arguments = parse(__doc__)
    run("python benchmarks/augment.py", arguments.repeats, arguments.json)
