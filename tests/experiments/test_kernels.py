import pytest

from dsf.experiments.kernels import kind, summarise


def test_time_is_added_up_by_kind_and_by_kernel():
    spans = [
        (0.0, 4000.0, "sm90_xmma_fprop_a"),
        (4000.0, 6000.0, "triton_poi_fused_add"),
        (5000.0, 7000.0, "triton_poi_fused_add"),  # beside the one before
        (9000.0, 10000.0, "sm90_xmma_wgrad_b"),
    ]
    rows = summarise(spans, steps=2)
    kinds = {row.kind: row for row in rows if not row.name}
    assert (kinds["convolution"].milliseconds, kinds["convolution"].calls) == (2.5, 1)
    assert kinds["convolution"].share == 0.5
    assert (kinds["compiled, pointwise"].milliseconds, kinds["idle"].milliseconds) == (2.0, 1.0)
    single = [row.name for row in rows if row.name]
    assert single == ["sm90_xmma_fprop_a", "triton_poi_fused_add", "sm90_xmma_wgrad_b"]
    assert len([row for row in summarise(spans, 2, most=1) if row.name]) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm90_xmma_dgrad_implicit_gemm_bf16", "convolution"),
        ("nvjet_hsh_128x256", "matrix product"),
        ("triton_red_fused_native_batch_norm", "compiled, with sums"),
        ("void at::native::multi_tensor_apply_kernel", "optimiser and averages"),
        ("Memcpy DtoD", "copy or fill"),
        ("something", "other"),
    ],
)
def test_kinds(name, expected):
    assert kind(name) == expected


def test_nothing_seen():
    with pytest.raises(ValueError, match="no kernel"):
        summarise([], 1)
