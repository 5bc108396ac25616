// The declaration of a configuration's fields, what users give of them, and the model that a run starts from.
#include "alibi/model_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "alibi/model_recipe.h"
#include "core/files.h"
#include "formats/options.h"
#include "model/config_fields.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/described.h"

namespace alibi::model {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

TEST(ConfigFields, EachIsSaidOnceAndItsDefaultIsAllowed) {
  std::set<std::string> names;
  for (const model::ConfigField& field : model::config_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_FALSE(std::string(field.help).empty()) << field.name;
    LanguageModelConfig config;
    const OptionValue usual = field.get(config);
    EXPECT_TRUE(formats::is_in(field.range, usual) || field.default_text) << field.name;
    field.set(config, usual);
    EXPECT_EQ(field.get(config), usual) << field.name;
    for (const char* choice : field.choices) {
      field.set(config, std::string(choice));
      EXPECT_EQ(field.get(config), OptionValue(std::string(choice)));
    }
  }
}

TEST(ModelOptions, WhatIsGivenIsTakenAndTheRestIsThePresets) {
  ModelOptions options;
  EXPECT_TRUE(options.empty());
  options.set("layers", 3)
      .set("embedding_scale", 5)
      .set("bidirectional", "one_sided")
      .set("alibi_slopes", std::vector{0.5});
  LanguageModelConfig config = preset("tiny");
  options.apply_to(config);
  EXPECT_EQ(config.transformer.layers, 3);
  EXPECT_EQ(config.transformer.d_model, preset("tiny").transformer.d_model);
  EXPECT_EQ(config.transformer.embedding.scale, 5);
  EXPECT_EQ(config.transformer.attention.bidirectional, Bidirectional::one_sided);
  EXPECT_EQ(config.transformer.attention.alibi_slopes, std::vector<float>{0.5f});
  EXPECT_EQ(*options.find("embedding_scale"), OptionValue(5.0));
  EXPECT_EQ(options.find("heads"), nullptr);
  options.unset("layers");
  EXPECT_EQ(options.find("layers"), nullptr);
  expect_error<UsageError>([&] { options.set("height", 1); }, "no option of a model called 'height'");
  expect_error<UsageError>([&] { options.set("vocab_size", 1); }, "'vocab_size'");
  expect_error<UsageError>([&] { options.set("heads", 0); }, "heads is 0, expected 1 to 4096");
  expect_error<UsageError>([&] { options.set("heads", "many"); }, "heads is many, expected a value like");
  expect_error<UsageError>([&] { options.set("slope_training", "often"); }, "choose from fixed, learned");
  expect_error<UsageError>([&] { options.set("tolerance", std::nan("")); }, "tolerance is nan");
}

TEST(ModelRecipe, GivesWhatTheMethodNeedsUnlessItIsGiven) {
  ModelRecipe recipe{.position = Position::t5};
  EXPECT_EQ(recipe.config(512).transformer.attention.t5_max_distance, 128);
  EXPECT_EQ(recipe.config(64).transformer.attention.t5_max_distance, 32);  // as many as there are buckets
  EXPECT_EQ(recipe.config(64).transformer.attention.t5_rate_factor, 64);
  EXPECT_EQ(with_position(preset("tiny"), Position::t5, 64).transformer.attention.t5_rate_factor, 64);
  EXPECT_EQ(recipe.config(64, 300).vocab_size, 300);
  EXPECT_EQ(recipe.config(64).train_length, 64);
  recipe.options.set("t5_max_distance", 40).set("t5_rate_factor", 2).set("causal", false);
  recipe.dropout = 0.25f;
  EXPECT_EQ(recipe.config(512).transformer.attention.t5_max_distance, 40);
  EXPECT_EQ(recipe.config(512).transformer.attention.t5_rate_factor, 2);
  EXPECT_EQ(recipe.config(512).transformer.block.dropout, 0.25f);
  EXPECT_EQ(recipe.config(64, 300).vocab_size, 301);  // an encoder has a mask
  recipe.preset = "wikitext103";
  recipe.options.unset("t5_rate_factor");
  EXPECT_EQ(recipe.config(512).transformer.attention.t5_rate_factor, 1);

  ModelRecipe sines{.position = Position::sinusoidal};
  sines.options.set("d_model", 64);
  EXPECT_EQ(sines.config(64).transformer.embedding.scale, 8);
  sines.keep_embedding_scale = true;
  EXPECT_EQ(sines.config(64).transformer.embedding.scale, 1);
  sines.options.set("embedding_scale", 3);
  EXPECT_EQ(sines.config(64).transformer.embedding.scale, 3);
}

TEST(ModelRecipe, BeginsWithTheModelOfAFolder) {
  const test::TemporaryFolder folder;
  ModelRecipe fresh{.position = Position::learned};
  fresh.options.set("layers", 1).set("d_model", 16).set("heads", 2);
  const auto bytes = std::make_shared<ByteTokenizer>();
  const LanguageModel first = fresh.model(32, bytes, 7);
  first.save(folder.path());
  const ModelRecipe tuning{.dropout = 0.5f, .from = folder.path()};
  const LanguageModel second = tuning.model(24, bytes, 8);
  EXPECT_EQ(second.config().train_length, 24);
  EXPECT_EQ(second.config().transformer.block.dropout, 0.5f);
  EXPECT_EQ(second.config().transformer.embedding.max_length, 32);
  for (size_t i = 0; i < first.parameters().size(); ++i) {
    EXPECT_EQ(test::max_abs_diff(first.parameters()[i]->value, second.parameters()[i]->value), 0);
  }
  expect_error<UsageError>([&] { tuning.config(33); }, "learned positions, which end at 32; the training length is 33");
}

TEST(LanguageModel, CanShareItsWeights) {
  const LanguageModel model(with_position(preset("tiny"), Position::alibi, 16), 3);
  const LanguageModel same =
      model.sharing_weights([](LanguageModelConfig& c) { c.transformer.attention.tolerance = 0; });
  EXPECT_EQ(same.config().transformer.attention.tolerance, 0);
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_EQ(model.parameters()[i]->value.data<float>(), same.parameters()[i]->value.data<float>());
  }
}

/// Options of the command are in docs/reference/help.md.
std::string rows() {
  std::string text;
  for (const model::ConfigField& field : model::config_fields()) {
    if (field.more.offered) continue;
    text += fmt::format(
        "| `{}` | {}{}{} | {} | {} |\n", field.name, field.help, field.choices.empty() ? "" : ": ",
        fmt::join(field.choices, ", "),
        field.default_text ? training::default_text(field) : formats::short_text_of(field.get(LanguageModelConfig())),
        field.more.json ? fmt::format("`{}`", field.more.json) : "");
  }
  return text;
}

/// ALIBI_WRITE_DOCS=1 rewrites it.
TEST(ConfigFields, TheTableOfTheDocumentationIsTheirs) {
  const fs::path file = test::test_sources() / "../docs/reference/training.md";
  std::string page = core::read_file(file);
  const std::string begin = "<!-- made by tests/model/model_options_test.cc -->\n\n",
                    end = "\n<!-- to here: fields -->";
  const size_t start = page.find(begin) + begin.size(), to = page.find(end, start);
  ASSERT_TRUE(start > begin.size() && to != std::string::npos) << "the comments around it are not found";
  const std::string expected = "| field | | default | config.json |\n|---|---|---|---|\n" + rows();
  if (std::getenv("ALIBI_WRITE_DOCS")) {
    core::write_file(file, page.replace(start, to - start, expected));
    GTEST_SKIP() << "wrote " << file;
  }
  EXPECT_EQ(page.substr(start, to - start), expected) << "to rewrite it: ALIBI_WRITE_DOCS=1";
}

}  // namespace
}  // namespace alibi::model
