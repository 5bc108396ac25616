// What the models of a comparison are given, the positions above all.
#include <gtest/gtest.h>

#include <string>

#include "alibi/compare.h"
#include "compare/run.h"
#include "compare/short_run.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::comparison {
namespace {

using test::setting;
using test::short_run;
using test::shorter_run;
using test::TemporaryFolder;

TEST(Compare, ShapeAndPositionsCanBeGiven) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.positions = {Position::alibi, Position::sinusoidal, Position::t5};
  options.sample_tokens = 0;
  options.model.set("layers", 1);
  options.model.set("d_model", 32);
  options.model.set("heads", 2);
  options.model.set("t5_buckets", 8);
  EXPECT_EQ(model_config(options, Position::t5, 64, nullptr).transformer.attention.t5_max_distance, 16);
  EXPECT_EQ(model_config(options, Position::t5, 24, nullptr).transformer.attention.t5_max_distance, 8);  // the buckets
  EXPECT_NE(setting(compare(options), "positions").find("t5_buckets 8, t5_max_distance 8"), std::string::npos);
  options.model.set("t5_max_distance", 16);
  const CompareResults results = compare(options);
  EXPECT_NE(setting(results, "model").find("1 layer, d_model 32, 2 heads"), std::string::npos);
  EXPECT_NE(setting(results, "positions").find("embeddings multiplied by 1 with every method"), std::string::npos);
  EXPECT_NE(setting(results, "positions").find("t5: t5_buckets 8, t5_max_distance 16"), std::string::npos);
  EXPECT_EQ(results.methods[2].parameters, results.methods[0].parameters + 8 * 2);
  const double unscaled = results.methods[1].evaluations[0].nll;
  options.model.set("embedding_scale", 5);
  EXPECT_NE(compare(options).methods[1].evaluations[0].nll, unscaled);
  options.model.set("heads", 3);
  test::expect_error<UsageError>([&] { compare(options); }, "heads");
}

/// Of the first method.
double nll_of_first(const CompareResults& results) { return results.methods.at(0).evaluations.at(0).nll; }

TEST(Compare, TheTableOfT5HasARateAndAStartOfItsOwn) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.positions = {Position::t5, Position::alibi};
  const CompareResults usual = compare(options);
  EXPECT_NE(setting(usual, "positions").find("t5_rate_factor 64"), std::string::npos);
  options.model.set("t5_init", 0.5);
  const CompareResults started = compare(options);
  EXPECT_NE(setting(started, "positions").find("t5_init 0.5"), std::string::npos);
  EXPECT_NE(nll_of_first(started), nll_of_first(usual));
  options.model.set("t5_init", 0.02);
  options.model.set("t5_rate_factor", 1);
  const CompareResults slower = compare(options);
  EXPECT_NE(setting(slower, "positions").find("t5_rate_factor 1"), std::string::npos);
  EXPECT_NE(nll_of_first(slower), nll_of_first(usual));
  EXPECT_EQ(slower.methods.at(1).evaluations.at(0).nll, usual.methods.at(1).evaluations.at(0).nll);  // nobody else's
  const auto factor = [&] {
    return model_config(options, Position::t5, 64, nullptr).transformer.attention.t5_rate_factor;
  };
  EXPECT_EQ(factor(), 1);
  options.model.unset("t5_rate_factor");
  EXPECT_EQ(factor(), 64);
  options.preset = "wikitext103";
  EXPECT_EQ(factor(), 1);
  EXPECT_EQ(model_config(options, Position::alibi, 64, nullptr).transformer.attention.t5_rate_factor, 1);
}

}  // namespace
}  // namespace alibi::comparison
