"""Tensors of PyTorch that are not plain: on meta, without memory, with the opposite sign; arrays beside tensors."""

import copy
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import alibi_attention as alibi  # noqa: E402

H, D = 4, 8


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def test_a_tensor_on_meta_beside_others():
    given = dict(zip("qkv", (draw(1, 5, H, D, seed=i) for i in range(3))))
    given |= {"alibi_slopes": torch.tensor(alibi.slopes(H))}
    offsets = torch.tensor([0, 5], dtype=torch.int32)
    packed = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets}
    points = {"positions_q": draw(5, 2), "positions_k": draw(5, 2)}
    used = {"seqused_q": torch.tensor([5]), "seqused_k": torch.tensor([5])}
    out, lse = alibi.attention(*(given[x] for x in "qkv"), return_lse=True)
    after = {"alibi_slopes_after": given["alibi_slopes"], "causal": False}
    cache = {"q": given["q"], "k_cache": given["k"].clone(), "v_cache": given["v"].clone(), "cache_seqlens": torch.tensor([3])}
    decoded = alibi.KvCache(1, H, D)
    decoded.append(given["k"], given["v"])
    calls = [
        (alibi.attention, given | packed | after), (alibi.flash_attn_func, given),
        (alibi.attention_positions, given | points | used), (alibi.attention_positions, given | points | packed),
        (alibi.merge_attention, {"out_a": out, "lse_a": lse, "out_b": out, "lse_b": lse}),
        (alibi.flash_attn_with_kvcache, cache | {"alibi_slopes": given["alibi_slopes"]}),
        (functools.partial(alibi.attention_decode, cache=decoded), {x: given[x] for x in ("q", "alibi_slopes")}),
        (decoded.append, {x: given[x] for x in "kv"}),
    ]  # fmt: skip
    for call, arguments in calls:
        for name in [name for name, x in arguments.items() if isinstance(x, torch.Tensor)]:
            for grads in (False, True):
                given_here = arguments | {name: arguments[name].to("meta")}
                if grads and call is alibi.attention and name != "q":
                    given_here["q"] = arguments["q"].clone().requires_grad_()
                with pytest.raises((alibi.Error, TypeError, RuntimeError)) as found:
                    call(**given_here)
                if name not in ("q", "out_a"):  # then another one is called wrong
                    assert name.removeprefix("alibi_") in str(found.value), (call, name, found.value)
    everything = {name: x.to("meta") if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    assert alibi.attention(**everything).device.type == "meta"


@pytest.mark.parametrize("learned", [False, True])
def test_deferred_initialization(learned):
    kept = alibi.AlibiAttention(64, 2, learned_slopes=learned)
    with torch.device("meta"):
        layer = alibi.AlibiAttention(64, 2, learned_slopes=learned)
    assert layer.qkv.weight.device.type == "meta"
    layer.to_empty(device="cpu").load_state_dict(kept.state_dict())
    x = draw(1, 6, 64)
    assert torch.equal(layer(x), kept(x)) and torch.equal(layer.slopes, kept.slopes)
    for change in (copy.deepcopy, lambda y: y.to("meta").to_empty(device="cpu")):
        again = change(layer)
        again.load_state_dict(kept.state_dict())
        assert torch.equal(again(x), kept(x))
    with torch.device("meta"):  # FSDP and TorchTitan call reset_parameters of each module, without a state
        fresh = alibi.AlibiAttention(64, 2, learned_slopes=learned)
    fresh.to_empty(device="cpu")
    for module in fresh.modules():
        module.reset_parameters()
    assert torch.equal(fresh.slopes, kept.slopes) and set(fresh.state_dict()) == set(kept.state_dict())
    np.testing.assert_allclose(fresh.slopes.detach(), alibi.slopes(2), rtol=1e-6)


def refusal(call, arguments, name, bytes_, offset=0):
    """The message for a tensor whose storage has `bytes_` fewer bytes. (pytest shows tensors of frames that fail, which
    PyTorch would read past their memory, so no such frame has it.)"""
    whole = arguments[name].clone()
    part = whole[offset:]
    whole.untyped_storage().resize_(0 if bytes_ is None else whole.numel() * 4 - bytes_)
    try:
        call(**(arguments | {name: part}))
    except RuntimeError as error:  # of ours, or of PyTorch's where it makes a view
        return f"{name} has shape: {error}" if name == "positions_q" and "storage" in str(error) else str(error)
    return "accepted"


def test_tensors_without_memory():
    given = dict(zip("qkv", (draw(2, 5, H, D, seed=i) for i in range(3))))
    out, lse = alibi.attention(*given.values(), return_lse=True)
    cache = alibi.KvCache(2, H, D)
    calls = [
        (alibi.attention, given | {"alibi_slopes": torch.tensor(alibi.slopes(H))}), (cache.append, {x: given[x] for x in "kv"}),
        (alibi.attention_positions, given | {"positions_q": draw(5, 2)}),
        (alibi.merge_attention, {"out_a": out, "lse_a": lse, "out_b": out, "lse_b": lse}),
        (alibi.flash_attn_with_kvcache, {"q": given["q"], "k_cache": given["k"], "v_cache": given["v"]}),
    ]  # fmt: skip
    for call, arguments in calls:
        for name, x in arguments.items():
            for bytes_ in (None, 4):
                message = refusal(call, arguments, name, bytes_)
                assert f"{name} has shape" in message, message
            with pytest.raises(alibi.UsageError, match=f"{name}.*(memory|strides)"):  # strides: PyTorch has expanded a zero
                call(**(arguments | {name: torch._efficientzerotensor(x.shape)}))
    half = {name: x if name == "k" else x[1:] for name, x in given.items()}
    assert "k has shape" in refusal(alibi.attention, half, "k", None, 1)  # its address is not null
    assert alibi.attention(*(torch.empty(0, 5, H, D) for _ in range(3))).shape == (0, 5, H, D)
    assert len(cache) == 0


def test_negative_views_have_their_sign():
    given = dict(zip("qkv", (draw(2, 5, H, D, seed=i) for i in range(3))))
    for name in given:
        negative = given | {name: torch._neg_view(given[name])}
        expected = alibi.attention(**(given | {name: -given[name]}))
        assert torch.equal(alibi.attention(**negative), expected)
        assert torch.equal(alibi.attention(**{**negative, "q": negative["q"].clone().requires_grad_()}), expected)
    out, lse = alibi.attention(**given, return_lse=True)
    found, other = (alibi.merge_attention(f(out), lse, out, lse)[0] for f in (torch._neg_view, torch.neg))
    assert torch.equal(found, other)
    caches = [alibi.KvCache(2, H, D) for _ in range(2)]
    for cache, f in zip(caches, (torch._neg_view, torch.neg)):
        cache.append(f(given["k"]), f(given["v"]))
    assert np.array_equal(caches[0].keys(), caches[1].keys()) and np.array_equal(caches[0].values(), caches[1].values())
    assert torch.equal(alibi.attention_decode(torch._neg_view(given["q"]), caches[0]), alibi.attention_decode(-given["q"], caches[1]))
    paged = [alibi.flash_attn_with_kvcache(f(given["q"]), f(given["k"]), f(given["v"])) for f in (torch._neg_view, torch.neg)]
    assert torch.equal(*paged)
    with pytest.raises(alibi.UsageError, match="k_cache is a view with the opposite sign"):
        alibi.flash_attn_with_kvcache(given["q"][:, :1], torch._neg_view(given["k"]), given["v"].clone(), given["k"][:, :1],
                                      given["v"][:, :1], cache_seqlens=2)  # fmt: skip


def test_arrays_beside_tensors_are_copied():
    q, k, v = (draw(1, 6, H, D, seed=i).requires_grad_() for i in range(3))
    slopes, offsets, points = alibi.slopes(H), np.array([0, 2, 6], np.int32), draw(6, 2).numpy()
    used, mask = np.array([6], np.int32), np.zeros((1, 6), bool)
    layer = alibi.AlibiAttention(H * D, H, bias=True)
    x = draw(1, 6, H * D).requires_grad_()
    calls = [
        (lambda: alibi.attention(q, k, v, alibi_slopes=slopes, cu_seqlens_q=offsets, cu_seqlens_k=offsets), (q, k, v)),
        (lambda: alibi.attention(q, k, v, alibi_slopes=slopes, alibi_slopes_after=slopes, causal=False), (q, k, v)),
        (lambda: alibi.attention_positions(q, k, v, points, points, alibi_slopes=slopes, seqused_q=used, seqused_k=used), (q, k, v)),
        (lambda: layer(x, key_padding_mask=mask), (x,)),
    ]
    buffers = [slopes, offsets, points, used, mask]
    before = [y.copy() for y in buffers]
    for call, inputs in calls:
        expected = torch.autograd.grad(call().square().sum(), inputs)
        out = call()
        for buffer, fill in zip(buffers, (9.0, 1, 3.0, 1, True)):
            buffer[...] = fill
        found = torch.autograd.grad(out.square().sum(), inputs)
        for buffer, values in zip(buffers, before):
            buffer[...] = values
        assert all(torch.equal(a, b) for a, b in zip(found, expected))
