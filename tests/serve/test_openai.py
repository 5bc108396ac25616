"""The openai client completes, streams and embeds."""

import base64
import math

import numpy as np
import pytest
from conftest import KEY, SENTENCE, serving

openai = pytest.importorskip("openai", reason="openai is not installed")
alibi = pytest.importorskip("alibi_attention", reason="the Python package is not installed")


def test_models_are_listed(client, name):
    assert [model.id for model in client.models.list()] == [name]
    assert client.models.retrieve(name).id == name


def test_a_text_is_completed(client, name, model):
    made = client.completions.create(model=name, prompt=SENTENCE[:15], max_tokens=20, temperature=0)
    core = alibi.LanguageModel.load(model)
    expected = core.generate(SENTENCE[:15], max_tokens=20, temperature=0, stop_at_end_of_text=True)
    assert made.choices[0].text == expected.text and made.choices[0].finish_reason == "length"
    assert made.usage.completion_tokens == 20 and made.usage.total_tokens == made.usage.prompt_tokens + 20
    stopped = client.completions.create(model=name, prompt=SENTENCE[:15], max_tokens=20, temperature=0, stop=[" jumps"])
    assert stopped.choices[0].finish_reason == "stop" and " jumps" not in stopped.choices[0].text
    assert expected.text.startswith(stopped.choices[0].text)


def test_token_ids_echo_and_logprobs(client, name, model):
    ids = list(SENTENCE[:12].encode())
    made = client.completions.create(model=name, prompt=[ids, ids[:5]], max_tokens=3, temperature=0, echo=True, logprobs=2)
    assert [choice.index for choice in made.choices] == [0, 1]
    core = alibi.LanguageModel.load(model)
    for choice, prompt in zip(made.choices, (ids, ids[:5]), strict=True):
        found = choice.logprobs
        assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(prompt) + 3
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        logits = core.logits(np.array(prompt, np.int32)).astype(np.float64)
        for at in range(1, len(prompt)):
            row = logits[at - 1] - logits[at - 1].max()
            row -= np.log(np.exp(row).sum())
            assert found.token_logprobs[at] == pytest.approx(row[prompt[at]], abs=1e-4)
            assert max(found.top_logprobs[at].values()) == pytest.approx(row.max(), abs=1e-4)
            is_greedy = found.token_logprobs[at] == max(found.top_logprobs[at].values())
            assert is_greedy == (row[prompt[at]] == row.max())
        # Drawn greedily, so each token is the maximum of its place, bit for bit.
        for at in range(len(prompt), len(prompt) + 3):
            assert found.token_logprobs[at] == max(found.top_logprobs[at].values())
        assert "".join(found.tokens) == choice.text and choice.text.startswith(bytes(prompt).decode())


def test_the_end_of_a_text_has_a_logprob(client, name):
    """The harness takes all but the last entry: each prompt needs exactly one more than its tokens."""
    for end in range(1, 70, 4):
        ids = list((SENTENCE.format(12) * 2)[:end].encode())
        made = client.completions.create(model=name, prompt=[ids], max_tokens=1, temperature=0, echo=True, logprobs=1)
        assert len(made.choices[0].logprobs.token_logprobs) == len(ids) + 1
        assert len(made.choices[0].logprobs.top_logprobs) == len(ids) + 1
    # A bias that no model has, so ask for the end itself: whatever is drawn after it, the count is the same.
    made = client.completions.create(model=name, prompt=[[256, 256, 256]], max_tokens=1, temperature=0, echo=True, logprobs=1)
    assert len(made.choices[0].logprobs.token_logprobs) == 4


def test_the_same_seed_gives_the_same_text(client, name):
    def texts(**more):
        made = client.completions.create(model=name, prompt="the ", max_tokens=16, temperature=1.5, **more)
        return [choice.text for choice in sorted(made.choices, key=lambda choice: choice.index)]

    assert texts(seed=3) == texts(seed=3) != texts(seed=4)
    assert len(set(texts(seed=3, n=3))) > 1 and texts(seed=3, n=3)[0] == texts(seed=3)[0]


def test_prompts_with_the_same_beginning_share_it(client, name):
    prompt = "a shared beginning " * 40  # 760 tokens, of which whole chunks of 256 are kept
    used = [client.completions.create(model=name, prompt=prompt + end, max_tokens=1).usage for end in "ab"]
    assert [one.prompt_tokens_details.cached_tokens for one in used] == [0, 512]


def test_a_stream_is_the_text(client, name):
    options = {"model": name, "prompt": SENTENCE[:15], "max_tokens": 20, "temperature": 0.7, "seed": 1}
    chunks = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    whole = client.completions.create(**options)
    assert text == whole.choices[0].text and len(chunks) > 3
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 20 and not chunks[-1].choices
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_a_chat_is_answered(client, name):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "the fox"}]}]
    options = {"model": name, "messages": messages, "max_completion_tokens": 12, "temperature": 0}
    made = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    message = made.choices[0].message
    assert message.role == "assistant" and message.content
    parts = made.choices[0].logprobs.content
    assert parts[0].logprob == max(top.logprob for top in parts[0].top_logprobs) and len(parts[0].top_logprobs) == 2
    chunks = list(client.chat.completions.create(**options, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == message.content
    with pytest.raises(openai.BadRequestError, match="role"):
        client.chat.completions.create(model=name, messages=[{"role": "wizard", "content": "x"}])


def test_a_response_is_the_reply_of_a_chat(client, name):
    more = {"model": name, "temperature": 0.7, "top_p": 0.9, "extra_body": {"seed": 5}}
    chat = client.chat.completions.create(**more, max_tokens=12, logprobs=True, top_logprobs=2,
                                          messages=[{"role": "system", "content": "Be short."}, {"role": "user", "content": "the fox"}])  # fmt: skip
    options = {**more, "instructions": "Be short.", "max_output_tokens": 12, "store": True, "metadata": {"a": "b"},
               "include": ["message.output_text.logprobs"], "top_logprobs": 2}  # fmt: skip
    made = client.responses.create(**options, input="the fox")
    assert type(made).model_validate(made.to_dict()) == made
    assert made.output_text == chat.choices[0].message.content
    assert [one.to_dict() for one in made.output[0].content[0].logprobs] == [one.to_dict() for one in chat.choices[0].logprobs.content]
    assert (made.status, made.incomplete_details.reason, made.output[0].status) == ("incomplete", "max_output_tokens", "incomplete")
    assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (
        chat.usage.prompt_tokens, 12, chat.usage.total_tokens)  # fmt: skip
    assert (made.instructions, made.temperature, made.top_p, made.metadata, made.store) == ("Be short.", 0.7, 0.9, {"a": "b"}, False)
    greedy = {"model": name, "input": "the fox", "max_output_tokens": 20, "temperature": 0}
    whole = client.responses.create(**greedy).output_text  # what it is depends on the machine that trained the model
    stopped = client.responses.create(**greedy, extra_body={"stop": [whole[-1]]})
    assert (stopped.status, stopped.incomplete_details, stopped.output_text) == ("completed", None, whole.split(whole[-1])[0])
    # Parts of texts are their text, and earlier replies are messages.
    part = {"role": "user", "content": [{"type": "input_text", "text": "the "}, {"type": "input_text", "text": "fox"}]}
    assert client.responses.create(**options, input=[part]).output_text == made.output_text
    turns = [{"role": "user", "content": "the fox"}, *[one.to_dict() for one in stopped.output], {"role": "user", "content": "and"}]
    longer = client.responses.create(model=name, input=turns, max_output_tokens=1)
    assert longer.usage.input_tokens > stopped.usage.input_tokens + len(stopped.output_text)


@pytest.mark.parametrize("more", [{"max_output_tokens": 12, "top_logprobs": 1}, {"max_output_tokens": 40, "extra_body": {"stop": ["e"]}},
                                  {"max_output_tokens": 0}])  # fmt: skip
def test_events_of_a_response_add_up_to_it(client, name, more):
    seed = {"seed": 1, "ignore_eos": True, **more.pop("extra_body", {})}
    options = {"model": name, "input": "the fox", "temperature": 0.8, "extra_body": seed, **more}
    whole = client.responses.create(**options)
    events = list(client.responses.create(**options, stream=True))
    for event in events:  # the client itself does not check its types
        assert type(event).model_validate(event.to_dict()) == event
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert set(kinds[4:-4]) <= {"response.output_text.delta"}
    assert whole.status in (["incomplete", "completed"] if "stop" in seed else ["incomplete"])  # whether a stop comes: the model
    end = "response." + whole.status
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", end]
    deltas, last = events[4:-4], events[-1].response
    assert "".join(event.delta for event in deltas) == events[-4].text == whole.output_text == last.output_text
    logprobs = [one.to_dict() for event in deltas for one in event.logprobs]
    assert logprobs == [one.to_dict() for one in whole.output[0].content[0].logprobs]
    assert len(logprobs) == (more["max_output_tokens"] if "top_logprobs" in more else 0)
    assert (events[0].response.status, events[0].response.output, last.usage) == ("in_progress", [], whole.usage)
    assert {event.item_id for event in deltas} <= {last.output[0].id} and events[0].response.id == last.id
    with client.responses.stream(**options) as stream:  # the helper builds the text up from the events
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
    assert (snapshots or [""])[-1] == whole.output_text


def test_responses_that_cannot_be_given_are_refused(client, name):
    function = {"type": "function", "name": "f", "parameters": {}, "strict": False}
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}]
    schema = {"format": {"type": "json_schema", "name": "a", "schema": {}}}
    for field, value, more in (
        ("tools", [function], {}), ("tool_choice", "required", {}), ("type", None, {"input": image}), ("previous_response_id", "resp_1", {}),
        ("background", True, {}), ("reasoning", {"effort": "low"}, {}), ("text.format.type", None, {"text": schema}),
        ("conversation", "conv_1", {}), ("truncation", "auto", {}), ("include", ["reasoning.encrypted_content"], {}),
        ("input", [], {}), ("input", 5, {}), ("input", None, {}), ("input[0]", None, {"input": ["a"]}), ("n", 2, {}),
        ("input[0].type", None, {"input": [{"type": "function_call_output", "call_id": "a", "output": "b"}]}),
        ("input[0].content", None, {"input": [{"role": "user"}]}), ("role", None, {"input": [{"role": "wizard", "content": "a"}]}),
        ("max_output_tokens", -1, {}), ("max_output_tokens", 2**64, {}), ("max_output_tokens", "a", {}), ("instructions", ["a"], {}),
        ("temperature", 1e300, {}), ("top_logprobs", 10**6, {}), ("metadata", "a", {}), ("text", 1, {}), ("stream", "yes", {}),
    ):  # fmt: skip
        body = {"model": name, "input": "a", **({} if more else {field: value}), **more}
        with pytest.raises(openai.BadRequestError) as refused:
            client.post("/responses", body=body, cast_to=object)
        assert field in refused.value.message, (field, refused.value.message)
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.responses.create(model="another", input="a")
    with pytest.raises(openai.NotFoundError, match="no endpoint"):  # nothing is stored
        client.responses.retrieve("resp_1")


def test_more_texts_are_embedded_than_at_once(client, name):
    """Servers of vectors often take 32 texts in a request."""
    texts = [SENTENCE.format(i)[i % 7 :] for i in range(100)]
    found = client.embeddings.create(model=name, input=texts).data
    assert [one.index for one in found] == list(range(100))
    for at in (0, 31, 32, 99):
        assert np.abs(np.array(found[at].embedding) - client.embeddings.create(model=name, input=texts[at]).data[0].embedding).max() < 1e-5


def test_texts_are_embedded(client, name, model):
    texts = ["the quick fox", "é", "a longer text about a dog " * 5]
    expected = alibi.LanguageModel.load(model).embed(texts)
    encoded = client.embeddings.create(model=name, input=texts)  # as base64
    floats = client.embeddings.create(model=name, input=texts, encoding_format="float", dimensions=expected.shape[1])
    for found in (encoded, floats):
        vectors = np.array([one.embedding for one in sorted(found.data, key=lambda one: one.index)])
        cosines = (vectors * expected).sum(-1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
        assert np.abs(cosines - 1).max() <= 1e-5
    raw = client.embeddings.with_raw_response.create(model=name, input=texts[0], encoding_format="base64").http_response.json()
    vector = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), "<f4")
    assert np.allclose(vector, floats.data[0].embedding, atol=1e-6)
    assert client.embeddings.create(model=name, input=[list(b"the quick fox")]).data[0].embedding


def test_errors_are_those_of_the_client(client, name):
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.completions.create(model="another", prompt="x")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=name, prompt="x", temperature=-1)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=name, prompt=[[99999]])
    assert math.isfinite(client.completions.create(model=name, prompt="x", max_tokens=1).created)


def test_a_key_is_asked_for(model, name):
    for server in serving(model, key=KEY):
        wrong = openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            wrong.completions.create(model=name, prompt="x")
        right = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        assert right.completions.create(model=name, prompt="the quick", max_tokens=2).choices[0].text
