"""What the kNN evaluation costs, beside the usual way to write it, FAISS and scikit-learn.

    python benchmarks/knn.py [--json FILE]
    dsf bench knn [--json FILE]

At the size of CIFAR-10: 50,000 training and 10,000 test features of 512 numbers, ten classes,
k = 200, t = 0.1, on the CUDA device if there is one; 5,000 x 1,000 on a CPU. "one-hot" is the
implementation most repositories share: votes from a (B k) x C one-hot matrix, here for batches of
512; a second table repeats both for 1,000 classes, where that matrix grows and ours does not.
The last tables are for the CPU: FAISS's exact index with the votes counted as ours are, on 20,000
x 2,000 features in float32, and scikit-learn on a smaller set in float64, each against ours there.
All predictions are compared first: they may differ where the two best votes nearly tie.

``MiB`` is what a call allocates at most beyond the features, ``ms`` the median of calls.
"""

from dsf.benchmarks.knn import run
from dsf.benchmarks.report import parse

if __name__ == "__main__":
    arguments = parse(__doc__)
    run("python benchmarks/knn.py", arguments.repeats, arguments.json)
