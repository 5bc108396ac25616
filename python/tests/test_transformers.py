"""Patched models of transformers beside stock ones."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import alibi_attention as alibi
from alibi_attention import _torch

VOCABULARY, LENGTH, PADDING = 100, 120, 17


def mpt(**given):
    config = transformers.MptConfig(d_model=96, n_heads=6, n_layers=2, max_seq_len=256, vocab_size=VOCABULARY, **given)
    return transformers.MptForCausalLM._from_config(config, attn_implementation="eager")


def bloom(**given):
    config = transformers.BloomConfig(hidden_size=96, n_head=6, n_layer=2, vocab_size=VOCABULARY, **given)
    return transformers.BloomForCausalLM._from_config(config, attn_implementation="eager")


def falcon(**given):
    given = {"alibi": True, "multi_query": False, "new_decoder_architecture": False, **given}
    config = transformers.FalconConfig(hidden_size=128, num_attention_heads=4, num_hidden_layers=2, vocab_size=VOCABULARY, **given)
    return transformers.FalconForCausalLM._from_config(config, attn_implementation="sdpa")  # eager has ALiBi twice


def falcon_of_one_key_head():
    return falcon(multi_query=True)


def make(maker):
    torch.manual_seed(0)
    model = maker().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that attention has something to choose from
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


def texts(batch=2, length=LENGTH):
    torch.manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (batch, length))
    mask = torch.ones_like(ids)
    mask[0, :PADDING] = 0
    return ids, mask


@pytest.mark.parametrize("maker", [mpt, bloom, falcon, falcon_of_one_key_head])
def test_as_stock(maker):
    model = make(maker)
    ids, mask = texts()

    def everything():
        with torch.no_grad():
            plain = model(ids).logits
            padded = model(ids, attention_mask=mask).logits[mask.bool()]
            written = model.generate(ids, attention_mask=mask, max_new_tokens=32, do_sample=False, pad_token_id=0)
            alone = model.generate(ids[1:], max_new_tokens=32, do_sample=False, pad_token_id=0)
        return plain, padded, written, alone

    stock = everything()
    calls = []
    counted = _torch._attention_result
    assert alibi.transformers.patch(model) is model
    _torch._attention_result = lambda *a: (calls.append(1), counted(*a))[1]
    try:
        ours = everything()
    finally:
        _torch._attention_result = counted
    assert calls, "the kernel was never asked"
    for a, b in zip(stock[:2], ours[:2]):
        assert not torch.isnan(b).any() and (a - b).abs().max() <= 1e-5 * max(1, a.abs().max())
    assert torch.equal(stock[2], ours[2]) and torch.equal(stock[3], ours[3])
    alibi.transformers.unpatch(model)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, stock[0])
    with pytest.raises(alibi.UsageError, match="not patched"):
        alibi.transformers.unpatch(model)


@pytest.mark.parametrize("maker", [mpt, bloom, falcon])
def test_gradients_as_stock(maker):
    model = make(maker)
    ids, mask = texts(length=40)

    def gradients():
        model.zero_grad()
        model(ids, attention_mask=mask).logits[mask.bool()].square().mean().backward()
        return [p.grad.clone() for p in model.parameters()]

    stock = gradients()
    alibi.transformers.patch(model)
    for a, b in zip(stock, gradients()):
        assert (a - b).abs().max() <= 1e-4 * max(1, a.abs().max())


def test_past_the_length_at_which_stock_raises():
    model = make(mpt)
    ids, _ = texts(batch=1, length=700)
    with torch.no_grad(), pytest.raises(RuntimeError):
        model(ids)
    alibi.transformers.patch(model, tolerance=2**-24)
    with torch.no_grad():
        long, short = model(ids).logits, model(ids[:, :200]).logits
    assert (long[:, :200] - short).abs().max() <= 1e-4


def test_dropout_acts_in_training_alone():
    model = alibi.transformers.patch(make(lambda: bloom(attention_dropout=0.5)))
    ids, _ = texts()
    with torch.no_grad():
        assert torch.equal(model(ids).logits, model(ids).logits)
        model.train()
        assert not torch.equal(model(ids).logits, model(ids).logits)


def test_no_mask_of_length_by_length():
    model = alibi.transformers.patch(make(bloom))
    seen = []
    module = model.transformer.h[0].self_attention
    forward = module.forward

    def watch(*args, **given):
        seen.extend(x for x in (*args, *given.values()) if isinstance(x, torch.Tensor))
        return forward(*args, **given)

    module.forward = watch
    ids, mask = texts()
    with torch.no_grad():
        model(ids)
        model(ids, attention_mask=mask)
    assert len(seen) >= 8 and all(list(x.shape).count(LENGTH) <= 1 for x in seen)


def test_what_is_not_known_is_refused(monkeypatch):
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=32, num_attention_heads=4, intermediate_size=32, num_hidden_layers=1, vocab_size=10))
    for model in (llama, make(lambda: falcon(alibi=False)), make(lambda: mpt(attn_config={"alibi_bias_max": 16})),
                  make(lambda: mpt(attn_config={"alibi": False})), make(lambda: bloom(pretraining_tp=2, slow_but_exact=True))):
        before = model.config._attn_implementation
        with pytest.raises(alibi.UsageError, match=r"\[transformers\]"):
            alibi.transformers.patch(model)
        assert model.config._attn_implementation == before
    class JinaBertSelfAttention(torch.nn.Module):  # as the code that comes with jina-bert-v2 calls it
        pass

    with pytest.raises(alibi.UsageError, match="jina-bert-v2 comes with the model"):
        alibi.transformers.patch(torch.nn.Sequential(JinaBertSelfAttention()))
    model = alibi.transformers.patch(make(bloom))
    with pytest.raises(alibi.UsageError, match="already"):
        alibi.transformers.patch(model)
    ids, mask = texts()
    with pytest.raises(alibi.UsageError, match="output_attentions"):
        model(ids, output_attentions=True)
    mask[0, 50] = 0
    with pytest.raises(alibi.Error, match="zeros between tokens"):
        model(ids, attention_mask=mask)
    with pytest.raises(alibi.Error, match="4 axes"):
        alibi.transformers.patch(make(mpt))(ids, attention_mask=torch.zeros(2, 1, LENGTH, LENGTH))
    with pytest.raises(alibi.Error, match="cache"), torch.no_grad():
        model.generate(ids, max_new_tokens=2, cache_implementation="static", pad_token_id=0)
    monkeypatch.setattr(alibi.transformers.transformers, "__version__", "5.22.9")
    with pytest.raises(alibi.UsageError, match=r"version 5\.22\.9 found, expected 5\.23 or newer"):
        alibi.transformers.patch(make(bloom))


def test_a_version_is_refused_where_it_differs_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(alibi.transformers.transformers, "__version__", "7.1.0.dev0")
    monkeypatch.setattr(alibi.transformers, "_tried", {})
    attend = alibi.transformers._attend

    def without_cache(given, k, v, layer):  # as if the cache had a name and type that are not known
        return k, v

    def with_other_gradients(module, q, k, *rest):
        return attend(module, q, k.detach(), *rest)

    def failing(*_):
        raise TypeError("missing 1 required argument: 'bias'")

    model = make(mpt)
    for name, wrong, words in (
        ("_cached", without_cache, "the logits after a cache of a random model differ by"),
        ("_attend", with_other_gradients, "the gradients of a random model differ by"),
        ("_attend", failing, r"the logits cannot be computed \(TypeError: missing 1 required"),
    ):
        with monkeypatch.context() as context:
            context.setattr(alibi.transformers, name, wrong)
            context.setattr(alibi.transformers, "_tried", {})
            with pytest.raises(alibi.UsageError, match=rf"version 7\.1\.0\.dev0 is not supported for Mpt: {words}"):
                alibi.transformers.patch(model)
            with pytest.raises(alibi.UsageError, match="is not supported for Mpt"):  # remembered
                alibi.transformers.patch(model)
    state = torch.get_rng_state()
    alibi.transformers.patch(model)
    assert torch.equal(torch.get_rng_state(), state) and len(alibi.transformers._tried) == 1
    alibi.transformers.patch(make(bloom))
    assert len(alibi.transformers._tried) == 2
    with torch.device("meta"), torch.inference_mode():  # where large models are made
        alibi.transformers.patch(make_falcon := falcon())
    assert make_falcon.transformer.h[0].self_attention._alibi_slopes.device.type == "cpu"


@pytest.mark.parametrize("maker", [mpt, bloom, falcon])
def test_copies_and_pickles_are_models_of_their_own(maker):
    model = make(maker)
    ids, _ = texts(length=30)
    stock = type(model)(model.config)  # shares the configuration
    stock.load_state_dict(model.state_dict())
    stock.eval()

    def runs(given):
        with torch.no_grad():
            return given(ids).logits

    expected = runs(stock)
    alibi.transformers.patch(model)
    assert torch.equal(runs(stock), expected) and stock.config._attn_implementation != "alibi"
    ours = runs(model)
    twin = copy.deepcopy(model)
    again = pickle.loads(pickle.dumps(model))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for other in (twin, again, loaded):
        assert torch.equal(runs(other), ours)
        assert alibi.transformers.unpatch(other) is other
        assert torch.equal(runs(other), expected)
        with pytest.raises(alibi.UsageError, match="not patched"):
            alibi.transformers.unpatch(other)
        assert torch.equal(runs(model), ours) and model.config._attn_implementation == "alibi"
        alibi.transformers.patch(other)
        with pytest.raises(alibi.UsageError, match="output_attentions"):
            other(ids, output_attentions=True)
    alibi.transformers.unpatch(model)
    assert torch.equal(runs(model), expected) and torch.equal(runs(twin), ours)
    model(ids, output_attentions=True)


def test_a_replaced_forward_is_refused():
    model = make(bloom)
    module = model.transformer.h[1].self_attention
    module.forward = module.forward  # as hooks of accelerate do
    with pytest.raises(alibi.UsageError, match="the forward of a BloomAttention was replaced"):
        alibi.transformers.patch(model)
    assert model.config._attn_implementation == "eager"
