"""Clients of one endpoint each: cohere reranks, and Prometheus reads the metrics."""

import json
import pathlib
import sys
import types
import urllib.request

import pytest
from conftest import serving

alibi = pytest.importorskip("alibi_attention", reason="the Python package is not installed")

sys.path.append(str(pathlib.Path(__file__).parents[2] / "python/tests"))
from test_encoders import write_encoder  # noqa: E402

DOCUMENTS = ["a ship on the sea", "the sea", "two words", "the quick brown fox"]


@pytest.fixture(scope="module")
def reranker(folder):
    path = write_encoder(folder / "cohere-reranker", labels=1)
    for server in serving(path):
        yield server.url, alibi.EncoderModel.load(path).rerank("the sea", DOCUMENTS)


def test_cohere_reranks(reranker):
    cohere = pytest.importorskip("cohere", reason="cohere is not installed")
    url, scores = reranker
    order = sorted(range(len(DOCUMENTS)), key=lambda at: -scores[at])
    asked = {"model": "cohere-reranker", "query": "the sea", "documents": DOCUMENTS}
    for client in (cohere.ClientV2("a-key", base_url=url), cohere.Client("a-key", base_url=url)):  # /v2/rerank, /v1/rerank
        # 0 means all, as in vLLM; so does a number above theirs.
        for top_n, expected in ((None, order), (0, order), (2, order[:2]), (4, order), (9, order)):
            found = client.rerank(**asked, top_n=top_n).results
            assert [one.index for one in found] == expected, top_n
            assert [one.relevance_score for one in found] == pytest.approx([scores[at] for at in expected], abs=1e-5)
        for wrong in (-1, 2**63):
            with pytest.raises(cohere.errors.BadRequestError, match="top_n"):
                client.rerank(**asked, top_n=wrong)


def test_every_feature_that_the_docs_name(model, name, reranker):
    pytest.importorskip("cohere", reason="cohere is not installed")
    import features

    for server in serving(model, "--allow-origin", "https://example.org", key="k"):
        given = types.SimpleNamespace(url=server.url, key="k", model=name, embeddings=None, rerank=None)
        found = dict(features.answers(given))
        rerankers = features.of_rerankers(types.SimpleNamespace(key="k", model="cohere-reranker"), reranker[0])
        found.update({feature: "yes" if is_there() else "no" for feature, is_there in rerankers.items()})
        assert {feature for feature, answer in found.items() if answer != "yes"} == {"tools", "JSON schema"}, found


def test_prometheus_reads_the_metrics(client, server, name):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")

    def metrics():
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return {family.name: family for family in parser.text_string_to_metric_families(answer.read().decode())}

    def value(families, family, sample, **labels):
        (found,) = [one.value for one in families[family].samples if one.name == sample and labels.items() <= one.labels.items()]
        return found

    client.completions.create(model=name, prompt="a", max_tokens=5, extra_body={"ignore_eos": True})
    before = metrics()
    client.completions.create(model=name, prompt="a", max_tokens=5, extra_body={"ignore_eos": True})
    after = metrics()
    for family, sample, labels, more in (
        ("alibi_http_requests", "alibi_http_requests_total", {"path": "/v1/completions", "status": "200"}, 1),
        ("alibi_http_request_seconds", "alibi_http_request_seconds_count", {"path": "/v1/completions"}, 1),
        ("alibi_first_token_seconds", "alibi_first_token_seconds_bucket", {"model": name, "le": "+Inf"}, 1),
        ("alibi_between_tokens_seconds", "alibi_between_tokens_seconds_count", {"model": name}, 4),
        ("alibi_engine_requests", "alibi_engine_requests_total", {"model": name}, 1),
    ):
        assert value(after, family, sample, **labels) - value(before, family, sample, **labels) == more, family
    assert {family.type for family in after.values()} == {"counter", "gauge", "histogram"}
    assert all(family.documentation and family.samples for family in after.values())
    for family in after.values():
        buckets = {}
        for one in family.samples:
            if one.name.endswith("_bucket"):
                buckets.setdefault(tuple(sorted((key, text) for key, text in one.labels.items() if key != "le")), []).append(one.value)
        assert all(values == sorted(values) for values in buckets.values()) and bool(buckets) == (family.type == "histogram")


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
def test_the_server_says_that_it_is_ready(server, path):
    with urllib.request.urlopen(server.url + path) as answer:
        assert (answer.status, json.load(answer)) == (200, {"status": "ok"})
