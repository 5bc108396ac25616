#include "alibi/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "alibi/error.h"
#include "alibi/language_model.h"
#include "generate/generated_text.h"
#include "generate/sampling.h"
#include "small_config.h"
#include "testing.h"
#include "text/word_tokenizer.h"

namespace alibi::generation {
namespace {

LanguageModel small_model(Position position = Position::alibi) {
  return LanguageModel(with_position(test::small_config(), position, 16), 1);
}

TEST(Sampling, FollowsTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, -1.0f};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    GenerateOptions options;
    options.temperature = temperature;
    std::map<int32_t, int> counts;
    const int draws = 20000;
    for (int n = 0; n < draws; ++n)
      ++counts[sample_token(logits, options, core::Random(1), static_cast<uint64_t>(n), -1)];
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
    for (int32_t token = 0; token < 4; ++token) {
      const double expected = std::exp(static_cast<double>(logits[static_cast<size_t>(token)]) / temperature) / total;
      EXPECT_NEAR(counts[token] / static_cast<double>(draws), expected, 0.015);
    }
  }
}

TEST(Sampling, LimitsHold) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, 1.5f};
  const auto drawn = [&](const GenerateOptions& options, int32_t banned = -1) {
    std::vector<int32_t> tokens;
    for (uint64_t n = 0; n < 500; ++n) tokens.push_back(sample_token(logits, options, core::Random(1), n, banned));
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  };
  EXPECT_EQ(drawn({.temperature = 0}), (std::vector<int32_t>{2}));
  EXPECT_EQ(drawn({.temperature = 0}, 2), (std::vector<int32_t>{3}));
  EXPECT_EQ(drawn({.top_k = 2}), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(drawn({.top_p = 0.1}), (std::vector<int32_t>{2}));
  EXPECT_EQ(drawn({}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn({}, 1), (std::vector<int32_t>{0, 2, 3}));
}

TEST(Sampling, TopPKeepsNoMoreThanItNeeds) {
  // Equal logits: 0.5 of two is one of them, the lower id; 0.5 of four are two.
  const auto drawn = [](const std::vector<float>& logits) {
    std::set<int32_t> tokens;
    for (uint64_t n = 0; n < 200; ++n) tokens.insert(sample_token(logits, {.top_p = 0.5}, core::Random(1), n, -1));
    return tokens;
  };
  EXPECT_EQ(drawn({1, 1}), std::set<int32_t>{0});
  EXPECT_EQ(drawn({2, 2, 2, 2}), (std::set<int32_t>{0, 1}));
}

TEST(Sampling, MinPKeepsWhatIsNotMuchLessLikely) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, 1.5f};  // of the largest: 0.14, 0.37, 1, 0.61
  const auto drawn = [&](double min_p, double top_p = 1) {
    std::set<int32_t> tokens;
    const GenerateOptions options{.top_p = top_p, .min_p = min_p};
    for (uint64_t n = 0; n < 500; ++n) tokens.insert(sample_token(logits, options, core::Random(1), n, -1));
    return tokens;
  };
  EXPECT_EQ(drawn(0.1), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn(0.3), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(drawn(0.6), (std::set<int32_t>{2, 3}));
  EXPECT_EQ(drawn(1), std::set<int32_t>{2});
  EXPECT_EQ(drawn(0.1, 0.3), std::set<int32_t>{2});
}

/// By sorting the whole vocabulary.
int32_t sampled_by_sorting(const std::vector<float>& logits, const GenerateOptions& options, const core::Random& random,
                           uint64_t draw, int32_t banned) {
  std::vector<std::pair<double, int32_t>> order;  // falling logits, then rising ids
  for (size_t i = 0; i < logits.size(); ++i) {
    if (static_cast<int32_t>(i) != banned) order.emplace_back(-static_cast<double>(logits[i]), static_cast<int32_t>(i));
  }
  std::sort(order.begin(), order.end());
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> sums{0};
  const auto weight = [&](size_t i) { return std::exp((order[0].first - order[i].first) / options.temperature); };
  for (size_t i = 0; i < order.size(); ++i) sums.push_back(sums.back() + weight(i));
  size_t kept = 1;
  while (kept < order.size() && sums[kept] < options.top_p * sums.back()) ++kept;
  while (weight(kept - 1) < options.min_p) --kept;
  const double drawn = static_cast<double>(random.uniform(draw)) * sums[kept];
  size_t at = 0;
  while (at + 1 < kept && sums[at + 1] <= drawn) ++at;
  return order[at].second;
}

TEST(Sampling, DrawsTheTokensThatSortingTheVocabularyGives) {
  const GenerateOptions all_options[] = {{},
                                         {.temperature = 0.1},
                                         {.top_p = 0.5},
                                         {.top_k = 40},
                                         {.top_k = 3000, .top_p = 0.95},
                                         {.top_k = 100'000},
                                         {.min_p = 0.2},
                                         {.temperature = 1.5, .top_k = 1000, .top_p = 0.999999, .min_p = 0.01}};
  for (const float spread : {0.0f, 1e-6f, 0.5f, 8.0f}) {
    std::vector<float> logits = test::random_tensor({5000}, 7).to_floats();
    for (float& logit : logits) logit *= spread;
    for (size_t i = 0; i < 1000; ++i) logits[i] = i % 2 == 0 ? 0.0f : -0.0f;  // equal
    for (const GenerateOptions& options : all_options) {
      for (uint64_t draw = 0; draw < 40; ++draw) {
        const int32_t banned = draw % 3 == 0 ? static_cast<int32_t>(draw) : -1;
        ASSERT_EQ(sample_token(logits, options, core::Random(3), draw, banned),
                  sampled_by_sorting(logits, options, core::Random(3), draw, banned))
            << "spread " << spread << ", top_k " << options.top_k << ", top_p " << options.top_p << ", draw " << draw;
      }
    }
  }
}

TEST(Sampling, DrawsFromALargeVocabularyInParallelWhatSortingGives) {
  std::vector<float> logits = test::random_tensor({40'000}, 8).to_floats();  // three tasks
  logits[20'000] = logits[39'000] = 9;
  for (const GenerateOptions& options :
       {GenerateOptions{}, {.temperature = 0.1}, {.top_p = 0.9}, {.top_k = 30'000}, {.min_p = 0.0001}}) {
    for (uint64_t draw = 0; draw < 8; ++draw) {
      const int32_t banned = draw % 2 == 0 ? 20'000 : -1;
      ASSERT_EQ(sample_token(logits, options, core::Random(3), draw, banned),
                sampled_by_sorting(logits, options, core::Random(3), draw, banned))
          << "top_k " << options.top_k << ", top_p " << options.top_p << ", draw " << draw;
    }
  }
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, core::Random(3), 0, -1), 20'000);
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, core::Random(3), 0, 20'000), 39'000);
}

TEST(Sampling, PenaltiesDependOnTheTokensOfTheText) {
  const std::vector<float> logits{2, -2, 3, -3, 0};
  const auto changed = [&](const GenerateOptions& options, std::initializer_list<int32_t> drawn) {
    const std::vector<int32_t> prompt{0, 1, 4};
    Penalties penalties(options, prompt);
    for (const int32_t token : drawn) penalties.add(token);
    const std::span<const float> found = penalties.apply(logits);
    return std::vector<float>(found.begin(), found.end());
  };
  EXPECT_EQ(changed({}, {2, 3}), logits);
  EXPECT_EQ(changed({.repetition_penalty = 2}, {}), (std::vector<float>{1, -4, 3, -3, 0}));
  EXPECT_EQ(changed({.repetition_penalty = 2}, {3, 3}), (std::vector<float>{1, -4, 3, -6, 0}));
  EXPECT_EQ(changed({.presence_penalty = 0.5}, {2, 2, 1}), (std::vector<float>{2, -2.5, 2.5, -3, 0}));
  EXPECT_EQ(changed({.frequency_penalty = 0.5}, {2, 2, 1}), (std::vector<float>{2, -2.5, 2, -3, 0}));
  EXPECT_EQ(changed({.repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = -0.5}, {0, 0, 0, 3}),
            (std::vector<float>{1.5, -4, 3, -6.5, 0}));
  EXPECT_EQ(changed({.repetition_penalty = 2, .logit_bias = {{1, 4}, {3, -100}}}, {}),
            (std::vector<float>{1, 1, 3, -103, 0}));
}

/// What temperature 0 gives when the whole text is computed for every token.
std::string written_without_a_context(const LanguageModel& model, const std::string& prompt, int64_t tokens) {
  std::vector<int32_t> ids{256};
  for (const char c : prompt) ids.push_back(static_cast<unsigned char>(c));
  std::string text;
  for (int64_t n = 0; n < tokens; ++n) {
    const auto length = static_cast<int64_t>(ids.size());
    const std::vector<float> logits =
        model.next_logits(Tensor::from(std::span<const int32_t>(ids), {1, length})).to_floats();
    ids.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + 256) - logits.begin()));
    text += static_cast<char>(ids.back());
  }
  return text;
}

TEST(Generate, WritesWhatComputingTheWholeTextEachTimeGives) {
  for (const Position position :
       {Position::alibi, Position::sinusoidal, Position::rotary, Position::t5, Position::none}) {
    const LanguageModel model = small_model(position);
    const std::string prompt = "It was the best of times, it was";
    EXPECT_EQ(model.generate(prompt, {.max_tokens = 80, .temperature = 0}),
              written_without_a_context(model, prompt, 80))
        << name_of(position);
  }
}

TEST(Generate, GreedyTextIsTheMostLikelyTokenOfTheLogits) {
  const LanguageModel model = small_model();
  const std::string prompt = "Call me";
  const std::string text = model.generate(prompt, {.max_tokens = 24, .temperature = 0});
  ASSERT_EQ(text.size(), 24u);
  std::vector<int32_t> ids{256};
  for (const char c : prompt + text) ids.push_back(static_cast<unsigned char>(c));
  const int64_t length = static_cast<int64_t>(ids.size());
  const std::vector<float> logits = model.logits(Tensor::from(std::span<const int32_t>(ids), {1, length})).to_floats();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto row = logits.begin() + static_cast<int64_t>((prompt.size() + i) * 257);
    EXPECT_EQ(std::max_element(row, row + 256) - row, static_cast<unsigned char>(text[i])) << i;
  }
}

TEST(Generate, RunsFarPastTheTrainingLengthAndRepeatsWithItsSeed) {
  const LanguageModel model = small_model();
  const std::string a = model.generate("x", {.max_tokens = 100, .seed = 5});
  EXPECT_EQ(a.size(), 100u);
  EXPECT_EQ(model.generate("x", {.max_tokens = 100, .seed = 5}), a);
  EXPECT_NE(model.generate("x", {.max_tokens = 100, .seed = 6}), a);
  EXPECT_THROW(small_model(Position::learned).generate("x", {.max_tokens = 100}), Error);
  EXPECT_EQ(model.generate("x", {.max_tokens = 0}), "");
}

TEST(Generate, StreamsWholeCharactersAndStopsWhenAsked) {
  const LanguageModel model = small_model();
  GenerateOptions options{.max_tokens = 60, .seed = 2};
  std::string streamed;
  options.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  EXPECT_EQ(model.generate("x", options), streamed);
  int calls = 0;
  options.on_text = [&](std::string_view) { return ++calls < 3; };
  model.generate("x", options);
  EXPECT_EQ(calls, 3);
}

TEST(Generate, EndsBeforeAStopStringAndNeverShowsABeginningOfIt) {
  const LanguageModel model = small_model();
  const std::string all = model.generate("x", {.max_tokens = 200, .seed = 4});
  const std::string stop = all.substr(60, 5), later = all.substr(100, 2);
  const size_t end = std::min(all.find(stop), all.find(later));
  std::string streamed;
  GenerateOptions options{.max_tokens = 200, .seed = 4, .stop = {later, "not there", stop}};
  options.on_text = [&](std::string_view piece) {
    streamed += piece;
    EXPECT_LE(streamed.size(), end);
    return true;
  };
  const Generation found = Prompt(model, "x").generate(options);
  EXPECT_EQ(found.text, all.substr(0, end));
  EXPECT_EQ(found.end, GenerationEnd::stop);
  EXPECT_EQ(streamed, found.text);
  EXPECT_LT(found.tokens, 110);
  // What was held back, because it could have been a stop string's beginning, is shown when there is no more.
  streamed.clear();
  options.stop = {all.substr(199) + "?"};
  options.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  EXPECT_EQ(Prompt(model, "x").generate(options).end, GenerationEnd::tokens);
  EXPECT_EQ(streamed, all);
}

TEST(StopStrings, AreFoundAcrossTokensAndHeldBackUntilThen) {
  const std::vector<std::string> stops = {"end", "\n\n"};
  EXPECT_EQ(find_stop(stops, "the en", 4), std::nullopt);
  EXPECT_EQ(find_stop(stops, "the end", 6), 4u);
  EXPECT_EQ(find_stop(stops, "a\n\nend", 1), 1u);
  EXPECT_EQ(length_without_stop(stops, "the en"), 4u);
  EXPECT_EQ(length_without_stop(stops, "the ena"), 7u);
  EXPECT_EQ(length_without_stop(stops, "e\n"), 1u);
  EXPECT_EQ(length_without_stop(stops, ""), 0u);
  EXPECT_EQ(length_without_stop({}, "end"), 3u);
  EXPECT_EQ(find_stop({}, "end", 0), std::nullopt);
}

TEST(Generate, SeveralTextsGoOnFromOnePrompt) {
  const LanguageModel model = small_model();
  const GenerateOptions options{.max_tokens = 50, .seed = 5};
  Prompt prompt(model, "Call me");
  EXPECT_EQ(prompt.tokens(), 8);
  EXPECT_GT(prompt.bytes(), 0);
  const Generation first = prompt.generate(options, 0), second = prompt.generate(options, 1);
  EXPECT_EQ(first.text, model.generate("Call me", options));
  EXPECT_NE(first.text, second.text);
  EXPECT_EQ(prompt.generate(options, 1).text, second.text);
  EXPECT_EQ(std::move(prompt).generate(options, 0).text, first.text);
  EXPECT_EQ(first.tokens, 50);
  EXPECT_EQ(first.end, GenerationEnd::tokens);
  EXPECT_GT(first.tokens_per_second(), 0);
}

TEST(Generate, SeveralPromptsAreWrittenOnTogether) {
  const LanguageModel model = small_model();
  const std::vector<std::string> beginnings = {
      "Call me", "x", "It was the best of times, it was", "", "y", "I", std::string(150, 'a'), "the end"};
  std::vector<GenerateOptions> options(8, {.max_tokens = 40, .seed = 5});
  options[1].max_tokens = 3;  // ends long before the others
  options[2].repetition_penalty = 1.5;
  options[3].max_tokens = 0;
  std::vector<Prompt> prompts;
  std::vector<Generation> alone;
  for (size_t i = 0; i < beginnings.size(); ++i) {
    prompts.emplace_back(model, beginnings[i]);
    alone.push_back(prompts[i].generate(options[i], static_cast<int64_t>(i)));
  }
  const std::vector<Generation> together = Prompt::generate_batch(std::move(prompts), options);
  ASSERT_EQ(together.size(), 8u);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i].text, alone[i].text) << i;  // up to eight rows give the same bits
    EXPECT_EQ(together[i].tokens, options[i].max_tokens);
    EXPECT_GT(together[i].cache_bytes, 0);
    EXPECT_EQ(together[i].shared_bytes, 0) << "it had its prompt for itself";
  }
  // Samples of one prompt, each with callbacks of its own.
  const Prompt prompt(model, "Call me");
  std::vector<Prompt> forks;
  std::vector<GenerateOptions> listening(3, {.max_tokens = 20, .seed = 5});
  std::vector<std::string> heard(3);
  for (size_t i = 0; i < 3; ++i) {
    forks.push_back(prompt.fork());
    listening[i].on_text = [&heard, i](std::string_view text) {
      heard[i] += text;
      return i != 1 || heard[i].size() < 5;
    };
  }
  const std::vector<Generation> samples = Prompt::generate_batch(std::move(forks), listening);
  EXPECT_EQ(samples[0].text, prompt.generate({.max_tokens = 20, .seed = 5}, 0).text);
  EXPECT_EQ(samples[1].end, GenerationEnd::callback);
  EXPECT_LT(samples[1].tokens, 20);
  EXPECT_EQ(heard[2], samples[2].text);
}

TEST(Generate, SamplesOfALongPromptHoldItOnce) {
  LanguageModel model = small_model();
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    model.set_precision(precision);
    const Prompt prompt(model, std::string(3000, 'a'));
    std::vector<Prompt> forks;
    for (int i = 0; i < 5; ++i) forks.push_back(prompt.fork());
    const GenerateOptions options{.max_tokens = 100, .seed = 7};
    const std::vector<Generation> found = Prompt::generate_batch(std::move(forks), {options}, 2);
    int64_t own = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].text, prompt.generate(options, static_cast<int64_t>(i) + 2).text) << i;
      EXPECT_GE(found[i].cache_bytes, prompt.bytes());
      own += found[i].cache_bytes - found[i].shared_bytes;
    }
    EXPECT_LT(own, prompt.bytes());
  }
}

TEST(Generate, TogetherIsWhatEachIsAloneWithEveryVocabularyAndInstructionSet) {
  LanguageModelConfig config = with_position(preset("tiny"), Position::alibi, 8);
  config.vocab_size = 257;
  config.adaptive = AdaptiveConfig{{50, 150}, 2, 0};
  config.transformer.layers = 1;
  config.transformer.block.bias = true;
  const LanguageModel model(config, 1);
  test::for_each_isa([&] {
    const Prompt prompt(model, "Call me");
    std::vector<Prompt> forks;
    for (int i = 0; i < 7; ++i) forks.push_back(prompt.fork());
    const GenerateOptions options{.max_tokens = 20, .seed = 7};
    const std::vector<Generation> found = Prompt::generate_batch(std::move(forks), {options});
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].text, prompt.generate(options, static_cast<int64_t>(i)).text) << i;
    }
  });
}

TEST(Generate, TogetherRefusesWhatDoesNotFit) {
  const LanguageModel model = small_model(), other = small_model();
  const auto prompts_of = [&](const LanguageModel& second) {
    std::vector<Prompt> prompts;
    prompts.emplace_back(model, "a");
    prompts.emplace_back(second, "b");
    return prompts;
  };
  EXPECT_THROW(Prompt::generate_batch(prompts_of(other), {{}}), UsageError);
  EXPECT_THROW(Prompt::generate_batch(prompts_of(model), {{}, {}, {}}), UsageError);
  EXPECT_TRUE(Prompt::generate_batch({}, {{}}).empty());
}

TEST(Generate, APenaltyKeepsItFromRepeating) {
  const LanguageModel model = small_model();
  const auto distinct = [&](double penalty) {
    const std::string text = model.generate("x", {.max_tokens = 60, .temperature = 0, .repetition_penalty = penalty});
    return std::set<char>(text.begin(), text.end()).size();
  };
  EXPECT_LT(distinct(1), 60u);
  EXPECT_EQ(distinct(1e6), 60u);
  const std::string text = model.generate("abcdefgh", {.max_tokens = 60, .temperature = 0, .repetition_penalty = 1e6});
  EXPECT_EQ(text.find_first_of("abcdefgh"), std::string::npos) << text;
}

TEST(Generate, TellsOfEachTokenAndEndsWhereTheCallerSays) {
  const LanguageModel model = small_model();
  std::vector<int32_t> tokens;
  GenerateOptions options{.max_tokens = 30, .seed = 3};
  options.on_token = [&](int32_t token) {
    tokens.push_back(token);
    return true;
  };
  const Prompt prompt(model, "x");
  const std::string all = prompt.generate(options).text;
  EXPECT_EQ(model.tokenizer().decode(tokens), all);
  options.on_token = [&](int32_t) { return false; };
  std::string streamed;
  options.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  const Generation one = prompt.generate(options);
  EXPECT_EQ(one.end, GenerationEnd::callback);
  EXPECT_EQ(one.text, all.substr(0, 1));
  EXPECT_EQ(streamed, one.text);
}

TEST(Generate, LearnedPositionsEndWithAMessage) {
  const LanguageModel model = small_model(Position::learned);        // 16 of them
  EXPECT_EQ(model.generate("abc", {.max_tokens = 13}).size(), 13u);  // the last one is not read any more
  test::expect_error([&] { model.generate("abc", {.max_tokens = 14}); }, "learned positions end at 16");
  test::expect_error([&] { model.generate("a text that is longer than that", {}); }, "learned positions end at 16");
}

TEST(Generate, ModelsOfWordsEndTheirLines) {
  // Their end of text is the end of a line, which neither stops them nor is kept from them.
  LanguageModelConfig config = small_model().config();
  const auto words =
      std::make_shared<text::WordTokenizer>(std::vector<text::WordCount>{{"a", 3}, {"b", 2}, {"c", 1}, {"d", 1}});
  config.vocab_size = words->vocab_size();
  const LanguageModel model(config, 1, words);
  for (const bool stop : {true, false}) {
    const std::string text = model.generate("a b", {.max_tokens = 60, .seed = 1, .stop_at_end_of_text = stop});
    EXPECT_NE(text.find('\n'), std::string::npos) << text;
    // Words stay apart, also where a token between them stands for no text.
    const std::string trimmed = text.substr(text.find_first_not_of(' '));
    EXPECT_EQ(words->decode(words->encode(text)), trimmed);
  }
}

TEST(Generate, BadOptionsAreUsageErrors) {
  const LanguageModel model = small_model();
  EXPECT_THROW(model.generate("x", {.temperature = -1}), UsageError);
  EXPECT_THROW(model.generate("x", {.top_p = 0}), UsageError);
  EXPECT_THROW(model.generate("x", {.max_tokens = -1}), UsageError);
  EXPECT_THROW(model.generate("x", {.min_p = 1.5}), UsageError);
  EXPECT_THROW(model.generate("x", {.repetition_penalty = 0}), UsageError);
  EXPECT_THROW(model.generate("x", {.presence_penalty = NAN}), UsageError);
  EXPECT_THROW(model.generate("x", {.logit_bias = {{-1, 1}}}), UsageError);
  EXPECT_THROW(model.generate("x", {.logit_bias = {{model.config().vocab_size, 1}}}), UsageError);
  EXPECT_THROW(model.generate("x", {.logit_bias = {{1, INFINITY}}}), UsageError);
  EXPECT_THROW(model.generate("x", {.stop = {""}}), UsageError);
}

TEST(Utf8, WholeCharactersEndBeforeAnUnfinishedOne) {
  EXPECT_EQ(whole_characters("abc", 0), 3u);
  EXPECT_EQ(whole_characters("a\xC3", 0), 1u);
  EXPECT_EQ(whole_characters("a\xC3\xA9", 0), 3u);
  EXPECT_EQ(whole_characters("a\xE2\x82", 0), 1u);
  EXPECT_EQ(whole_characters("a\xF0\x9F\x98", 0), 1u);
  EXPECT_EQ(whole_characters("\x80\x80\x80\x80", 0), 4u);  // never a character: shown as it is
  EXPECT_EQ(whole_characters("", 0), 0u);
}

}  // namespace
}  // namespace alibi::generation
