"""Which features a server has, each tried with a client of it: the table "Compared with other servers" of
docs/reference/server.md. Needs requirements.txt.

    features.py URL [--key KEY] [--model NAME] [--embeddings URL] [--rerank URL]

URL is that of a server of a language model. Those of an encoder and of a reranker may be other servers.
"""

import argparse
import json
import urllib.error
import urllib.request

import cohere
import openai
from prometheus_client.parser import text_string_to_metric_families


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--key", default="k")
    parser.add_argument("--model", default="m")
    parser.add_argument("--embeddings")
    parser.add_argument("--rerank")
    given = parser.parse_args()
    for name, found in answers(given):
        print(f"{name:24}  {found}", flush=True)


def answers(given):
    """Each feature and "yes", or "no" and why."""
    features = {**of_texts(given), **of_vectors(given, given.embeddings or given.url),
                **of_rerankers(given, given.rerank or given.url)}  # fmt: skip
    for name, is_there in features.items():
        try:
            yield name, "yes" if is_there() else "no: another answer"
        except Exception as error:  # whatever a client raises is the answer
            yield name, "no: " + " ".join(str(error).split())[:110]


def of_texts(given):
    client = openai.OpenAI(base_url=given.url + "/v1", api_key=given.key, max_retries=0, timeout=60)

    def complete(prompt="The whale", max_tokens=8, **more):
        return client.completions.create(model=given.model, prompt=prompt, max_tokens=max_tokens, **more)

    def chat(**more):
        return client.chat.completions.create(model=given.model, messages=[{"role": "user", "content": "Hello"}],
                                              max_tokens=128, **more)  # fmt: skip

    def respond(**more):
        return client.responses.create(model=given.model, input="Hello", max_output_tokens=16, **more)

    def are_beginnings_shared():
        long = "It was the best of times, it was the worst of times. " * 8
        complete(long)
        usage = complete(long).usage.model_dump()
        return usage["prompt_tokens_details"]["cached_tokens"] > 0

    def biased_to(letters):
        body = {"model": given.model, "prompt": letters, "content": letters, "add_special_tokens": False}
        return {str(token): 100 for token in fetch(given, given.url + "/tokenize", body)["tokens"]}

    def does_stop_end_the_text():
        same = {"max_tokens": 24, "seed": 1, "logit_bias": biased_to("abcdefgh")}
        text = complete(**same).choices[0].text
        return complete(**same, stop=text[8:10]).choices[0].text == text[: text.index(text[8:10])]

    def is_schema_followed():
        schema = {"type": "string", "enum": ["yes", "no"]}  # a random model seldom ends anything longer
        found = chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        return json.loads(found.choices[0].message.content) in schema["enum"]

    def are_tools_taken():  # a random model calls none
        tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
        return chat(tools=[tool]).choices[0].message is not None

    def is_key_needed():
        try:
            openai.OpenAI(base_url=given.url + "/v1", api_key="wrong", max_retries=0).models.list()
        except openai.AuthenticationError:
            return True
        return False

    return {
        "completions": lambda: complete().choices[0].text != "",
        "chats": lambda: chat().choices[0].message.content is not None,
        "streams": lambda: len(list(complete(stream=True))) > 1,
        "streams of chats": lambda: len(list(chat(stream=True))) > 1,
        "n": lambda: len(complete(n=3).choices) == 3,
        "seed": lambda: complete(seed=7).choices[0].text == complete(seed=7).choices[0].text,
        "stop": does_stop_end_the_text,
        "log-probabilities": lambda: complete(logprobs=2).choices[0].logprobs.token_logprobs[0] < 0,
        "those of chats": lambda: chat(logprobs=True).choices[0].logprobs.content[0].logprob < 0,
        "responses": lambda: respond().output_text is not None,
        "streams of responses": lambda: [e.type for e in respond(stream=True)][0] == "response.created",
        "tools": are_tools_taken,
        "JSON schema": is_schema_followed,
        "penalties": lambda: complete(presence_penalty=1, frequency_penalty=1).choices[0].text is not None,
        "logit_bias": lambda: set(complete(logit_bias=biased_to("x")).choices[0].text.strip()) == {"x"},
        "shared beginnings": are_beginnings_shared,
        "models": lambda: client.models.retrieve(given.model).id == given.model,
        "tokenize": lambda: len(fetch(given, given.url + "/tokenize", {"model": given.model, "prompt": "Hello",
                                                                       "content": "Hello"})["tokens"]) > 0,
        "metrics": lambda: len(list(text_string_to_metric_families(fetch(given, given.url + "/metrics")))) > 0,
        "health": lambda: fetch(given, given.url + "/health") is not None,
        "API key": is_key_needed,
        "CORS": lambda: fetch(given, given.url + "/v1/models", origin="https://example.org") != "",
    }  # fmt: skip


def of_vectors(given, url):
    client = openai.OpenAI(base_url=url + "/v1", api_key=given.key, max_retries=0, timeout=120)

    def embed(count):
        found = client.embeddings.create(model=given.model, input=[f"text {i}" for i in range(count)])
        return len(found.data) == count

    return {"embeddings": lambda: embed(2), "33 texts in a request": lambda: embed(33), "2048 texts in a request": lambda: embed(2048)}


def of_rerankers(given, url):
    texts = {"query": "Who hunts?", "documents": ["a fox", "a hen"]}
    ranks = {"/v1/rerank": lambda: len(fetch(given, url + "/v1/rerank", {"model": given.model, **texts})["results"]) == 2}
    client = cohere.ClientV2(given.key, base_url=url, timeout=60)
    return {**ranks, "/v2/rerank": lambda: len(client.rerank(model=given.model, **texts).results) == 2}


def fetch(given, url, body=None, origin=None):
    """The JSON of an answer, or its text. With an origin: the header that lets pages of that origin read the answer."""
    headers = {"Authorization": f"Bearer {given.key}", "Content-Type": "application/json"}
    if origin:
        headers["Origin"] = origin
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        if origin:
            return answer.headers.get("Access-Control-Allow-Origin", "")
        text = answer.read().decode()
        return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text


if __name__ == "__main__":
    main()
