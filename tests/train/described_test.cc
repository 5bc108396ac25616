// Options as they are described: what every user of the description relies on.
#include "train/described.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "temporary_folder.h"
#include "testing.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

template <class Options>
class Described : public testing::Test {};
using Structs = testing::Types<TrainOptions, TrainRun>;
TYPED_TEST_SUITE(Described, Structs);

TYPED_TEST(Described, EachOptionHasANameOfItsOwnAndHelp) {
  std::set<std::string> names;
  for (const formats::Option<TypeParam>& option : formats::options_of<TypeParam>) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(std::string(option.help).empty()) << option.name;
  }
  for (const formats::Option<TypeParam>& option : formats::options_of<TypeParam>) {
    EXPECT_TRUE(!option.instead_of || names.contains(option.instead_of)) << option.name;
  }
  ASSERT_FALSE(names.empty());
  EXPECT_NE(formats::options_of<TypeParam>.front().group, nullptr);
}

TYPED_TEST(Described, DefaultsAreInRangeAndWhatIsSetIsRead) {
  check_ranges(TypeParam());
  for (const formats::Option<TypeParam>& option : formats::options_of<TypeParam>) {
    TypeParam options;
    for (const char* choice : option.choices) {
      option.set(options, std::string(choice));
      EXPECT_EQ(option.get(options), OptionValue(std::string(choice)));
    }
    if (!option.choices.empty()) {
      test::expect_error<UsageError>([&] { option.set(options, std::string("nonsense")); }, "choose from");
    }
    if (option.automatic) option.set(options, std::string(option.automatic()));
  }
}

TYPED_TEST(Described, ANumberOutOfRangeIsNamedWithWhatIsExpected) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  int refused = 0;
  for (const formats::Option<TypeParam>& option : formats::options_of<TypeParam>) {
    const OptionValue value = default_of(option);
    for (const double wrong : {-2.0, 0.0, 1.0, 1.5, infinity, std::numeric_limits<double>::quiet_NaN()}) {
      const bool is_whole = std::holds_alternative<int64_t>(value);
      if (option.range.contains(wrong) || (is_whole && wrong != -2 && wrong != 0)) continue;
      if (!is_whole && !std::holds_alternative<double>(value)) continue;
      TypeParam options;
      option.set(options, is_whole ? OptionValue(static_cast<int64_t>(wrong)) : OptionValue(wrong));
      const std::string message = test::message_of([&] { check_ranges(options); });
      EXPECT_NE(message.find(fmt::format("{} is {}, expected {}", option.name, wrong, formats::text_of(option.range))),
                std::string::npos)
          << message;
      ++refused;
    }
  }
  EXPECT_GT(refused, 4);
}

TEST(OptionRange, SaysWhatItTakes) {
  EXPECT_EQ(formats::text_of({.least = 1}), "at least 1");
  EXPECT_EQ(formats::text_of({.above = 0}), "above 0");
  EXPECT_EQ(formats::text_of({.least = 0, .most = 1}), "0 to 1");
  EXPECT_EQ(formats::text_of({.least = 0, .below = 1}), "at least 0 and below 1");
  const formats::OptionRange half_open{.least = 0, .below = 1}, closed{.least = 0, .most = 1};
  EXPECT_TRUE(half_open.contains(0) && !half_open.contains(1) && closed.contains(1) && !closed.contains(1.5));
  EXPECT_TRUE(!formats::OptionRange{.above = 0}.contains(0) && formats::OptionRange{.above = 0}.contains(1e-300));
}

TEST(TrainOptions, EveryPresetsAreInRange) {
  for (const std::string& name : preset_names()) training_defaults(name).validate();
}

TEST(TrainOptions, OneOfTwoWaysIsUsed) {
  const auto used = [](const TrainOptions& options) {
    std::set<std::string> names;
    for (const formats::Option<TrainOptions>& option : formats::options_of<TrainOptions>) {
      if (is_used(option, options)) names.insert(option.name);
    }
    return names;
  };
  TrainOptions options;
  EXPECT_TRUE(used(options).contains("warmup_fraction") && !used(options).contains("warmup_steps"));
  options.warmup_steps = 0;
  EXPECT_TRUE(!used(options).contains("warmup_fraction") && used(options).contains("warmup_steps"));
  options.warmup_steps = -2;
  test::expect_error<UsageError>([&] { options.validate(); }, "warmup_steps is -2, expected at least 0, or -1");
}

/// Of a run of some updates with this value of an option, or with what it has.
template <class Options>
std::vector<float> weights_with(const formats::Option<Options>* option) {
  const test::TemporaryFolder folder;
  TrainOptions options = test::short_run();
  options.train_tokens = 5 * options.batch_tokens;
  TrainRun run;
  run.folder = folder.path();
  if constexpr (std::is_same_v<Options, TrainRun>) {
    if (option) option->set(run, test::another(*option, run));
  } else {
    if (option) option->set(options, test::another(*option, options));
  }
  LanguageModel model = test::small_model(Position::alibi, 0.1f);
  train(model, test::stream(1000), options, run);
  return test::weights(model);
}

TYPED_TEST(Described, WhatIsSaidNotToChangeTheResultDoesNot) {
  const std::vector<float> expected = weights_with<TypeParam>(nullptr);
  int changed = 0;
  for (const formats::Option<TypeParam>& option : formats::options_of<TypeParam>) {
    if (option.changes_result) continue;
    EXPECT_TRUE(weights_with(&option) == expected) << option.name;
    ++changed;
  }
  EXPECT_GT(changed, 0);
}

}  // namespace
}  // namespace alibi::training
