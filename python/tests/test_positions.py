"""attention_positions: NumPy against a plain composition with the matrix of distances, PyTorch with gradients, and an
encoder block as TITAN's (12 heads of 64, a CLS token without bias)."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import alibi_attention as alibi


def distances(x, y, kind, leading=0):
    difference = x[:, None].astype(np.float64) - y[None].astype(np.float64)
    found = np.abs(difference).sum(-1) if kind == "manhattan" else np.sqrt((difference**2).sum(-1))
    found[:leading] = 0
    found[:, :leading] = 0
    return found


def plain(q, k, v, d, slopes, scale=None):
    """(out, lse) of one batch entry in float64, with the matrix of distances d."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) * (scale or q.shape[-1] ** -0.5) - np.asarray(slopes)[:, None, None] * d
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights / total, v), (top + np.log(total))[..., 0]


def slide(tiles, seed=0):
    """Columns and rows of the tiles of a slide: a grid with holes."""
    random = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(1.5 * tiles)))
    cells = np.sort(random.choice(side * side, tiles, replace=False))
    return np.stack([cells % side, cells // side], -1)


def qkv(batch, queries, keys, heads=4, kv_heads=2, dim=16, seed=1):
    random = np.random.default_rng(seed)
    return [random.standard_normal((batch, n, h, dim), np.float32)
            for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads))]  # fmt: skip


@pytest.mark.parametrize("kind", ["euclidean", "manhattan"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("leading", [0, 1])
def test_is_the_plain_composition(kind, dtype, leading):
    q, k, v = qkv(2, 150, 150)
    points = np.stack([slide(150, 1), slide(150, 2)]).astype(dtype)
    for tolerance in (0.0, 2**-24):
        out, lse = alibi.attention_positions(q, k, v, points, alibi_slopes=alibi.slopes(4), distance=kind,
                                             leading=leading, tolerance=tolerance, return_lse=True)  # fmt: skip
        for b in range(2):
            expected = plain(q[b], k[b], v[b], distances(points[b], points[b], kind, leading), alibi.slopes(4))
            assert np.abs(out[b] - expected[0]).max() <= 2e-6
            assert np.abs(lse[b] - expected[1]).max() <= 1e-5


def test_padding_is_left_out():
    q, k, v = qkv(2, 60, 60)
    points = slide(60)
    out, lse = alibi.attention_positions(q, k, v, points, alibi_slopes=alibi.slopes(4), seqused_q=[60, 11],
                                         seqused_k=[60, 11], return_lse=True)  # fmt: skip
    for b, n in ((0, 60), (1, 11)):
        alone = alibi.attention_positions(q[b : b + 1, :n], k[b : b + 1, :n], v[b : b + 1, :n], points[:n],
                                          alibi_slopes=alibi.slopes(4))  # fmt: skip
        assert np.array_equal(out[b : b + 1, :n], alone)
        assert not out[b, n:].any() and np.isneginf(lse[b, :, n:]).all()
    packed = [x.reshape(1, 120, *x.shape[2:]) for x in (q, k, v)]
    offsets = [0, 60, 120]
    both = np.concatenate([points, points])
    assert np.array_equal(
        alibi.attention_positions(*packed, both, alibi_slopes=alibi.slopes(4), cu_seqlens_q=offsets, cu_seqlens_k=offsets,
                                  seqused_q=[60, 11], seqused_k=[60, 11]).reshape(out.shape), out)  # fmt: skip


def test_names_what_does_not_fit():
    q, k, v = qkv(1, 5, 6)
    points = np.zeros((5, 2), np.float32)
    for change, part in [
        ({"distance": "cosine"}, "distance is 'cosine', expected 'euclidean' or 'manhattan'"),
        ({"leading": -1}, "leading is -1"),
        ({"positions_k": np.zeros((5, 2), np.float32)}, "positions_k has shape [1, 5, 2], expected [1 or 1, 6"),
        ({}, "positions_q has shape [1, 5, 2], expected [1 or 1, 6"),
        ({"alibi_slopes": [1.0]}, "alibi_slopes has 1 values"),
    ]:
        given = {"alibi_slopes": alibi.slopes(4), **change}
        with pytest.raises(alibi.Error) as error:
            alibi.attention_positions(q, k, v, points, **given)
        assert part in str(error.value)
    with pytest.raises(alibi.UsageError):
        alibi.attention_positions(q, k, v, points, softmax_scale=0.0)


def encoder_block(torch, x, parameters, attend):
    """Pre-norm attention and MLP, as in TITAN's vision transformer."""
    qkv_weight, out_weight, up, down = parameters
    width = x.shape[-1]
    normed = torch.nn.functional.layer_norm(x, (width,), eps=1e-6)
    q, k, v = (normed @ qkv_weight.T).reshape(*x.shape[:2], 3, 12, 64).unbind(2)
    x = x + attend(q, k, v).reshape(x.shape) @ out_weight.T
    normed = torch.nn.functional.layer_norm(x, (width,), eps=1e-6)
    return x + torch.nn.functional.gelu(normed @ up.T) @ down.T


def test_titan_block():
    """12 heads of 64, a CLS token whose row and column have no bias, Euclidean distances on a grid with holes."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    tiles = 300
    points = torch.cat([torch.zeros(1, 2, dtype=torch.long), torch.from_numpy(slide(tiles))])
    slopes = torch.from_numpy(alibi.slopes(12)).requires_grad_()
    bias = torch.zeros(tiles + 1, tiles + 1, dtype=torch.float64)
    bias[1:, 1:] = torch.cdist(points[1:].double(), points[1:].double())

    def with_matrix(q, k, v):
        mask = -slopes.double()[:, None, None] * bias
        heads = [t.transpose(1, 2).double() for t in (q, k, v)]
        return torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[None]).transpose(1, 2)

    def with_positions(q, k, v):
        return alibi.attention_positions(q, k, v, points, alibi_slopes=slopes, leading=1, tolerance=2**-24)

    shapes = [(3 * 768, 768), (768, 768), (3072, 768), (768, 3072)]
    results = []
    x = torch.randn(1, tiles + 1, 768)
    cotangent = torch.randn(1, tiles + 1, 768)
    weights = [torch.randn(shape) * 0.03 for shape in shapes]
    for attend, dtype in ((with_matrix, torch.float64), (with_positions, torch.float32)):
        given = [t.detach().to(dtype).requires_grad_() for t in (x, *weights)]
        slopes.grad = None
        out = encoder_block(torch, given[0], given[1:], attend)
        (out * cotangent).sum().backward()
        results.append([out.detach(), *(t.grad for t in given), slopes.grad.clone()])
    for expected, found in zip(*results, strict=True):
        error = (found.double() - expected.double()).abs().max() / expected.double().abs().max()
        assert error <= 2e-5


def test_torch_gradients_and_tools():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in qkv(1, 70, 70))
    points = torch.from_numpy(random.uniform(0, 20, (70, 3)))
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0], requires_grad=True)
    inputs = (q, k, v, slopes)
    cotangent = torch.randn(q.shape)

    def run(attend):
        return torch.autograd.grad((attend(*inputs) * cotangent).sum(), inputs)

    def matrix(q, k, v, slopes):
        x = points.float().double()
        d = torch.cdist(x, x, p=1)
        heads = [t.double().transpose(1, 2) for t in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2))]
        mask = -slopes.double()[:, None, None] * d
        return torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[None]).transpose(1, 2)

    def positions(q, k, v, slopes):
        return alibi.attention_positions(q, k, v, points, alibi_slopes=slopes, distance="manhattan")

    for found, expected in zip(run(positions), run(matrix), strict=True):
        assert (found - expected).abs().max() <= 2e-5 * (1 + expected.abs().max())
    compiled = torch.compile(positions, backend="aot_eager", fullgraph=True)
    for found, expected in zip(run(compiled), run(positions), strict=True):
        assert torch.equal(found, expected)
    torch.library.opcheck(
        torch.ops.alibi.attention_positions.default,
        (q, k, v, points[None].float(), None, slopes, "euclidean", 1, 0.0, 2**-11, None, None, None, None),
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert positions(q, k, v, slopes).dtype == torch.bfloat16
    with pytest.raises(alibi.UsageError, match="positions require a gradient"):
        alibi.attention_positions(q, k, v, points.clone().requires_grad_(), alibi_slopes=slopes)


def test_the_example_of_a_slide_runs():
    example = pathlib.Path(__file__).resolve().parents[1] / "examples" / "slide.py"
    done = subprocess.run([sys.executable, str(example), "--tiles", "700"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "700 tiles" in done.stdout and "largest difference to float64" in done.stdout


@pytest.mark.parametrize("kind", ["arrays", "tensors", "compiled"])
@pytest.mark.parametrize("dtype", ["int64", "float64", "uint64", "int32 and int64"])
def test_large_points_keep_their_distances(dtype, kind):
    if kind != "arrays":
        torch = pytest.importorskip("torch")
        if dtype == "uint64":
            pytest.skip("PyTorch has no arithmetic of uint64")
    random, heads = np.random.default_rng(1), 4
    q, k, v = (random.standard_normal((2, 12, heads, 16), np.float32) for _ in range(3))
    near = random.integers(0, 1000, (2, 12, 1))
    start = np.array([1_790_000_000_000, 5])[:, None, None]  # milliseconds since 1970; other batch entries, other times
    times = (near + start).astype(dtype.split()[-1])
    times[:, 0] = 0  # CLS
    given = {"alibi_slopes": alibi.slopes(heads), "leading": 1}
    expected = alibi.attention_positions(q, k, v, near.astype(np.float32), **given)
    run = alibi.attention_positions
    if kind != "arrays":
        q, k, v, times = (torch.tensor(x) for x in (q, k, v, times))
        given["alibi_slopes"] = torch.tensor(given["alibi_slopes"])
    if kind == "compiled":
        torch._dynamo.reset()
        run = torch.compile(run, backend="eager", fullgraph=True)
    others = times.copy() if kind == "arrays" else times.clone()
    assert np.abs(np.asarray(run(q, k, v, times, **given)) - expected).max() <= 1e-5
    assert np.abs(np.asarray(run(q, k, v, times, others, **given)) - expected).max() <= 1e-5
    packed = {**given, "cu_seqlens_q": np.array([0, 5, 12]), "cu_seqlens_k": np.array([0, 5, 12])}
    if kind == "compiled":
        packed |= {x: torch.tensor(packed[x]) for x in ("cu_seqlens_q", "cu_seqlens_k")}
    joined = times[:1] + 0
    joined[:, 6:] = times[1:, 6:]
    joined[:, 5:6] = 0
    both = np.concatenate([near[:1, :6], near[1:, 6:]], 1).astype(np.float32)
    found = run(q[:1], k[:1], v[:1], joined, **packed)
    arrays = {name: np.asarray(x) for name, x in packed.items()}
    straight = alibi.attention_positions(*(np.asarray(x)[:1] for x in (q, k, v)), both, **arrays)
    assert np.abs(np.asarray(found) - straight).max() <= 1e-5
    assert np.isfinite(np.asarray(run(q[:1], k[:1], v[:1], joined, **(packed | {"leading": 2**40})))).all()  # all have no bias
    far = joined[:, ::-1] if kind == "arrays" else joined.flip(1)  # 56 years within a sequence: rounded, not wrapped
    assert np.isfinite(np.asarray(run(q[:1], k[:1], v[:1], far, **given))).all()
