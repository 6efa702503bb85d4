"""What the losses cost at the size of the CIFAR-10 recipe, forward and backward.

    python benchmarks/loss.py [--json FILE]
    dsf bench loss [--json FILE]

N = 256 images, m = 4 views a side, K = 4,096 queued keys, D = 128, on the CUDA device if there is
one. DSF is compared with FeatureAverage and LossAverage on the same features, and with the
arrangement of the paper's equations written plainly: three N x K terms, of which ours keeps one
matrix product. Times are medians of calls; the queue is written in each, and the compiled gradient
is checked against the eager one first. On a GPU, calls this small spend their time being launched:
``cudagraphs_ms`` is compiled with mode="reduce-overhead", ``graph_ms`` the compiled call replayed
as one CUDA graph, as a captured training step does it.

Before that comes a table for large matrices of logits: 4,096 images against 65,536 queued keys,
which is 1 GiB, and against each other, where the keys have gradients too (a quarter of the images
and of the keys on a CPU). They are stored, and streamed: by the Triton kernels on a GPU, by blocks
of 4,096 negatives elsewhere and where the kernels are switched off. ``error`` is that of the
gradient relative to float64, in norm.
"""

from dsf.benchmarks.loss import run
from dsf.benchmarks.report import parse

if __name__ == "__main__":
    arguments = parse(__doc__)
    run("python benchmarks/loss.py", arguments.repeats, arguments.json)
