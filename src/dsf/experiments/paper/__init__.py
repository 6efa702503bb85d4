"""The paper's experiments: plans of runs, their results, and the document made from them."""
