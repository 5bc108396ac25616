// The same request and seed give the same text through every function that generates.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/engine.h"
#include "alibi/generate.h"
#include "alibi/runtime.h"
#include "alibi/tokenizer.h"
#include "core/random.h"
#include "generate/generation_loop.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::generation {
namespace {

/// A vocabulary with ids past the tokenizer, as models have whose vocabulary is padded.
LanguageModelConfig padded_config() {
  LanguageModelConfig config = with_position(test::small_config(1, 16, 2), Position::alibi, 64);
  config.vocab_size = 300;
  return config;
}

/// What a caller learns of a text. Log-probabilities and times are not compared.
struct Found {
  std::string text;
  std::vector<int32_t> ids;
  GenerationEnd end = GenerationEnd::tokens;
  bool operator==(const Found&) const = default;
};

struct Case {
  std::string prompt;  // at most 7 bytes, so that reading it gives the same bits in the engine
  GenerateOptions options;
};

/// Random numbers of one case.
class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t end) { return static_cast<int64_t>(random_.below(count_++, static_cast<uint64_t>(end))); }

 private:
  core::Random random_;
  uint64_t count_ = 0;
};

/// The pieces of a stream, and the drawn ids.
struct Listener {
  Found found;
  GenerateOptions listening(GenerateOptions options) {
    options.on_text = [this](std::string_view piece) {
      found.text += piece;
      return true;
    };
    options.on_token = [this](int32_t id) {
      found.ids.push_back(id);
      return true;
    };
    return options;
  }
};

Found found_in(const EngineSample& sample) {
  Found found{sample.generation.text, {}, sample.generation.end};
  for (const EngineToken& token : sample.tokens) found.ids.push_back(token.id);
  EXPECT_EQ(sample.generation.tokens, std::ssize(sample.tokens));
  return found;
}

EngineRequest request_for(const LanguageModel& model, const Case& one) {
  EngineRequest request{.prompt = model.tokenizer().encode_prompt(one.prompt), .options = one.options};
  return request;
}

Case random_case(const LanguageModel& model, uint64_t seed) {
  Random random(seed);
  Case one;
  for (int64_t i = random.below(8); i > 0; --i) one.prompt += static_cast<char>('a' + random.below(26));
  GenerateOptions& options = one.options;
  options.max_tokens = random.below(25);
  options.seed = seed;
  options.temperature = random.below(4) == 0 ? 0 : 1.5;
  options.top_k = static_cast<int>(random.below(3) * 40);
  options.top_p = random.below(2) == 0 ? 1 : 0.9;
  options.min_p = random.below(3) == 0 ? 0.05 : 0;
  options.repetition_penalty = random.below(2) == 0 ? 1 : 1.7;
  options.stop_at_end_of_text = random.below(2) == 0;
  if (seed % 3 == 0) {
    options.presence_penalty = 0.7;
    options.frequency_penalty = -0.2;
    options.logit_bias = {{static_cast<int32_t>(seed % 300), 3}};
  }
  // Stop strings of one to four bytes of the text: each token is a byte, or has no text.
  const std::string text = model.generate(one.prompt, options);
  for (int64_t i = text.empty() ? 0 : random.below(3); i > 0; --i) {
    const auto begin = static_cast<size_t>(random.below(std::ssize(text)));
    options.stop.push_back(text.substr(begin, static_cast<size_t>(1 + random.below(4))));
    options.stop.push_back(text.substr(0, 1) + "no such text");  // only holds text back
  }
  return one;
}

TEST(SameText, ComesOutOfEveryFunction) {
  const test::RuntimeGuard guard;
  set_threads(1);  // faster on a busy machine
  const LanguageModel model(padded_config(), 1, std::make_shared<ByteTokenizer>());
  std::vector<Case> cases;
  for (uint64_t seed = 0; seed < 304; ++seed) cases.push_back(random_case(model, seed));

  std::vector<Found> expected;
  int64_t stops = 0, ends = 0, padded = 0;
  for (const Case& one : cases) {
    Listener listener;
    const Generation generation = Prompt(model, one.prompt).generate(listener.listening(one.options));
    listener.found.end = generation.end;
    EXPECT_EQ(generation.text, listener.found.text);
    EXPECT_EQ(generation.tokens, std::ssize(listener.found.ids));
    expected.push_back(listener.found);
    EXPECT_EQ(model.generate(one.prompt, one.options), generation.text);
    stops += generation.end == GenerationEnd::stop ? 1 : 0;
    ends += generation.end == GenerationEnd::end_of_text ? 1 : 0;
    for (const int32_t id : listener.found.ids) padded += id > 256 ? 1 : 0;
  }
  EXPECT_GT(stops, 50);
  EXPECT_GT(ends, 0);
  EXPECT_GT(padded, 100);

  // Eight texts at a time have the bits that each has alone. Text i of a batch is sample i.
  for (size_t first = 0; first < cases.size(); first += 8) {
    std::vector<Prompt> prompts;
    std::vector<Listener> listeners(8);
    std::vector<GenerateOptions> options;
    for (size_t i = 0; i < 8; ++i) {
      prompts.emplace_back(model, cases[first + i].prompt);
      options.push_back(listeners[i].listening(cases[first + i].options));
    }
    const std::vector<Generation> batch = Prompt::generate_batch(std::move(prompts), options);
    for (size_t i = 0; i < 8; ++i) {
      const Case& one = cases[first + i];
      const Generation alone = Prompt(model, one.prompt).generate(one.options, static_cast<int64_t>(i));
      EXPECT_EQ(batch[i].text, alone.text) << first + i;
      EXPECT_EQ(listeners[i].found.text, alone.text) << first + i;
      EXPECT_EQ(batch[i].end, alone.end) << first + i;
    }
    EXPECT_EQ(batch[0].text, expected[first].text) << first;
  }

  // The engine, plain and streamed, with all requests at once.
  Engine engine(model, {.slots = 32, .step_tokens = 64, .chunk_tokens = 16, .queue = 400});
  std::vector<Found> streamed(cases.size());
  std::vector<Engine::Handle> handles;
  for (size_t i = 0; i < cases.size(); ++i) {
    EngineRequest request = request_for(model, cases[i]);
    if (i % 3 == 0) request.logprobs = 2;
    request.options.on_text = [](std::string_view) { return false; };  // the engine does not use it
    request.on_event = [&found = streamed[i]](const EngineEvent& event) {
      found.text += event.text;
      for (const EngineToken& token : event.tokens) found.ids.push_back(token.id);
      if (event.end) found.end = *event.end;
    };
    handles.push_back(engine.submit(std::move(request)));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(found_in(handles[i].wait().samples.front()), expected[i]) << i;
    EXPECT_EQ(streamed[i], expected[i]) << i;
  }

  // The engine's loop on this thread.
  GenerationLoop loop(model, {.chunk_tokens = 16}, true);
  std::vector<std::shared_ptr<RequestState>> requests;
  std::list<GenerationJob> jobs;
  for (const Case& one : cases) {
    requests.push_back(std::make_shared<RequestState>());
    requests.back()->request = request_for(model, one);
    jobs.push_back({.shared = requests.back()});
    jobs.back().result.prompt_tokens = std::ssize(requests.back()->request.prompt);
    loop.add_first(jobs);
  }
  while (loop.has_jobs()) loop.step();
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(found_in(requests[i]->result.samples.front()), expected[i]) << i;
  }
}

/// Without a tokenizer no token ends a text, and none is kept from it.
TEST(SameText, ComesOutOfEveryFunctionForIdsWithoutATokenizer) {
  const test::RuntimeGuard guard;
  set_threads(1);
  const LanguageModel model(padded_config(), 1), with_tokenizer(padded_config(), 1, std::make_shared<ByteTokenizer>());
  Engine engine(model);
  int64_t ends = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    EngineRequest request;
    for (int64_t i = 1 + random.below(7); i > 0; --i) request.prompt.push_back(static_cast<int32_t>(random.below(300)));
    request.options.max_tokens = random.below(40);
    request.options.seed = seed;
    request.options.repetition_penalty = random.below(2) == 0 ? 1 : 1.7;
    Listener listener;
    const std::vector<int32_t> ids = model.generate_ids(request.prompt, listener.listening(request.options));
    EXPECT_EQ(listener.found.ids, ids);
    EXPECT_EQ(std::ssize(ids), request.options.max_tokens);
    EXPECT_EQ(with_tokenizer.generate_ids(request.prompt, request.options), ids);
    EXPECT_EQ(found_in(engine.submit(request).wait().samples.front()).ids, ids) << seed;
    ends += std::count(ids.begin(), ids.end(), 256);
  }
  EXPECT_GT(ends, 0);
}

}  // namespace
}  // namespace alibi::generation
