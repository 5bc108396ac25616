#include "train/identity.h"

#include <gtest/gtest.h>

#include "testing.h"
#include "train/small_run.h"

namespace alibi {
namespace {

TEST(Fingerprint, SeesEveryTokenOfAnOrdinaryTextAndTheSameAtAnyThreadCount) {
  std::vector<int32_t> tokens = test::stream(200'001);
  const std::string whole = fingerprint(tokens);
  EXPECT_EQ(whole.size(), 16u);
  for (const size_t place : {size_t{0}, size_t{65535}, size_t{65536}, size_t{131072}, size_t{200'000}}) {
    tokens[place] ^= 1;
    EXPECT_NE(fingerprint(tokens), whole) << place;
    tokens[place] ^= 1;
  }
  EXPECT_NE(fingerprint(std::span(tokens).first(200'000)), whole);
  std::swap(tokens[0], tokens[1]);
  EXPECT_NE(fingerprint(tokens), whole);
  std::swap(tokens[0], tokens[1]);
  const test::RuntimeGuard guard;
  for (const int count : {1, 3}) {
    set_threads(count);
    EXPECT_EQ(fingerprint(tokens), whole);
  }
  EXPECT_NE(fingerprint({}), whole);
}

TEST(Fingerprint, OfALongTextSeesBothEnds) {
  std::vector<int32_t> tokens((size_t{1} << 26) + (1 << 18) + 5, 7);
  const std::string whole = fingerprint(tokens);
  for (const size_t place : {size_t{0}, tokens.size() - 1}) {
    tokens[place] = 8;
    EXPECT_NE(fingerprint(tokens), whole);
    tokens[place] = 7;
  }
  tokens.pop_back();
  EXPECT_NE(fingerprint(tokens), whole);
}

TEST(Identity, SaysWhatDiffers) {
  const LanguageModel model = test::small_model();
  const std::vector<int32_t> tokens = test::stream(100);
  const TrainOptions options = test::short_run();
  const OrderedJson identity = identity_of(model, tokens, {}, options);
  EXPECT_TRUE(differences(identity, Json::parse(identity.dump())).empty());

  TrainOptions changed = options;
  changed.seed = 12;
  changed.optimizer = Optimizer::nag;
  const std::vector<std::string> found =
      differences(identity_of(model, tokens, {}, changed), Json::parse(identity.dump()));
  EXPECT_EQ(found, (std::vector<std::string>{"optimizer is \"nag\", was \"adamw\"", "seed is 12, was 0"}));

  Json older = Json::parse(identity.dump());
  older.erase("clip");
  older["unheard_of"] = 1;
  EXPECT_EQ(differences(identity, older),
            (std::vector<std::string>{"clip is 1.0, was not known", "unheard_of is not set, was 1"}));
}

}  // namespace
}  // namespace alibi
