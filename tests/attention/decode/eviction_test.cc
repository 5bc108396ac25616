// Contexts with a limit: their memory stays below it, evicted keys matter at most as much as the certificate says, and
// forks and rewound contexts give the bits of fresh ones.
#include "attention/decode/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "alibi/error.h"
#include "alibi/evaluate_stream.h"
#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "model/context_state.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::kernels {
namespace {

constexpr int64_t forgotten_length = 3000;
constexpr int64_t token_bytes = 2 * 2 * 2 * 16 * 4;  // keys and values of 2 layers with 2 heads in rows of 16

/// Four heads that share two of keys and values. A small bias_max makes all of them steep.
LanguageModel steep_reader(double bias_max, Position position = Position::alibi) {
  LanguageModelConfig config = test::small_config();
  config.transformer.attention.kv_heads = 2;
  config.transformer.attention.alibi_bias_max = bias_max;
  return LanguageModel(with_position(config, position, 4096), 3);
}

Tensor long_ids() { return test::random_ids({1, forgotten_length}, 1, 257); }
Tensor long_targets() { return test::random_ids({1, forgotten_length}, 5, 257); }
Tensor piece_of(const Tensor& ids, int64_t begin, int64_t end) {
  return Tensor::view(ids.data<int32_t>() + begin, {1, end - begin}, DType::int32);
}

/// A chunk, then token by token, then chunks. `look` is called after each.
template <class Look>
std::vector<float> read_all(const LanguageModel& model, Context& context, const Look& look) {
  const Tensor ids = long_ids(), next = long_targets();
  std::vector<float> nll;
  const auto read_to = [&](int64_t end) {
    const int64_t begin = context.position();
    const std::vector<float> more = model.nll(piece_of(ids, begin, end), piece_of(next, begin, end), context);
    nll.insert(nll.end(), more.begin(), more.end());
    look();
  };
  read_to(700);
  for (int64_t end = 701; end < 1500; ++end) read_to(end);
  read_to(2100);
  read_to(forgotten_length);
  return nll;
}

TEST(Eviction, MemoryStaysBelowTheLimit) {
  const LanguageModel model = steep_reader(2);
  const std::vector<float> whole = model.nll(long_ids(), long_targets());
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const int64_t limit = 600 * token_bytes * static_cast<int64_t>(size_of(dtype)) / 4;
    Context context(model, {.cached = dtype, .memory = limit});
    int64_t most = 0;
    const std::vector<float> nll = read_all(model, context, [&] { most = std::max(most, context.bytes()); });
    EXPECT_LE(most, limit);
    EXPECT_GT(most, limit * 8 / 10) << "it uses what it may";
    const EvictionCertificate certificate = context.certificate();
    EXPECT_GT(certificate.keys, (forgotten_length - 600) * 2 * 2);
    EXPECT_GT(certificate.worst, 0);
    EXPECT_LT(certificate.worst, 1e-6);
    const double apart = test::max_abs_diff(nll, whole);
    EXPECT_TRUE(apart <= (dtype == DType::float32 ? 1e-4 : 2e-2)) << apart;
  }
}

TEST(Eviction, ATooSmallMemoryIsReportedAsSuch) {
  const LanguageModel model = steep_reader(8);  // its flattest head looks back some thousand tokens
  Context context(model, {.memory = 600 * token_bytes});
  const std::vector<float> nll = read_all(model, context, [] {});
  EXPECT_GT(context.certificate().worst, 1e-3);
  EXPECT_LE(context.certificate().worst, 1);
  EXPECT_GT(core::state_of(context).caches.front().begin(0), core::state_of(context).caches.front().begin(1))
      << "steep heads first";
  EXPECT_GT(test::max_abs_diff(nll, model.nll(long_ids(), long_targets())), 1e-4) << "the bound was not for nothing";
}

TEST(Eviction, EachLayerHasSlopesOfItsOwn) {
  LanguageModelConfig config = steep_reader(8).config();
  config.transformer.attention.slope_training = SlopeTraining::learned;
  LanguageModel model(config, 3);
  for (Parameter* parameter : model.parameters()) {
    if (parameter->name != "alibi.log2_slopes") continue;
    parameter->value.slice(0, 0, 1).fill(-1);
    parameter->value.slice(0, 1, 2).fill(-5);
  }
  Context context(model, {.memory = 600 * token_bytes});
  read_all(model, context, [] {});
  const std::vector<KvCache>& layers = core::state_of(context).caches;
  for (const int64_t head : {0, 1}) EXPECT_GT(layers[0].begin(head), layers[1].begin(head) + 300);
  EXPECT_LT(context.certificate().worst, 1e-6);
}

TEST(Eviction, ATolerancePutsAnEndToTheMemory) {
  const LanguageModel model = steep_reader(2);
  Context context(model, {.eviction_tolerance = 1e-5, .exact = true});
  std::vector<int64_t> bytes;
  const std::vector<float> nll = read_all(model, context, [&] { bytes.push_back(context.bytes()); });
  EXPECT_LT(bytes.back(), 2 * 600 * token_bytes + 3000 * token_bytes / 4);
  EXPECT_LT(bytes[700], 700 * token_bytes) << "while it reads token by token";
  EXPECT_GT(context.certificate().keys, 0);
  EXPECT_LE(context.certificate().worst, 1e-5);
  EXPECT_TRUE(test::max_abs_diff(nll, model.nll(long_ids(), long_targets())) <= 2e-4);
  const EvictionCertificate none = Context(model).certificate();
  EXPECT_EQ(none.keys, 0);
  EXPECT_EQ(none.worst, 0);
}

TEST(Eviction, ExactEndsBeforeTheBoundPassesTheTolerance) {
  const LanguageModel model = steep_reader(8);
  Context context(model, {.memory = 600 * token_bytes, .exact = true});
  test::expect_error([&] { read_all(model, context, [] {}); }, "more than the tolerance 6e-08");
  EXPECT_LE(context.certificate().worst, 0x1p-24);
  EXPECT_GT(context.position(), 400);
  EXPECT_LT(context.position(), 800);
}

/// One head with equal keys of norm 1 and queries orthogonal to them. So every score is the bias alone, and the norm of
/// a query gives the lead that a key at distance 0 could have had.
class LevelHead {
 public:
  explicit LevelHead(const ContextOptions& limit, int64_t window = 0)
      : eviction({.layers = 1,
                  .heads = 1,
                  .kv_heads = 1,
                  .head_dim = head_dim,
                  .window = window,
                  .memory = limit.memory,
                  .tolerance = limit.eviction_tolerance,
                  .exact = limit.exact}) {
    options.sliding_window = window;
  }

  /// `lead` is the lead of each of these tokens, as a logarithm.
  void read(int64_t tokens, double lead) {
    eviction.make_room(std::span(&cache, 1), tokens);
    Tensor k({1, tokens, 1, head_dim}), q({1, tokens, 1, head_dim});
    k.slice(3, 0, 1).fill(1);
    cache.append(k, k);
    q.slice(3, 1, 2).fill(static_cast<float>(4 * (lead + std::log(all_weights))));  // scale 1/4
    AttentionState state;
    attention_decode(q, cache, options, &state);
    share = evicted_share(q, cache, options, state.lse);
    eviction.attended(0, q, cache, options, state.lse);
  }
  int64_t kept() const { return cache.length() - cache.begin(0); }

  static constexpr int64_t head_dim = 16;
  static constexpr float slope = 0x1p-6f;
  static constexpr double all_weights = 64.5;  // 1 / (1 - exp(-slope))
  AttentionOptions options{.alibi_slopes = {slope}};
  KvCache cache{1, 1, head_dim};
  Eviction eviction;
  double share = 0;  ///< of what was evicted, in the tokens read last
};

/// Reads 3000 tokens, so that all keys beyond the head's estimated horizon are evicted. The first tokens have smaller
/// leads, because their rows have few keys.
LevelHead level_reader(double lead, double tolerance) {
  LevelHead head({.eviction_tolerance = tolerance, .exact = true});
  for (int i = 0; i < 60; ++i) head.read(50, i < 6 ? lead - 1 : lead);
  return head;
}

// The horizon follows from the largest lead so far. Later tokens may have a lead that is larger by e^2 and an eighth
// and still find the keys that they need.
TEST(Eviction, TheHorizonAllowsForLargerLeads) {
  constexpr double tolerance = 1e-4;
  for (const double lead : {-3.0, 0.0, 8.0}) {
    SCOPED_TRACE(lead);
    LevelHead head = level_reader(lead, tolerance);
    ASSERT_GT(head.cache.begin(0), 500);
    const double foreseen = lead + 2 + std::abs(lead) / 8;
    while (const int64_t room = head.cache.capacity() - head.cache.length()) head.read(room, lead);
    EXPECT_NO_THROW(head.read(1, foreseen - 0.05));  // right after keys were evicted
    EXPECT_LE(head.share, tolerance);
    const double needed = (foreseen + std::log(head.all_weights / tolerance)) / static_cast<double>(LevelHead::slope);
    EXPECT_LE(static_cast<double>(head.kept()), needed + 64 + 2) << "and no more than that";
  }
}

// Keys outside of a window are evicted at any horizon, and no others. A window of 194 keys has 193 keys before a token,
// so it ends right behind a block of 64.
TEST(Eviction, AWindowLimitsTheHorizon) {
  constexpr int64_t window = 194;
  LevelHead head({.eviction_tolerance = 1e-4, .exact = true}, window);
  head.read(1000, 1);
  for (int i = 0; i < 500; ++i) {
    head.read(1, 1);
    ASSERT_LE(head.cache.begin(0), head.cache.length() - window);
  }
  EXPECT_GT(head.cache.begin(0), 1000);
  EXPECT_EQ(head.eviction.certificate().worst, 0);
}

// The keys that decoding always visits are kept for any slope: to evict them would save almost nothing.
TEST(Eviction, TheNearestKeysStay) {
  LevelHead head({.eviction_tolerance = 1e-4});
  head.options.alibi_slopes = {4};
  for (int i = 0; i < 400; ++i) {
    head.read(1, 1);
    ASSERT_LE(head.cache.begin(0), std::max<int64_t>(0, head.cache.length() - 128));
  }
  EXPECT_GT(head.cache.begin(0), 100);
}

TEST(Eviction, TheCertificateSaysWhere) {
  constexpr int64_t size = 16, layers = 3;
  Eviction eviction({.layers = layers, .heads = 2, .kv_heads = 2, .head_dim = size, .tolerance = 1e-4});
  std::vector<KvCache> caches;
  for (int layer = 0; layer < layers; ++layer) caches.emplace_back(1, 2, size);
  const AttentionOptions options{.alibi_slopes = {0.1f, 0.1f}};
  const auto read = [&](int64_t tokens, int at_layer, int64_t at_token) {  // a query far longer than the others there
    eviction.make_room(caches, tokens);
    for (int layer = 0; layer < layers; ++layer) {
      Tensor k({1, tokens, 2, size}), q({1, tokens, 2, size});
      k.slice(3, 0, 1).fill(1);
      q.slice(3, 1, 2).fill(1);
      if (layer == at_layer) q.slice(1, at_token, at_token + 1).slice(2, 1, 2).slice(3, 1, 2).fill(80);
      caches[static_cast<size_t>(layer)].append(k, k);
      AttentionState state;
      attention_decode(q, caches[static_cast<size_t>(layer)], options, &state);
      eviction.attended(layer, q, caches[static_cast<size_t>(layer)], options, state.lse);
    }
  };
  for (int i = 0; i < 20; ++i) read(50, -1, 0);
  EXPECT_LT(eviction.certificate().worst, 1e-4);
  read(50, 1, 7);
  const EvictionCertificate& certificate = eviction.certificate();
  EXPECT_GT(certificate.worst, 1e-4);
  EXPECT_EQ(certificate.position, 1007);
  EXPECT_EQ(certificate.layer, 1);
  EXPECT_EQ(certificate.head, 1);
}

TEST(Eviction, ExactIsTheToleranceAndNotMore) {
  constexpr double tolerance = 1e-4;
  LevelHead head = level_reader(1, tolerance);
  double low = 1, high = 20;  // of leads: allowed, refused
  const std::string refused = "more than the tolerance 0.0001";
  for (int i = 0; i < 12; ++i) {
    const double lead = (low + high) / 2;
    LevelHead other = level_reader(1, tolerance);
    const std::string message = test::message_of([&] { other.read(1, lead); });
    EXPECT_EQ(message.find(refused) != std::string::npos, other.share > tolerance) << other.share << " " << message;
    EXPECT_LE(other.eviction.certificate().worst, tolerance);
    (other.share > tolerance ? high : low) = lead;
  }
  EXPECT_LT(high - low, 0.01);
  head.read(1, low);
  EXPECT_NEAR(head.eviction.certificate().worst, tolerance, 1e-2 * tolerance);
  EXPECT_EQ(head.eviction.certificate().position, 3000);
}

TEST(Eviction, ForkedAndRewoundOnesGiveTheBitsOfFreshOnes) {
  const LanguageModel model = steep_reader(2);
  const Tensor ids = long_ids(), others = test::random_ids({1, 30}, 9, 257);
  const auto read_to = [&](Context& context, std::initializer_list<int64_t> ends) {
    Tensor logits;
    for (const int64_t end : ends) logits = model.next_logits(piece_of(ids, context.position(), end), context);
    return logits;
  };
  const ContextOptions options{.memory = 600 * token_bytes};
  Context fresh(model, options), kept(model, options);
  const Tensor expected = read_to(fresh, {100, 1500, 1502, 1503, 2600});
  const EvictionCertificate certificate = fresh.certificate();
  read_to(kept, {100, 1500});
  Context fork = kept.fork();
  model.next_logits(others, fork);
  fork.rewind(1500);
  test::expect_error([&] { fork.rewind(100); }, "keys were evicted at");
  EXPECT_EQ(fork.position(), 1500);
  for (Context* other : {&fork, &kept}) {
    EXPECT_TRUE(test::same_bits(read_to(*other, {1502, 1503, 2600}), expected));
    EXPECT_EQ(other->certificate().keys, certificate.keys);
    EXPECT_EQ(other->certificate().worst, certificate.worst);
    other->rewind(0);
    EXPECT_EQ(other->certificate().keys, 0);
    EXPECT_TRUE(test::same_bits(read_to(*other, {100, 1500, 1502, 1503, 2600}), expected));
  }
}

TEST(Eviction, EvaluationInOnePassReportsIt) {
  const LanguageModel model = steep_reader(2);
  const std::vector<int32_t> tokens = long_ids().to_ints();
  const StreamEvaluation whole = evaluate_stream(model, tokens);
  const StreamEvaluation bounded = evaluate_stream(model, tokens, {.context = {.memory = 600 * token_bytes}});
  EXPECT_LE(bounded.cache_bytes, 600 * token_bytes);
  EXPECT_GT(whole.cache_bytes, 3000 * token_bytes);
  EXPECT_NEAR(bounded.nll(), whole.nll(), 1e-5);
  EXPECT_GT(bounded.certificate.keys, 0);
  EXPECT_LT(bounded.certificate.worst, 1e-6);
}

TEST(Eviction, RefusesWhatMakesNoSense) {
  const LanguageModel model = steep_reader(8);
  const auto refuses = [&](const LanguageModel& of, const ContextOptions& options, const char* words) {
    EXPECT_NE(test::message_of<UsageError>([&] { const Context context(of, options); }).find(words), std::string::npos)
        << words;
  };
  refuses(model, {.memory = 1000}, "expected at least 384");
  refuses(model, {.eviction_tolerance = 0}, "eviction_tolerance is 0");
  refuses(model, {.eviction_tolerance = 1}, "eviction_tolerance is 1");
  for (const Position position : {Position::rotary, Position::sinusoidal, Position::t5, Position::none}) {
    refuses(steep_reader(8, position), {.memory = 1 << 20}, "put no bound on what far keys weigh");
  }
}

}  // namespace
}  // namespace alibi::kernels
