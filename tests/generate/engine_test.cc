#include "alibi/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "core/access.h"
#include "core/memory.h"
#include "core/random.h"
#include "limited_allocations.h"
#include "small_config.h"
#include "testing.h"

namespace alibi {
namespace {

using test::random_ids;
using test::RuntimeGuard;

LanguageModel small_model(Position position = Position::alibi, DType weights = DType::float32) {
  LanguageModelConfig config = test::small_config();
  LanguageModel model(with_position(config, position, 512), 1);
  if (weights != DType::float32) model.convert_weights(weights);
  return model;
}

std::vector<int32_t> tokens(int64_t count, uint64_t seed) { return random_ids({1, count}, seed, 257).to_ints(); }

/// What must not depend on other requests.
struct Seen {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;
  std::vector<float> logprobs;
  bool operator==(const Seen&) const = default;
};

Seen seen(const EngineResult& result) {
  Seen all;
  const auto add = [&](const std::vector<EngineToken>& some) {
    for (const EngineToken& token : some) {
      if (token.logprob) all.logprobs.push_back(*token.logprob);
      for (const TokenProbability& top : token.top) {
        all.logprobs.push_back(top.logprob);
        all.logprobs.push_back(static_cast<float>(top.id));
      }
    }
  };
  add(result.prompt);
  for (const EngineSample& sample : result.samples) {
    all.texts.push_back(sample.generation.text);
    all.ids.emplace_back();
    for (const EngineToken& token : sample.tokens) all.ids.back().push_back(token.id);
    add(sample.tokens);
  }
  return all;
}

/// Requests of many kinds.
std::vector<EngineRequest> mixed_requests(int count) {
  std::vector<EngineRequest> requests;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    EngineRequest request;
    request.prompt = tokens(1 + (i * 37) % 120, seed);
    request.options.max_tokens = (i * 7) % 23;
    request.options.seed = seed;
    request.options.temperature = i % 3 == 0 ? 0 : 0.9;
    request.options.stop_at_end_of_text = i % 2 == 0;
    request.samples = 1 + i % 3;
    if (i % 2 == 0) request.logprobs = i % 5;
    if (i % 4 == 0) request.prompt_logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Engine, ResultsDoNotDependOnOtherRequests) {
  for (const DType weights : {DType::float32, DType::q8_0, DType::bfloat16}) {
    for (const Position position : {Position::alibi, Position::rotary}) {
      const LanguageModel model = small_model(position, weights);
      const std::vector<EngineRequest> requests = mixed_requests(9);
      const EngineOptions options{.slots = 12, .step_tokens = 60, .chunk_tokens = 32};
      std::vector<Seen> alone;
      for (const EngineRequest& request : requests) {
        Engine engine(model, options);
        alone.push_back(seen(engine.submit(request).wait()));
      }
      for (const int threads : {1, 2}) {
        const RuntimeGuard guard;
        set_threads(threads);
        Engine engine(model, options);
        std::vector<Engine::Handle> handles;
        for (const EngineRequest& request : requests) handles.push_back(engine.submit(request));
        for (size_t i = 0; i < handles.size(); ++i) EXPECT_EQ(seen(handles[i].wait()), alone[i]) << i;
      }
    }
  }
}

TEST(Engine, LogProbabilitiesAreThoseOfTheModel) {
  const LanguageModel model = small_model();
  Engine engine(model, {.chunk_tokens = 16});
  EngineRequest request{.prompt = tokens(70, 3), .logprobs = 3, .prompt_logprobs = 1};
  request.options.max_tokens = 9;
  request.options.temperature = 0;
  const EngineResult result = engine.submit(request).wait();
  std::vector<int32_t> ids = request.prompt;
  ASSERT_EQ(result.samples.size(), 1u);
  for (const EngineToken& token : result.samples[0].tokens) ids.push_back(token.id);
  ASSERT_EQ(ids.size(), 79u);
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-1);
  const std::vector<float> nll = model.nll(Tensor::from(ids, {1, 79}), Tensor::from(targets, {1, 79}));
  ASSERT_EQ(result.prompt.size(), 70u);
  EXPECT_FALSE(result.prompt[0].logprob.has_value());
  for (size_t i = 1; i < 70; ++i) {
    EXPECT_EQ(result.prompt[i].id, ids[i]);
    EXPECT_NEAR(result.prompt[i].logprob.value(), -nll[i - 1], 1e-5);
    EXPECT_GE(result.prompt[i].top.at(0).logprob, *result.prompt[i].logprob);
  }
  for (size_t i = 0; i < 9; ++i) {
    const EngineToken& token = result.samples[0].tokens[i];
    EXPECT_NEAR(token.logprob.value(), -nll[69 + i], 1e-5);
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].id, token.id);  // greedy
    EXPECT_EQ(token.top[0].logprob, *token.logprob);
    EXPECT_GE(token.top[0].logprob, token.top[1].logprob);
    EXPECT_GE(token.top[1].logprob, token.top[2].logprob);
  }
}

TEST(Engine, EventsAreTheResult) {
  const LanguageModel model = small_model();
  Engine engine(model);
  EngineRequest request{.prompt = tokens(5, 4), .samples = 3};
  request.options.max_tokens = 12;
  std::vector<std::string> texts(3);
  std::vector<std::vector<int32_t>> ids(3);
  int ends = 0, dones = 0;
  request.on_event = [&](const EngineEvent& event) {
    const auto sample = static_cast<size_t>(event.sample);
    texts[sample] += event.text;
    for (const EngineToken& token : event.tokens) ids[sample].push_back(token.id);
    ends += event.end ? 1 : 0;
  };
  request.on_done = [&](const EngineResult* result, std::exception_ptr) { dones += result != nullptr ? 1 : 0; };
  const EngineResult result = engine.submit(request).wait();
  EXPECT_EQ(seen(result).texts, texts);
  EXPECT_EQ(seen(result).ids, ids);
  EXPECT_EQ(ends, 3);
  EXPECT_EQ(dones, 1);
  EXPECT_NE(ids[0], ids[1]);
}

TEST(Engine, StopsAtStopStringsAndTheEndOfTheText) {
  const LanguageModel model = small_model();
  Engine engine(model);
  EngineRequest request{.prompt = tokens(5, 4)};
  request.options.max_tokens = 40;
  const std::string whole = engine.submit(request).wait().samples[0].generation.text;
  ASSERT_GT(whole.size(), 20u);
  request.options.stop = {whole.substr(10, 3)};
  const EngineResult stopped = engine.submit(request).wait();
  EXPECT_EQ(stopped.samples[0].generation.end, GenerationEnd::stop);
  EXPECT_EQ(stopped.samples[0].generation.text, whole.substr(0, whole.find(request.options.stop[0])));
  EXPECT_EQ(stopped.samples[0].tokens.back().in_text, false);
  request.options.stop = {};
  request.options.max_tokens = 0;
  const EngineResult none = engine.submit(request).wait();
  EXPECT_EQ(none.samples.at(0).generation.tokens, 0);
  EXPECT_EQ(none.samples[0].generation.end, GenerationEnd::tokens);
}

/// Stop strings of one to four tokens at every place: the tokens of the events are those of the result, in the same
/// order, and exactly those whose text begins before the stop string are in the text.
TEST(Engine, EventsTellWhichTokensAreInTheText) {
  const LanguageModel model = small_model();
  Engine engine(model);
  EngineRequest request{.prompt = tokens(5, 4), .logprobs = 1};
  request.options.max_tokens = 12;
  const std::string whole = engine.submit(request).wait().samples[0].generation.text;
  ASSERT_EQ(whole.size(), 12u);  // a token is a byte
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t length = 1; length <= 4; ++length) {
      // The second stop string only holds tokens back.
      request.options.stop = {whole.substr(begin, length), whole.substr(begin, 1) + "no such text"};
      std::vector<EngineToken> told;
      size_t shown = 0;
      request.on_event = [&](const EngineEvent& event) {
        for (const EngineToken& token : event.tokens) {
          told.push_back(token);
          if (token.in_text) ++shown;
        }
        EXPECT_TRUE(event.drawn.has_value());
      };
      const EngineSample sample = engine.submit(request).wait().samples[0];
      const size_t stop = whole.find(request.options.stop[0]);
      EXPECT_EQ(sample.generation.end, GenerationEnd::stop);
      EXPECT_EQ(sample.generation.text, whole.substr(0, stop));
      ASSERT_EQ(told.size(), sample.tokens.size());
      ASSERT_EQ(told.size(), stop + length);
      EXPECT_EQ(shown, stop);
      for (size_t i = 0; i < told.size(); ++i) {
        EXPECT_EQ(told[i].id, sample.tokens[i].id);
        EXPECT_EQ(told[i].logprob, sample.tokens[i].logprob);
        EXPECT_EQ(told[i].in_text, i < stop);
        EXPECT_EQ(sample.tokens[i].in_text, i < stop);
      }
    }
  }
}

TEST(Engine, SharesPrefixesWithTheSameBits) {
  for (const Position position : {Position::alibi, Position::rotary}) {
    const LanguageModel model = small_model(position);
    EngineRequest first{.prompt = tokens(150, 5), .logprobs = 2}, second = first, third = first;
    first.options.max_tokens = second.options.max_tokens = third.options.max_tokens = 20;
    second.prompt.resize(100);  // the first three chunks
    for (const int32_t id : tokens(40, 6)) second.prompt.push_back(id);
    third.prompt.resize(97);
    const EngineOptions keeps{.step_tokens = 100, .chunk_tokens = 32};
    EngineOptions forgets = keeps;
    forgets.prefix_bytes = 0;
    std::vector<Seen> expected;
    for (const EngineRequest* request : {&first, &second, &third}) {
      Engine engine(model, forgets);
      const EngineResult result = engine.submit(*request).wait();
      EXPECT_EQ(result.reused_tokens, 0);
      expected.push_back(seen(result));
    }
    Engine engine(model, keeps);
    const EngineResult one = engine.submit(first).wait(), two = engine.submit(second).wait(),
                       three = engine.submit(third).wait();
    EXPECT_EQ(two.reused_tokens, 96);
    EXPECT_EQ(three.reused_tokens, 96);
    EXPECT_EQ(seen(one), expected[0]);
    EXPECT_EQ(seen(two), expected[1]);
    EXPECT_EQ(seen(three), expected[2]);
    EXPECT_GT(engine.stats().prefix_bytes, 0);

    Engine together(model, keeps);  // the second one waits for the first one's chunks
    const Engine::Handle a = together.submit(first), b = together.submit(second);
    EXPECT_EQ(seen(a.wait()), expected[0]);
    EXPECT_EQ(seen(b.wait()), expected[1]);
    EXPECT_LE(together.stats().prompt_tokens, 150 + 140 - 96);
  }
}

TEST(Engine, TheMemoryOfPrefixesIsBounded) {
  const LanguageModel model = small_model();
  const int64_t most = 400'000;
  Engine engine(model, {.step_tokens = 100, .chunk_tokens = 32, .prefix_bytes = most});
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EngineRequest request{.prompt = tokens(200, seed)};
    request.options.max_tokens = 1;
    engine.submit(request).wait();
    EXPECT_LE(engine.stats().prefix_bytes, most);
  }
  EXPECT_GT(engine.stats().prefix_bytes, 0);
}

TEST(Engine, GivesTemporaryMemoryBackWhenItHasNothingToDo) {
  const LanguageModel model = small_model();
  Engine engine(model, {.step_tokens = 1024, .chunk_tokens = 512, .prefix_bytes = 0});
  EngineRequest request{.prompt = tokens(2000, 1)};
  request.options.max_tokens = 1;
  engine.submit(request).wait();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (core::kept_bytes() > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(core::kept_bytes(), 0u);
  EXPECT_FALSE(seen(engine.submit(request).wait()).ids.empty());  // it still works
}

TEST(Engine, EvictsWithACertificate) {
  const LanguageModel model = small_model();
  EngineOptions options{.slots = 4, .step_tokens = 64, .chunk_tokens = 32};
  options.context.memory = 500 << 10;
  EngineRequest request{.prompt = tokens(900, 7)};
  request.options.max_tokens = 300;
  Engine alone(model, options);
  const EngineResult expected = alone.submit(request).wait();
  const EvictionCertificate& certificate = expected.samples[0].generation.certificate;
  EXPECT_GT(certificate.keys, 0);
  EXPECT_GT(certificate.worst, 0);
  EXPECT_LE(expected.samples[0].generation.cache_bytes, *options.context.memory);
  EXPECT_GT(alone.stats().evicted_keys, 0);

  Engine engine(model, options);
  std::vector<Engine::Handle> handles;
  for (uint64_t i = 0; i < 6; ++i) {
    EngineRequest other = request;
    other.prompt = i == 3 ? request.prompt : tokens(500 + static_cast<int64_t>(i) * 90, 20 + i);
    handles.push_back(engine.submit(other));
  }
  EXPECT_EQ(seen(handles[3].wait()), seen(expected));
  EXPECT_EQ(handles[3].wait().samples[0].generation.certificate.worst, certificate.worst);
  for (const Engine::Handle& handle : handles) handle.wait();
}

TEST(Engine, ARequestThatFailsLeavesTheOthersAlone) {
  const LanguageModel model = small_model();
  EngineOptions options{.slots = 4, .step_tokens = 64, .chunk_tokens = 32};
  options.context.memory = 500 << 10;
  options.context.eviction_tolerance = 1e-30;
  options.context.exact = true;  // a long text must evict keys that have more weight than this
  EngineRequest small{.prompt = tokens(40, 8)}, large{.prompt = tokens(3000, 9)};
  small.options.max_tokens = 400;
  Engine alone(model, options);
  const Seen expected = seen(alone.submit(small).wait());
  Engine engine(model, options);
  const Engine::Handle a = engine.submit(small), b = engine.submit(large), c = engine.submit(small);
  EXPECT_THROW(b.wait(), Error);
  EXPECT_EQ(seen(a.wait()), expected);
  EXPECT_EQ(seen(c.wait()), expected);
  EXPECT_EQ(engine.stats().failed, 1);
  EXPECT_EQ(engine.stats().running, 0);
}

TEST(Engine, CancelsRequestsThatRunAndThatWait) {
  const LanguageModel model = small_model();
  Engine engine(model, {.slots = 1, .step_tokens = 64, .chunk_tokens = 32});
  EngineRequest endless{.prompt = tokens(5, 1)};
  endless.options.max_tokens = std::numeric_limits<int64_t>::max() / 2;
  std::promise<void> drawn;
  std::atomic<int> events = 0;
  EngineRequest first = endless;
  first.on_event = [&](const EngineEvent&) {
    if (events++ == 3) drawn.set_value();
  };
  const Engine::Handle running = engine.submit(first), waiting = engine.submit(endless);
  drawn.get_future().wait();
  EXPECT_FALSE(running.wait_for(0));
  waiting.cancel();
  EXPECT_TRUE(waiting.wait().cancelled);
  ASSERT_EQ(waiting.wait().samples.size(), 1u);
  EXPECT_EQ(waiting.wait().samples.front().generation.tokens, 0);
  running.cancel();
  EXPECT_TRUE(running.wait().cancelled);
  EXPECT_GE(running.wait().samples.at(0).generation.tokens, 4);
  EngineRequest last{.prompt = tokens(5, 1)};
  last.options.max_tokens = 3;
  EXPECT_EQ(engine.submit(last).wait().samples[0].tokens.size(), 3u);  // the slot is free
  EXPECT_EQ(engine.stats().cancelled, 2);
  running.cancel();  // after its end: no effect
}

TEST(Engine, ItsEndCancelsAllRequests) {
  const LanguageModel model = small_model();
  EngineRequest endless{.prompt = tokens(5, 1)};
  endless.options.max_tokens = std::numeric_limits<int64_t>::max() / 2;
  std::vector<Engine::Handle> handles;
  {
    Engine engine(model, {.slots = 2});
    for (int i = 0; i < 4; ++i) handles.push_back(engine.submit(endless));
    engine.close();
    EXPECT_THROW(engine.submit(endless), EngineBusy);
  }
  for (const Engine::Handle& handle : handles) {
    EXPECT_TRUE(handle.wait().cancelled);
    handle.cancel();
  }
}

TEST(Engine, LeavesNothingThatTheFunctionsOfARequestHold) {
  const LanguageModel model = small_model();
  Engine engine(model);
  auto held = std::make_shared<std::optional<Engine::Handle>>();
  const std::weak_ptr<std::optional<Engine::Handle>> watched = held;
  EngineRequest request{.prompt = tokens(5, 1)};
  request.options.max_tokens = 3;
  request.on_event = [held](const EngineEvent&) {};
  request.on_done = [held](const EngineResult*, std::exception_ptr) { throw 1; };
  *held = engine.submit(std::move(request));  // a cycle, until the request has ended
  const Engine::Handle handle = **held;
  held.reset();
  EXPECT_THROW(handle.wait(), int);
  EXPECT_TRUE(watched.expired());
}

TEST(Engine, ARequestWhoseResultCannotBeMadeFails) {
  const LanguageModel model = small_model();
  Engine engine(model);
  static thread_local std::optional<test::LimitedAllocations> no_memory;  // of the engine's thread
  EngineRequest request{.prompt = tokens(5, 1)};
  request.options.max_tokens = 3;
  EngineRequest next = request;
  request.on_event = [](const EngineEvent& event) {
    if (event.end) no_memory.emplace(0);
  };
  request.on_done = [](const EngineResult*, const std::exception_ptr&) { no_memory.reset(); };
  const Engine::Handle handle = engine.submit(request);
  ASSERT_TRUE(handle.wait_for(20));
  EXPECT_THROW(handle.wait(), std::bad_alloc);
  EXPECT_EQ(engine.submit(std::move(next)).wait().samples.size(), 1u);
  EXPECT_EQ(engine.stats().running, 0);
}

TEST(Engine, TheQueueIsBounded) {
  const LanguageModel model = small_model();
  Engine engine(model, {.slots = 1, .queue = 2});
  EngineRequest endless{.prompt = tokens(5, 1)};
  endless.options.max_tokens = std::numeric_limits<int64_t>::max() / 2;
  int accepted = 0;
  const auto submit = [&] {
    for (; accepted < 100; ++accepted) engine.submit(endless);
  };
  EXPECT_THROW(submit(), EngineBusy);
  EXPECT_GE(accepted, 2);
  EXPECT_LE(accepted, 4);
}

TEST(Engine, RequestsWaitInTheOrderOfTheirPriorities) {
  const LanguageModel model = small_model();
  Engine engine(model, {.slots = 1});
  EngineRequest endless{.prompt = tokens(5, 1)};
  endless.options.max_tokens = std::numeric_limits<int64_t>::max() / 2;
  const Engine::Handle first = engine.submit(endless);
  std::vector<int> order;  // written on the engine's thread
  std::vector<Engine::Handle> handles;
  for (const int64_t priority : {5, 0, 0, -3, 5, 1}) {
    EngineRequest request{.prompt = tokens(5, 1), .priority = priority};
    request.options.max_tokens = 1;
    request.on_done = [&order, number = std::ssize(handles)](const EngineResult*, const std::exception_ptr&) {
      order.push_back(static_cast<int>(number));
    };
    handles.push_back(engine.submit(std::move(request)));
  }
  first.cancel();
  for (const Engine::Handle& handle : handles) EXPECT_FALSE(handle.wait().cancelled);
  EXPECT_EQ(order, (std::vector<int>{3, 1, 2, 5, 0, 4}));
}

TEST(Engine, ShortRequestsDoNotWaitForLongPrompts) {
  const LanguageModel model = small_model();
  Engine engine(model, {.slots = 4, .step_tokens = 40, .chunk_tokens = 32});
  EngineRequest large{.prompt = tokens(20'000, 1)}, small{.prompt = tokens(30, 2)};
  large.options.max_tokens = small.options.max_tokens = 4;
  const Engine::Handle first = engine.submit(large), second = engine.submit(small);
  EXPECT_EQ(second.wait().samples[0].tokens.size(), 4u);
  EXPECT_FALSE(first.wait_for(0));
  first.cancel();
}

TEST(Engine, RefusesInvalidRequestsAndOptions) {
  const LanguageModel model = small_model();
  Engine engine(model, {.slots = 2, .max_tokens = 50});
  const auto refuses = [&](auto change) {
    EngineRequest request{.prompt = {1, 2, 3}};
    request.options.max_tokens = 5;
    change(request);
    EXPECT_THROW(engine.submit(std::move(request)), UsageError);
  };
  refuses([](EngineRequest& r) { r.prompt.clear(); });
  refuses([](EngineRequest& r) { r.prompt[1] = 257; });
  refuses([](EngineRequest& r) { r.prompt[1] = -1; });
  refuses([](EngineRequest& r) { r.samples = 3; });
  refuses([](EngineRequest& r) { r.samples = 0; });
  refuses([](EngineRequest& r) { r.options.max_tokens = 49; });
  refuses([](EngineRequest& r) { r.options.max_tokens = std::numeric_limits<int64_t>::max(); });
  refuses([](EngineRequest& r) { r.options.temperature = -1; });
  refuses([](EngineRequest& r) { r.options.stop = {""}; });
  refuses([](EngineRequest& r) { r.logprobs = -1; });
  refuses([](EngineRequest& r) { r.prompt.assign(51, 1); });
  EXPECT_EQ(engine.max_tokens(), 50);
  EXPECT_THROW(Engine(model, {.slots = 0}), UsageError);
  EXPECT_THROW(Engine(model, {.step_tokens = 10}), UsageError);
  EXPECT_THROW(Engine(model, {.chunk_tokens = 0}), UsageError);
  EXPECT_THROW(Engine(model, {.queue = -1}), UsageError);
}

}  // namespace
}  // namespace alibi
