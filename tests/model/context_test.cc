// A text read in pieces by a context gives what the whole gives; forked and rewound contexts give the bits of fresh
// ones.
#include "alibi/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "alibi/error.h"
#include "alibi/language_model.h"
#include "positions.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::model {
namespace {

constexpr int64_t long_text = 4500;  // more than two of the pieces that a call reads at a time

LanguageModel reader(Position position, int64_t train_length = long_text) {
  LanguageModelConfig config = test::small_config();
  config.transformer.attention.kv_heads = 2;
  return LanguageModel(with_position(config, position, train_length), 3);
}

Tensor part_of(const Tensor& ids, int64_t begin, int64_t end) {
  return Tensor::view(ids.data<int32_t>() + begin, {1, end - begin}, DType::int32);
}

class ContextOf : public testing::TestWithParam<Position> {};
INSTANTIATE_TEST_SUITE_P(, ContextOf, testing::ValuesIn(test::position_cases()),
                         [](const auto& test) { return test::case_name(test.param); });

TEST_P(ContextOf, PiecesGiveWhatTheWholeGives) {
  const LanguageModel model = reader(GetParam());
  const Tensor ids = test::random_ids({1, long_text}, 1, 257), targets = test::random_ids({1, long_text}, 5, 257);
  const std::vector<float> whole = model.nll(ids, targets);
  for (const std::vector<int64_t>& ends :
       {std::vector<int64_t>{long_text}, {1, 2, 3, 20, 2500, 2501, long_text - 1, long_text}}) {
    Context context(model);
    std::vector<float> nll;
    for (const int64_t end : ends) {
      const int64_t begin = context.position();
      const std::vector<float> more = model.nll(part_of(ids, begin, end), part_of(targets, begin, end), context);
      nll.insert(nll.end(), more.begin(), more.end());
      EXPECT_EQ(context.position(), end);
    }
    EXPECT_TRUE(test::max_abs_diff(nll, whole) <= 1e-4) << test::max_abs_diff(nll, whole);
  }
  Context context(model), other(model);
  const Tensor states = model.hidden(ids, context), expected = model.hidden(ids);
  EXPECT_TRUE(test::max_abs_diff(states, expected) <= 1e-4);
  EXPECT_TRUE(test::max_abs_diff(model.next_logits(ids, other), model.next_logits(ids)) <= 1e-4);
}

TEST_P(ContextOf, HalfTheMemoryAndBfloat16AreRounding) {
  LanguageModel model = reader(GetParam());
  const Tensor ids = test::random_ids({1, 300}, 1, 257), targets = test::random_ids({1, 300}, 5, 257);
  const auto in_pieces = [&](Context context) {
    std::vector<float> nll = model.nll(part_of(ids, 0, 200), part_of(targets, 0, 200), context);
    for (int64_t i = 200; i < 300; ++i) {
      nll.push_back(model.nll(part_of(ids, i, i + 1), part_of(targets, i, i + 1), context).front());
    }
    return nll;
  };
  const std::vector<float> whole = model.nll(ids, targets);
  const double apart = test::max_abs_diff(in_pieces(Context(model, {DType::bfloat16})), whole);
  EXPECT_TRUE(apart <= 2e-2) << apart;
  EXPECT_GT(apart, 1e-5) << "a cache in bfloat16 was not read";
  model.set_precision(Precision::bf16);
  EXPECT_EQ(Context(model).dtype(), DType::bfloat16);
  const double lower = test::max_abs_diff(in_pieces(Context(model)), model.nll(ids, targets));
  EXPECT_TRUE(lower <= 6e-2) << lower;
}

TEST_P(ContextOf, ForkedAndRewoundOnesGiveTheBitsOfFreshOnes) {
  const LanguageModel model = reader(GetParam());
  const Tensor ids = test::random_ids({1, 230}, 1, 257), others = test::random_ids({1, 30}, 9, 257);
  const auto read_to = [&](Context& context, std::initializer_list<int64_t> ends) {
    Tensor logits;
    for (const int64_t end : ends) logits = model.next_logits(part_of(ids, context.position(), end), context);
    return logits;
  };
  Context fresh(model), kept(model);
  const Tensor expected = read_to(fresh, {100, 120, 121, 122, 230});
  read_to(kept, {100, 120});
  Context fork = kept.fork();
  EXPECT_EQ(fork.position(), 120);
  model.next_logits(others, fork);  // what a fork reads is its own
  model.next_logits(others, kept);
  kept.rewind(120);
  fork.rewind(120);
  EXPECT_TRUE(test::same_bits(read_to(kept, {121, 122, 230}), expected));
  EXPECT_TRUE(test::same_bits(read_to(fork, {121, 122, 230}), expected));
  fork.rewind(0);
  EXPECT_EQ(fork.position(), 0);
  EXPECT_TRUE(test::same_bits(read_to(fork, {100, 120, 121, 122, 230}), expected));
}

TEST(ContextMemory, GrowsWithTheTextAndIsHalfInBfloat16) {
  const LanguageModel model = reader(Position::alibi);
  const Tensor ids = test::random_ids({1, 4000}, 1, 257);
  Context wide(model), narrow(model, {DType::bfloat16});
  EXPECT_LT(wide.bytes(), 1000);
  model.next_logits(ids, wide);
  // keys and values of 2 layers with 2 heads, whose rows of 8 elements take the 16 of a vector
  const int64_t needed = int64_t{4000} * 2 * 2 * 2 * 16 * 4;
  EXPECT_GE(wide.bytes(), needed);
  EXPECT_LT(wide.bytes(), 2 * needed);
  model.next_logits(part_of(ids, 0, 1000), narrow);
  Context same(model);
  model.next_logits(part_of(ids, 0, 1000), same);
  EXPECT_NEAR(static_cast<double>(narrow.bytes()) / static_cast<double>(same.bytes()), 0.5, 0.02);
}

TEST(ContextErrors, LeaveItAsItWas) {
  const LanguageModel model = reader(Position::learned, 2100), other = reader(Position::learned, 2100);
  const Tensor ids = test::random_ids({1, 2200}, 1, 257);
  Context context(model), expected(model);
  model.next_logits(part_of(ids, 0, 50), context);
  model.next_logits(part_of(ids, 0, 50), expected);
  const auto says = [&](const char* words, const auto& call) {
    test::expect_error(call, words);
    EXPECT_EQ(context.position(), 50);
  };
  says("learned positions end at 2100, the text goes to 2150",
       [&] { model.next_logits(part_of(ids, 50, 2150), context); });
  says("another model", [&] { other.next_logits(ids, context); });
  says("a row for each of 1 contexts", [&] { model.next_logits(ids.reshape({2, 1100}), context); });
  says("rewound to 51", [&] { context.rewind(51); });
  says("rewound to -1", [&] { context.rewind(-1); });
  Tensor targets = ids.clone();
  targets.data<int32_t>()[2049] = 500;  // of the second piece: the first has been read by then
  says("500", [&] { model.nll(part_of(ids, 0, 2050), part_of(targets, 0, 2050), context); });
  const Tensor next = part_of(ids, 50, 2100);
  EXPECT_TRUE(test::same_bits(model.next_logits(next, context), model.next_logits(next, expected)));
}

TEST(ContextErrors, EncodersHaveNone) {
  LanguageModelConfig config = reader(Position::alibi).config();
  config.transformer.attention.causal = false;
  test::expect_error([&] { Context context(LanguageModel(config, 1)); }, "encoder");
}

TEST_P(ContextOf, TextsAtDifferentPlacesAreReadTogether) {
  const LanguageModel model = reader(GetParam());
  const std::vector<int64_t> lengths = {1, 300, 70, 299, 2};
  const auto batch = static_cast<int64_t>(lengths.size());
  const Tensor prompts = test::random_ids({batch, 300}, 1, 257), more = test::random_ids({batch, 7}, 2, 257);
  std::vector<Context> together, alone;
  for (int64_t row = 0; row < batch; ++row) {
    const Tensor prompt = prompts.slice(0, row, row + 1).clone();
    for (std::vector<Context>* contexts : {&together, &alone}) {
      model.next_logits(part_of(prompt, 0, lengths[static_cast<size_t>(row)]), contexts->emplace_back(model));
    }
  }
  std::vector<Context*> all;
  for (Context& context : together) all.push_back(&context);
  // One by one, then the rest at once.
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {2, 7}}) {
    const Tensor ids = more.slice(1, begin, end).clone();
    const Tensor found = model.next_logits(ids, all);
    for (int64_t row = 0; row < batch; ++row) {
      const Tensor expected = model.next_logits(ids.slice(0, row, row + 1).clone(), alone[static_cast<size_t>(row)]);
      const double apart = test::max_abs_diff(found.slice(0, row, row + 1).clone(), expected);
      EXPECT_TRUE(apart <= 1e-4) << "row " << row << " from " << begin << ": " << apart;
      EXPECT_EQ(together[static_cast<size_t>(row)].position(), alone[static_cast<size_t>(row)].position());
    }
  }
  const Tensor ids = test::random_ids({batch, 9}, 3, 257), targets = test::random_ids({batch, 9}, 4, 257);
  const std::vector<float> nll = model.nll(ids, targets, all);
  for (int64_t row = 0; row < batch; ++row) {
    const std::vector<float> expected = model.nll(
        ids.slice(0, row, row + 1).clone(), targets.slice(0, row, row + 1).clone(), alone[static_cast<size_t>(row)]);
    const std::vector<float> found(nll.begin() + row * 9, nll.begin() + (row + 1) * 9);
    EXPECT_TRUE(test::max_abs_diff(found, expected) <= 1e-4) << row;
  }
}

TEST(Context, AModelWithoutLayersHasNoKeysToEvict) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 0;
  const LanguageModel model(with_position(config, Position::alibi, 16), 3);
  Context limited(model, {.memory = 1 << 20}), free(model);
  const Tensor ids = test::random_ids({1, 40}, 1, 257);
  EXPECT_EQ(model.hidden(ids, limited).to_floats(), model.hidden(ids, free).to_floats());
}

TEST(Context, TextsReadTogetherAreAllReadOrNone) {
  const LanguageModel model = reader(Position::learned, 20);
  Context one(model), other(model);
  model.next_logits(test::random_ids({1, 18}, 1, 257), other);
  const std::vector<Context*> both = {&one, &other}, twice = {&one, &one}, few = {&one};
  EXPECT_THROW(model.next_logits(test::random_ids({2, 3}, 2, 257), both), Error);
  EXPECT_EQ(one.position(), 0);
  EXPECT_EQ(other.position(), 18);
  EXPECT_THROW(model.next_logits(test::random_ids({2, 1}, 2, 257), twice), Error);
  EXPECT_THROW(model.next_logits(test::random_ids({2, 1}, 2, 257), few), Error);
  EXPECT_EQ(one.position(), 0);
}

TEST(Context, ATokenCanBeReadAfterReadingTogetherFailed) {
  const LanguageModel model = reader(Position::alibi);
  const Tensor prompt = test::random_ids({1, 8}, 1, 257), token = test::random_ids({1, 1}, 2, 257);
  Context one(model), other(model), expected(model);
  const std::vector<Context*> both = {&one, &other};
  for (Context* context : {&one, &other, &expected}) {
    model.next_logits(prompt, *context);
    model.next_logits(token, *context);  // its memory is now that of one token
  }
  const Tensor ids = test::random_ids({2, 1}, 3, 257), targets = Tensor::from(std::vector<int32_t>{5, 500}, {2, 1});
  test::expect_error([&] { model.nll(ids, targets, both); }, "500");
  EXPECT_TRUE(test::same_bits(model.next_logits(token, one), model.next_logits(token, expected)));
}

}  // namespace
}  // namespace alibi::model
