"""The command, Python and the server give the same texts for the same request and seed (tests/generate/same_text_test.cc
compares the functions of C++). Prompts have at most 7 bytes: the products of longer ones may round otherwise in an engine."""

import json
import random
import re

import pytest
from conftest import run

alibi_attention = pytest.importorskip("alibi_attention", reason="the Python package is not installed")

PROMPTS = ["the", "a", " ", "é", "fox ju", "", "over", "\n", "number"]
STOPS = [" ", "o", "zy", "\n", "fox", "é", "er the", "quick b"]

# The last two are not of /v1/responses.
NOT_OF_OPENAI = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def shown(text):
    """The command has U+FFFD for each byte that is no UTF-8, because it also lists these bytes; the others as Unicode advises."""
    return re.sub("\ufffd+", "\ufffd", text)


def random_request(number):
    pick = random.Random(number)
    request = {"prompt": pick.choice(PROMPTS), "seed": pick.randrange(1000), "max_tokens": pick.choice((0, 1, 3, 17, 150)),
               "temperature": pick.choice((0, 0.5, 1.0, 3.0, 30.0))}  # fmt: skip
    for name, values in (("top_p", (0.3, 0.9)), ("top_k", (1, 5)), ("min_p", (0.05, 0.5)), ("repetition_penalty", (1.3, 0.7)),
                         ("presence_penalty", (1.5, -0.5)), ("frequency_penalty", (0.7, -0.3))):  # fmt: skip
        if pick.random() < 0.25:
            request[name] = pick.choice(values)
    request["stop"] = pick.sample(STOPS, pick.choice((0, 0, 1, 2)))
    request["stop_at_end_of_text"] = pick.random() < 0.5
    return request


def command_texts(model, request, samples):
    words = ["--samples", samples, "--json", "-"]
    for name, value in request.items():
        option = f"--{name.replace('_', '-')}"
        if name == "stop_at_end_of_text":
            words += [option] if value else []
            continue
        for one in value if name == "stop" else [value]:
            words += [option, one]
    # The output has the texts before the JSON object, which begins the last line that is only a brace.
    output = run("generate", model, *words)
    found = json.loads(output[output.index('{\n  "model"') : output.rindex("\n}") + 2])
    return [(shown(one["text"]), one["ended"]) for one in found["samples"]]


def python_texts(model, request, samples):
    made = [model.generate(sample=sample, **request) for sample in range(samples)]
    pieces = ["".join(model.stream(sample=sample, **request)) for sample in range(samples)]
    assert [one.text for one in made] == pieces
    return [(shown(one.text), one.end) for one in made]


def check_chats(client, body):
    """Chats and responses continue the text that the template makes of a message."""
    rest = {key: value for key, value in body.items() if key not in ("prompt", "max_tokens", "seed", "stop", "extra_body", "n")}
    extra = {**body["extra_body"], "seed": body["seed"], "stop": [*body["stop"], "\nUser:"]}
    prompt = f"User: {body['prompt']}\nAssistant:"
    text = client.completions.create(**rest, prompt=prompt, max_tokens=body["max_tokens"], extra_body=extra).choices[0]
    message = [{"role": "user", "content": body["prompt"]}]
    chat = client.chat.completions.create(**rest, messages=message, max_tokens=body["max_tokens"], extra_body=extra).choices[0]
    assert (chat.message.content, chat.finish_reason) == (text.text, text.finish_reason), body
    asked = {**rest, "input": body["prompt"], "max_output_tokens": body["max_tokens"], "extra_body": extra}
    made = client.responses.create(**asked)
    assert (made.output_text, made.status) == (text.text, "incomplete" if text.finish_reason == "length" else "completed"), body
    events = client.responses.create(**asked, stream=True)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text.text, body


def test_every_door_gives_the_same_text(client, name, model):
    in_python, samples = alibi_attention.LanguageModel.load(model), 3
    ends_of_all = []
    for number in range(300):
        request = random_request(number)
        expected = command_texts(model, request, samples)
        assert python_texts(in_python, request, samples) == expected, request
        more = {key: request.pop(key) for key in NOT_OF_OPENAI if key in request}
        more["ignore_eos"] = not request.pop("stop_at_end_of_text")
        body = {"model": name, "n": samples, **request, "extra_body": more}
        plain = sorted(client.completions.create(**body).choices, key=lambda choice: choice.index)
        ends = {"tokens": "length", "stop": "stop", "end_of_text": "stop"}
        assert [(shown(one.text), one.finish_reason) for one in plain] == [(text, ends[end]) for text, end in expected], request
        streamed = [""] * samples
        for chunk in client.completions.create(**body, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        assert streamed == [one.text for one in plain], request
        if number % 5 == 0:
            check_chats(client, body)
        ends_of_all += [end for _, end in expected]
    assert all(ends_of_all.count(end) > 2 for end in ends), {end: ends_of_all.count(end) for end in ends}  # the requests exercise every end
