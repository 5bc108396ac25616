"""The operator on NumPy arrays."""

import inspect
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import alibi_attention as alibi
import reference

H, D = 6, 32


def draw(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, np.float32)


def qkv(batch=2, queries=70, keys=None, kv_heads=H, seed=0):
    keys = queries if keys is None else keys
    return draw(batch, queries, H, D, seed=seed), draw(batch, keys, kv_heads, D, seed=1), draw(
        batch, keys, kv_heads, D, seed=2
    )


def error(a, b):
    return np.abs(np.asarray(a, np.float64) - b).max()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("given", ["plain", "slopes", "per batch", "grouped", "window", "wider window", "offset", "scale", "after", "softcap", "sinks"])
def test_matches_the_formula(given, causal):
    q, k, v = qkv(keys=90, kv_heads=2 if given == "grouped" else H)
    slopes = None if given == "plain" else alibi.slopes(H)
    ours, theirs = {}, {}
    if given == "per batch":
        slopes = np.stack([alibi.slopes(H), alibi.slopes(H) / 3])
    if given == "window":
        ours["window_size"] = theirs["window_size"] = (9, 0 if causal else 9)
    if given == "wider window":
        ours["window_size"] = theirs["window_size"] = (5, -1 if causal else 20)
    if given == "softcap":
        ours["softcap"] = theirs["softcap"] = 0.75
    if given == "sinks":
        ours["sinks"] = theirs["sinks"] = np.linspace(-3, 3, H).astype(np.float32)
    if given == "offset":
        ours["query_offset"] = theirs["offset"] = 5
    if given == "scale":
        ours["softmax_scale"] = theirs["scale"] = 0.3
    if given == "after" and not causal:
        ours["alibi_slopes_after"] = theirs["slopes_after"] = np.where(np.arange(H) % 2, np.inf, 0.1).astype(np.float32)
    out, lse = alibi.attention(q, k, v, alibi_slopes=slopes, causal=causal, return_lse=True, **ours)
    expected, expected_lse = reference.attention(q, k, v, slopes, causal, **theirs)
    assert out.dtype == np.float32 and out.shape == q.shape
    assert error(out, expected) <= 3e-6
    assert error(lse, expected_lse) <= 3e-5


def test_defaults_are_causal_and_bottom_right():
    q, k, v = qkv(queries=3, keys=8)
    out = alibi.attention(q, k, v)
    assert error(out, reference.attention(q, k, v, causal=True, offset=5)[0]) <= 3e-6
    assert error(alibi.flash_attn_func(q, k, v), reference.attention(q, k, v, causal=False)[0]) <= 3e-6


def test_strides_are_read_in_place():
    q, k, v = (draw(2, H, 40, D, seed=i).transpose(0, 2, 1, 3) for i in range(3))
    packed = draw(2, 40, 3, H, D)
    slopes = alibi.slopes(H)
    for x, y, z in ((q, k, v), tuple(packed[:, :, i] for i in range(3)), (q[:, ::-2], k[:, 3:], v[:, 3:])):
        straight = alibi.attention(*(np.ascontiguousarray(a) for a in (x, y, z)), alibi_slopes=slopes)
        assert np.array_equal(alibi.attention(x, y, z, alibi_slopes=slopes), straight)
    with pytest.raises(alibi.Error, match="unit inner stride"):
        alibi.attention(draw(2, 40, D, H).transpose(0, 1, 3, 2), k, v)


def test_read_only_and_other_arrays():
    q, k, v = qkv()
    expected = alibi.attention(q, k, v)
    for x in (q, k, v):
        x.flags.writeable = False
    assert np.array_equal(alibi.attention(q, k, v), expected)

    class Other:  # of a library that has DLPack
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **given):
            return self.array.__dlpack__(**given)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    q, k, v = qkv()
    assert np.array_equal(alibi.attention(Other(q), Other(k), Other(v)), expected)


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in qkv())
    slopes = alibi.slopes(H)
    out, lse = alibi.attention(q, k, v, alibi_slopes=slopes, return_lse=True)
    expected, expected_lse = reference.attention(*(x.astype(np.float64) for x in (q, k, v)), slopes)
    assert out.dtype == ml_dtypes.bfloat16
    assert error(out.astype(np.float64), expected) <= 2e-2
    assert error(lse, expected_lse) <= 1e-2


def test_packed_sequences():
    lengths = [5, 0, 40, 1]
    offsets = np.cumsum([0, *lengths])
    q, k, v = qkv(batch=1, queries=sum(lengths))
    slopes = alibi.slopes(H)
    out = alibi.attention(q, k, v, alibi_slopes=slopes, cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    flash = alibi.flash_attn_varlen_func(q[0], k[0], v[0], offsets, offsets, 40, 40, causal=True, alibi_slopes=slopes)
    assert np.array_equal(flash, out[0])
    for begin, end in zip(offsets, offsets[1:]):
        if begin < end:
            expected, _ = reference.attention(q[:, begin:end], k[:, begin:end], v[:, begin:end], slopes)
            assert error(out[:, begin:end], expected) <= 3e-6


def test_the_skip_rule_changes_less_than_its_bound():
    q, k, v = (4 * x for x in qkv(batch=1, queries=700))
    slopes = alibi.slopes(H)
    exact = alibi.attention(q, k, v, alibi_slopes=slopes)
    for tolerance in (2**-24, 1e-2):
        skipped = alibi.attention(q, k, v, alibi_slopes=slopes, tolerance=tolerance)
        assert error(skipped, exact) <= 2 * tolerance * np.abs(v).max() + 1e-5


def test_dropout_is_a_function_of_its_seed():
    q, k, v = qkv()
    one, same, other = (alibi.attention(q, k, v, dropout_p=0.5, dropout_seed=s) for s in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    np.random.seed(3)
    drawn = [alibi.attention(q, k, v, dropout_p=0.5) for _ in range(2)]
    np.random.seed(3)
    assert np.array_equal(drawn[0], alibi.attention(q, k, v, dropout_p=0.5))
    assert not np.array_equal(*drawn)
    # The mean over many seeds is attention without dropout.
    mean = np.mean([alibi.attention(q, k, v, dropout_p=0.5, dropout_seed=s) for s in range(400)], axis=0)
    assert 1e-4 < error(mean, alibi.attention(q, k, v)) < 1


def test_cache_and_decoding():
    q, k, v = qkv(queries=50)
    slopes, sinks = alibi.slopes(H), np.linspace(-3, 3, H)
    whole = alibi.attention(q, k, v, alibi_slopes=slopes, sinks=sinks)
    cache = alibi.KvCache(2, H, D)
    cache.append(k[:, :40], v[:, :40])
    for i in range(40, 50):
        cache.append(k[:, i : i + 1], v[:, i : i + 1])
        out, lse = alibi.attention_decode(q[:, i : i + 1], cache, alibi_slopes=slopes, return_lse=True, sinks=sinks)
        assert error(out, whole[:, i : i + 1]) <= 3e-6
        assert error(lse, reference.attention(q[:, : i + 1], k[:, : i + 1], v[:, : i + 1], slopes, sinks=sinks)[1][..., -1:]) <= 3e-5
    assert len(cache) == 50 and np.array_equal(cache.keys(), k) and np.array_equal(cache.values(), v)
    cache.truncate(45)
    assert len(cache) == 45 and cache.nbytes > 0 and "keys=45" in repr(cache)
    with pytest.raises(alibi.Error):
        cache.append(k[:, :1, :1], v[:, :1, :1])
    with pytest.raises(alibi.UsageError):
        alibi.KvCache(2, H, D, dtype="float64")


def test_parts_merge_to_the_whole():
    q, k, v = qkv(queries=50)
    slopes = alibi.slopes(H)
    a = alibi.attention(q, k[:, :20], v[:, :20], alibi_slopes=slopes, query_offset=0, return_lse=True)
    b = alibi.attention(q, k[:, 20:], v[:, 20:], alibi_slopes=slopes, query_offset=-20, return_lse=True)
    out, lse = alibi.merge_attention(*a, *b)
    expected, expected_lse = reference.attention(q, k, v, slopes)
    assert error(out, expected) <= 3e-6 and error(lse, expected_lse) <= 3e-5


@pytest.mark.parametrize("heads", [1, 6, 8, 12])
def test_slopes(heads):
    def power_of_two(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]

    n = 2 ** int(np.log2(heads))
    expected = power_of_two(n) + power_of_two(2 * n)[0::2][: heads - n]
    assert alibi.slopes(heads).dtype == np.float32
    assert np.allclose(alibi.slopes(heads), expected, rtol=1e-6)


def test_errors_name_what_is_wrong():
    q, k, v = qkv()
    assert issubclass(alibi.UsageError, alibi.Error) and issubclass(alibi.UsageError, ValueError)
    assert issubclass(alibi.Error, RuntimeError) and alibi.Error.__module__ == "alibi_attention"
    for call, message in [
        (lambda: alibi.attention(q.astype(np.float64), k, v), "q is float64, expected float32, bfloat16 or float16"),
        (lambda: alibi.attention(q, k[:, :, :4], v[:, :, :4]), "heads"),
        (lambda: alibi.attention(q, k, v[:, 1:]), "v has shape"),
        (lambda: alibi.attention(q[0], k, v), r"expected \[batch, length, heads, head_dim\]"),
        (lambda: alibi.attention(q, k, v, alibi_slopes=np.ones((H, 2))), "alibi_slopes has shape"),
        (lambda: alibi.attention(q, k, v, alibi_slopes=-alibi.slopes(H)), "slopes"),
        (lambda: alibi.attention(q, k, v, sinks=np.ones((1, H))), r"sinks has shape \[1, 6\], expected \[6\]"),
        (lambda: alibi.attention(q, k, v, sinks=[np.nan] * H), "sinks has nan"),
        (lambda: alibi.attention(q, k, v, softcap=-1.0), "softcap is -1"),
        (lambda: alibi.attention(q, k, v, window_size=7), "window_size is 7, expected"),
        (lambda: alibi.attention(q, k, v, window_size=(1, 2, 3)), "window_size is"),
        (lambda: alibi.attention(q, k, v, softmax_scale=0), "softmax_scale"),
        (lambda: alibi.attention(q, "k", v), "k is a str"),
        (lambda: alibi.slopes(0), "heads"),
        (lambda: alibi.flash_attn_func(q, k, v, 0.5, return_attn_probs=True), "return_attn_probs"),
        (lambda: alibi.flash_attn_varlen_func(q[0], k, v, [0], [0], 1, 1, block_table=1), "block_table"),
    ]:
        with pytest.raises(alibi.Error, match=message):
            call()
    for wrong in ({"tolerance": "x"}, {"query_offset": 1.5}, {"softmax_scale": "x"}, {"dropout_p": "x", "dropout_seed": 1}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            alibi.attention(q, k, v, **wrong)


def test_signatures_of_flash_attention():
    expected = ("q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
                "alibi_slopes=None, deterministic=False, return_attn_probs=False")  # fmt: skip
    varlen = expected.replace("v, d", "v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, d") + ", block_table=None"
    cache = ("q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
             "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
             "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
             "return_softmax_lse=False")  # fmt: skip
    for function, wanted in ((alibi.flash_attn_func, expected), (alibi.flash_attn_varlen_func, varlen),
                             (alibi.flash_attn_with_kvcache, cache)):  # fmt: skip
        parameters = inspect.signature(function).parameters.values()
        found = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters)
        assert found == wanted


def test_same_bits_at_any_number_of_threads_and_from_many():
    q, k, v = qkv(queries=300)
    slopes = alibi.slopes(H)
    before = alibi.threads()
    results = []
    try:
        for count in (1, 4):
            alibi.set_threads(count)
            assert alibi.threads() == count
            results.append(alibi.attention(q, k, v, alibi_slopes=slopes))
        threads = [threading.Thread(target=lambda: results.append(alibi.attention(q, k, v, alibi_slopes=slopes)))
                   for _ in range(4)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        alibi.set_threads(before)
    assert len(results) == 6 and all(np.array_equal(results[0], other) for other in results)
    with pytest.raises(alibi.UsageError):
        alibi.set_threads(0)


def test_a_forked_child_computes():
    q, k, v = qkv(queries=300)
    expected = alibi.attention(q, k, v)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if np.array_equal(alibi.attention(q, k, v), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_importing_it_imports_no_torch():
    code = "import sys, alibi_attention; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], None, 3.0, "text"], ids=["list", "none", "number", "text"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_array_is_named(wrong, place):
    arrays = [np.ones((1, 4, 2, 8), np.float32) for _ in range(3)]
    arrays[place] = wrong
    with pytest.raises(alibi.UsageError, match=rf"\[attention\] {'qkv'[place]} is (of type|a) {type(wrong).__name__}"):
        alibi.attention(*arrays)
    with pytest.raises(alibi.UsageError, match=f"{'qkv'[place]} is (of type|a) "):
        alibi.attention(*arrays, return_lse=True)
