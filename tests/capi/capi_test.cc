// What the C interface refuses, and how it says so, and that every option arrives. That it works is shown by c_test.c.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "alibi/attention.h"
#include "alibi/c.h"
#include "alibi/stream.h"
#include "alibi/version.h"
#include "core/device.h"
#include "device/fake_device.h"
#include "testing.h"

namespace alibi::test {
namespace {

constexpr int64_t huge = int64_t{1} << 62;

void expect_refused(alibi_status status, const std::string& part) {
  EXPECT_EQ(status, ALIBI_ERROR);
  const std::string message = alibi_last_error();
  EXPECT_NE(message.find(part), std::string::npos) << "found: " << message << "\nexpected it to hold: " << part;
}

class CInterface : public testing::Test {
 protected:
  alibi_tensor view(std::vector<float>& values, int64_t length) {
    return {values.data(), ALIBI_FLOAT32, {1, length, 2, 4}, {0, 0, 0, 0}};
  }
  alibi_status forward() { return alibi_attention(&q, &k, &v, &options, &out, nullptr); }

  std::vector<float> q_data = std::vector<float>(24, 0.5f), k_data = std::vector<float>(40, 0.25f);
  std::vector<float> v_data = std::vector<float>(40, 1), out_data = std::vector<float>(24);
  alibi_tensor q = view(q_data, 3), k = view(k_data, 5), v = view(v_data, 5), out = view(out_data, 3);
  alibi_attention_options options = alibi_attention_options_default();
};

TEST_F(CInterface, TheVersionIsTheLibrarys) { EXPECT_STREQ(alibi_version(), version); }

TEST_F(CInterface, OptionsAndStateMayBeNull) {
  EXPECT_EQ(alibi_attention(&q, &k, &v, nullptr, &out, nullptr), ALIBI_OK);
  for (const float x : out_data) EXPECT_TRUE(std::abs(x - 1) <= 1e-6f);
}

TEST_F(CInterface, NamesTheTensorThatDoesNotFit) {
  const alibi_tensor good = v;
  v.data = nullptr;
  expect_refused(forward(), "[alibi_attention] v.data is null");
  v = good;
  v.dtype = 7;
  expect_refused(forward(), "v.dtype is 7");
  v = good;
  v.shape[1] = -1;
  expect_refused(forward(), "v has shape [1, -1, 2, 4]");
  v = good;
  v.shape[0] = v.shape[1] = huge;
  expect_refused(forward(), "v has shape");
  v = good;
  v.strides[3] = 2;
  expect_refused(forward(), "v has strides");
  v = good;
  v.strides[1] = huge;
  v.strides[3] = 1;
  expect_refused(forward(), "v has strides");
  v.strides[1] = std::numeric_limits<int64_t>::min();
  expect_refused(forward(), "v has strides");
  v = good;
  v.data = reinterpret_cast<char*>(v_data.data()) + 1;
  expect_refused(forward(), "v.data is not aligned");
  v = good;
  v.shape[1] = 4;
  expect_refused(forward(), "v has shape [1, 4, 2, 4]");
  v = good;
  EXPECT_EQ(forward(), ALIBI_OK);
  q.dtype = ALIBI_BFLOAT16;
  expect_refused(forward(), "k is float32, expected bfloat16");
}

TEST_F(CInterface, OutputsMustNotOverlapThemselves) {
  out.strides[0] = 8;
  out.strides[1] = 0;
  out.strides[2] = 4;
  out.strides[3] = 1;
  expect_refused(forward(), "out has strides");
}

TEST_F(CInterface, NamesTheOptionThatDoesNotFit) {
  const alibi_attention_options good = options;
  options.size = 0;
  expect_refused(forward(), "size is 0");
  options.size = sizeof(options) - 4;
  expect_refused(forward(), "size");
  options.size = huge;
  expect_refused(forward(), "size");
  options = good;
  options.alibi_slopes_count = 2;
  expect_refused(forward(), "alibi_slopes is null");
  const float slopes[] = {0.5f, 0.25f, 0.125f};
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = 3;
  expect_refused(forward(), "alibi_slopes has 3 values, expected 2");
  options.alibi_slopes_count = std::numeric_limits<size_t>::max();
  expect_refused(forward(), "alibi_slopes has");
  options = good;
  options.buckets = slopes;
  expect_refused(forward(), "num_buckets is 0");
  options.num_buckets = huge;
  expect_refused(forward(), "num_buckets");
  options = good;
  options.dropout_p = 2;
  expect_refused(forward(), "dropout_p is 2");
  options = good;
  options.tolerance = -1;
  expect_refused(forward(), "tolerance is -1");
  options = good;
  options.cu_seqlens_q_count = 2;
  expect_refused(forward(), "cu_seqlens_q is null");
  options = good;
  options.query_offset = std::numeric_limits<int64_t>::max();
  expect_refused(forward(), "query_offset");
}

TEST_F(CInterface, SaysWhatADeviceLacks) {
  int stream = 0;
  options.stream = &stream;
  expect_refused(forward(), "stream is given, but device is ALIBI_DEVICE_CPU");
  options.device = 2;
  expect_refused(forward(), "device is 2");
  options.device = ALIBI_DEVICE_CUDA;
  alibi_kv_cache* cache = nullptr;
  ASSERT_EQ(alibi_kv_cache_create(1, 2, 4, ALIBI_FLOAT32, &cache), ALIBI_OK);
  expect_refused(alibi_attention_decode(&q, cache, &options, &out, nullptr),
                 "device is 'cuda', but the cache is on 'cpu'");
  expect_refused(alibi_kv_cache_create_on(1, 2, 4, ALIBI_BFLOAT16, 3, nullptr, &cache), "device is 3");
  expect_refused(alibi_kv_cache_create_on(1, 2, 4, ALIBI_BFLOAT16, ALIBI_DEVICE_CPU, &stream, &cache),
                 "stream is given, but device is ALIBI_DEVICE_CPU");
  alibi_kv_cache_destroy(cache);
  ASSERT_EQ(alibi_kv_cache_create(1, 2, 4, ALIBI_FLOAT16, &cache), ALIBI_OK) << alibi_last_error();
  alibi_kv_cache_destroy(cache);
  if (core::device_memories().of(Device::cuda) == nullptr) {
    expect_refused(forward(), "this build of alibi has no device 'cuda'; configure it with -DALIBI_CUDA=ON");
    expect_refused(alibi_kv_cache_create_on(1, 2, 8, ALIBI_BFLOAT16, ALIBI_DEVICE_CUDA, nullptr, &cache),
                   "this build of alibi has no device 'cuda'; configure it with -DALIBI_CUDA=ON");
  }
  options.device = ALIBI_DEVICE_CPU;
  options.stream = nullptr;
  q.dtype = k.dtype = v.dtype = out.dtype = ALIBI_FLOAT16;
  EXPECT_EQ(forward(), ALIBI_OK) << alibi_last_error();
}

TEST_F(CInterface, RunsOnADeviceInAStream) {
  const FakeDevice device;
  const auto there = [](const std::vector<float>& values) {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}).to(Device::cuda);
  };
  alibi_attention_state* state = nullptr;
  ASSERT_EQ(alibi_attention_state_create(&state), ALIBI_OK);
  const float slopes[] = {0.5f, 0.25f};
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = 2;
  ASSERT_EQ(alibi_attention(&q, &k, &v, &options, &out, state), ALIBI_OK);
  std::vector<float> lse(6), lse_there(6), dq(24), dk(40), dv(40), dslopes(2);
  ASSERT_EQ(alibi_attention_state_lse(state, lse.data(), 6), ALIBI_OK);
  const alibi_tensor dq_view = view(dq, 3), dk_view = view(dk, 5), dv_view = view(dv, 5);
  ASSERT_EQ(alibi_attention_backward(&out, &q, &k, &v, &out, state, &options, &dq_view, &dk_view, &dv_view, nullptr,
                                     dslopes.data(), nullptr, nullptr),
            ALIBI_OK);

  const Tensor q_there = there(q_data), k_there = there(k_data), v_there = there(v_data);
  const Tensor out_there = there(std::vector<float>(24)), dq_there = there(std::vector<float>(24));
  const Tensor dk_there = there(std::vector<float>(40)), dv_there = there(std::vector<float>(40));
  const Tensor dslopes_there = there({0, 0});
  const auto at = [](alibi_tensor tensor, const Tensor& memory) {
    tensor.data = memory.raw();
    return tensor;
  };
  const alibi_tensor q_at = at(q, q_there), k_at = at(k, k_there), v_at = at(v, v_there), out_at = at(out, out_there);
  const alibi_tensor dq_at = at(q, dq_there), dk_at = at(k, dk_there), dv_at = at(v, dv_there);
  int stream = 0;
  options.device = ALIBI_DEVICE_CUDA;
  options.stream = &stream;
  ASSERT_EQ(alibi_attention(&q_at, &k_at, &v_at, &options, &out_at, state), ALIBI_OK) << alibi_last_error();
  EXPECT_EQ(FakeDevice::last_stream(), &stream);
  EXPECT_EQ(alibi::stream(), nullptr);
  ASSERT_EQ(alibi_attention_state_lse(state, lse_there.data(), 6), ALIBI_OK) << alibi_last_error();
  // What a framework keeps between the passes lies in the CPU's memory.
  size_t words = 0;
  ASSERT_EQ(alibi_attention_state_words(&q, &options, &words), ALIBI_OK);
  std::vector<float> kernel_lse(6);
  std::vector<int32_t> blocks(words);
  ASSERT_EQ(alibi_attention_state_save(state, lse_there.data(), kernel_lse.data(), 6, blocks.data(), words), ALIBI_OK);
  ASSERT_EQ(alibi_attention_state_restore(state, &q, lse_there.data(), kernel_lse.data(), blocks.data(), words),
            ALIBI_OK);
  ASSERT_EQ(alibi_attention_backward(&out_at, &q_at, &k_at, &v_at, &out_at, state, &options, &dq_at, &dk_at, &dv_at,
                                     nullptr, static_cast<float*>(dslopes_there.raw()), nullptr, nullptr),
            ALIBI_OK)
      << alibi_last_error();
  alibi_attention_state_destroy(state);
  EXPECT_EQ(out_there.to_floats(), out_data);
  EXPECT_EQ(lse_there, lse);
  EXPECT_EQ(dq_there.to_floats(), dq);
  EXPECT_EQ(dk_there.to_floats(), dk);
  EXPECT_EQ(dv_there.to_floats(), dv);
  EXPECT_EQ(dslopes_there.to_floats(), dslopes);
}

TEST_F(CInterface, TakesTheOptionsOfALaterVersionIfTheyAskForNothing) {
  struct Later {
    alibi_attention_options known = alibi_attention_options_default();
    int64_t added = 0;
  } later;
  later.known.size = sizeof later;
  EXPECT_EQ(alibi_attention(&q, &k, &v, &later.known, &out, nullptr), ALIBI_OK);
  later.added = 1;
  expect_refused(alibi_attention(&q, &k, &v, &later.known, &out, nullptr), "does not know");
}

/// A caller that was compiled with fewer fields: what stands behind them in its memory is not looked at.
TEST_F(CInterface, TakesTheOptionsOfAnEarlierVersion) {
  const float slopes[] = {0.5f, 0.25f};
  options = alibi_attention_options_default();
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = 2;
  ASSERT_EQ(forward(), ALIBI_OK);
  const std::vector<float> expected = out_data;
  const size_t fields[] = {
      offsetof(alibi_attention_options, alibi_slopes_after), offsetof(alibi_attention_options, buckets),
      offsetof(alibi_attention_options, query_offset),       offsetof(alibi_attention_options, sliding_window),
      offsetof(alibi_attention_options, dropout_seed),       offsetof(alibi_attention_options, dropout_p)};
  for (const size_t size : fields) {
    std::vector<unsigned char> earlier(size);
    std::memcpy(earlier.data(), &options, size);
    std::memcpy(earlier.data(), &size, sizeof size);
    alibi_attention_options* const made = static_cast<alibi_attention_options*>(std::malloc(size));
    std::memcpy(static_cast<void*>(made), earlier.data(), size);  // nothing behind it may be read
    std::fill(out_data.begin(), out_data.end(), 0.0f);
    EXPECT_EQ(alibi_attention(&q, &k, &v, made, &out, nullptr), ALIBI_OK) << alibi_last_error();
    EXPECT_EQ(out_data, expected) << size;
    std::free(made);
  }
}

/// Each option alone changes what the C++ call with the same option gives, and the C call gives the same.
TEST_F(CInterface, EveryOptionReachesTheKernel) {
  constexpr int64_t length = 200;
  std::vector<float> data[3], found(length * 8);
  for (size_t i = 0; i < 3; ++i) data[i] = random_tensor({length * 8}, i).to_floats();
  const auto tensor = [](std::vector<float>& values) { return Tensor::view(values.data(), {1, length, 2, 4}); };
  const alibi_tensor c_q = view(data[0], length), c_k = view(data[1], length), c_v = view(data[2], length);
  const alibi_tensor c_out = view(found, length);
  const float slopes[] = {0.5f, 0.25f}, others[] = {0.125f, 1.0f}, steep[] = {1, 1};
  const float of_sequences[] = {0.5f, 0.25f, 0.1f, 2};
  const std::vector<float> table = random_tensor({8, 2}, 9).to_floats();
  const std::vector<int32_t> offsets = {0, 30, 200};
  std::vector<float> gates(length * 2, -0.01f);
  gates[141] = -std::numeric_limits<float>::infinity();
  using C = alibi_attention_options;
  const auto set_slopes = [&](C& c, AttentionOptions& o, const float* values) {
    c.alibi_slopes = values, c.alibi_slopes_count = 2, o.alibi_slopes = {values, values + 2};
  };
  const auto set_buckets = [&](C& c, AttentionOptions& o) {
    c.buckets = table.data(), c.num_buckets = 8;
    o.buckets = BucketedBias{Tensor::from(table, {8, 2}), 128};
  };
  const std::pair<const char*, std::function<void(C&, AttentionOptions&)>> changes[] = {
      {"none", [](C&, AttentionOptions&) {}},
      {"slopes", [&](C& c, AttentionOptions& o) { set_slopes(c, o, slopes); }},
      {"bidirectional", [](C& c, AttentionOptions& o) { c.bidirectional = 1, o.causal = false; }},
      {"slopes_after",
       [&](C& c, AttentionOptions& o) {
         set_slopes(c, o, slopes);
         c.bidirectional = 1, o.causal = false;
         c.alibi_slopes_after = others, c.alibi_slopes_after_count = 2, o.alibi_slopes_after = {others, others + 2};
       }},
      {"buckets", [&](C& c, AttentionOptions& o) { set_buckets(c, o); }},
      {"max_distance",
       [&](C& c, AttentionOptions& o) { set_buckets(c, o), c.max_distance = o.buckets->max_distance = 9; }},
      {"query_offset", [](C& c, AttentionOptions& o) { c.query_offset = -7, o.query_offset = -7; }},
      {"window", [](C& c, AttentionOptions& o) { c.sliding_window = o.sliding_window = 5; }},
      {"window_after",
       [](C& c, AttentionOptions& o) {
         c.bidirectional = 1, o.causal = false, c.sliding_window_after = o.sliding_window_after = 9;
       }},
      {"sinks",
       [&](C& c, AttentionOptions& o) {
         c.sinks = others, c.sinks_count = 2, o.sinks = {others, others + 2};
       }},
      {"log_decay",
       [&](C& c, AttentionOptions& o) {
         c.log_decay = gates.data(), c.log_decay_count = gates.size(),
         o.log_decay = Tensor::from(gates, {1, length, 2});
       }},
      {"softcap", [](C& c, AttentionOptions& o) { c.softcap = o.softcap = 0.5f; }},
      {"slopes of each sequence",
       [&](C& c, AttentionOptions& o) {
         c.cu_seqlens_q = c.cu_seqlens_k = offsets.data(), c.cu_seqlens_q_count = c.cu_seqlens_k_count = 3;
         o.cu_seqlens_q = o.cu_seqlens_k = offsets;
         c.alibi_slopes = of_sequences, c.alibi_slopes_count = 4;
         o.alibi_slopes = {of_sequences, of_sequences + 4};
       }},
      {"cu_seqlens",
       [&](C& c, AttentionOptions& o) {
         c.cu_seqlens_q = c.cu_seqlens_k = offsets.data(), c.cu_seqlens_q_count = c.cu_seqlens_k_count = 3;
         o.cu_seqlens_q = o.cu_seqlens_k = offsets;
       }},
      {"dropout", [](C& c, AttentionOptions& o) { c.dropout_p = o.dropout_p = 0.5f; }},
      {"dropout_seed",
       [](C& c, AttentionOptions& o) { c.dropout_p = o.dropout_p = 0.5f, c.dropout_seed = o.dropout_seed = 3; }},
      {"scale", [](C& c, AttentionOptions& o) { c.softmax_scale = o.softmax_scale = -2; }},
      {"tolerance", [&](C& c, AttentionOptions& o) { set_slopes(c, o, steep), c.tolerance = o.tolerance = 0.25f; }},
  };
  std::vector<std::vector<float>> outputs;
  for (const auto& [name, change] : changes) {
    alibi_attention_options c = alibi_attention_options_default();
    AttentionOptions o;
    change(c, o);
    Tensor expected({1, length, 2, 4});
    attention(tensor(data[0]), tensor(data[1]), tensor(data[2]), o, expected);
    ASSERT_EQ(alibi_attention(&c_q, &c_k, &c_v, &c, &c_out, nullptr), ALIBI_OK) << name << alibi_last_error();
    EXPECT_EQ(found, expected.to_floats()) << name;
    for (const auto& other : outputs) EXPECT_NE(found, other) << name << " changes nothing";
    outputs.push_back(found);
  }
}

TEST_F(CInterface, KeysInPages) {
  constexpr int64_t page_rows = 8, heads = 2, dim = 4;
  std::vector<float> data[5];  // q, k_cache, v_cache, new k, new v
  const int64_t rows[5] = {2 * 3, 5 * page_rows, 5 * page_rows, 2 * 2, 2 * 2};
  for (size_t i = 0; i < 5; ++i) data[i] = random_tensor({rows[i] * heads * dim}, i).to_floats();
  const auto tensor = [&](size_t i, int64_t first) {
    return alibi_tensor{data[i].data(), ALIBI_FLOAT32, {first, rows[i] / first, heads, dim}, {}};
  };
  const alibi_tensor c_q = tensor(0, 2), c_k = tensor(1, 5), c_v = tensor(2, 5), new_k = tensor(3, 2),
                     new_v = tensor(4, 2);
  std::vector<float> found(data[0].size());
  const alibi_tensor c_out = {found.data(), ALIBI_FLOAT32, {2, 3, heads, dim}, {}};
  const int32_t table[] = {4, 1, 0, 3}, lengths[] = {9, 3}, used[] = {11, 5}, padding[] = {2, 0};
  const std::vector<float> before = data[1];
  ASSERT_EQ(alibi_append_keys(&new_k, &new_v, lengths, 2, table, 2, &c_k, &c_v), ALIBI_OK) << alibi_last_error();
  EXPECT_TRUE(std::equal(data[3].begin(), data[3].begin() + 2 * heads * dim, data[1].begin() + (8 + 1) * heads * dim))
      << "page 1 has the rows 8 to 15 of the first entry";
  EXPECT_NE(before, data[1]);
  options = alibi_attention_options_default();
  options.block_table = table;
  options.block_table_pages = 2;
  options.seqused_k = used;
  options.leftpad_k = padding;
  options.seqused_k_count = options.leftpad_k_count = 2;
  ASSERT_EQ(alibi_attention(&c_q, &c_k, &c_v, &options, &c_out, nullptr), ALIBI_OK) << alibi_last_error();
  AttentionOptions o;
  o.block_table = Tensor::from(std::span<const int32_t>(table), {2, 2});
  o.seqused_k = {11, 5};
  o.leftpad_k = {2, 0};
  const auto view = [&](size_t i, int64_t first) {
    return Tensor::view(data[i].data(), {first, rows[i] / first, heads, dim});
  };
  EXPECT_EQ(found, attention(view(0, 2), view(1, 5), view(2, 5), o).to_floats());
  std::vector<float> gates(static_cast<size_t>(5 * page_rows * heads));
  for (size_t i = 0; i < gates.size(); ++i) gates[i] = -0.01f * static_cast<float>(i % 7);
  options.log_decay = gates.data();
  options.log_decay_count = gates.size();
  ASSERT_EQ(alibi_attention(&c_q, &c_k, &c_v, &options, &c_out, nullptr), ALIBI_OK) << alibi_last_error();
  o.log_decay = Tensor::view(gates.data(), {5, page_rows, heads});
  EXPECT_EQ(found, attention(view(0, 2), view(1, 5), view(2, 5), o).to_floats());
  options.log_decay_count -= heads;
  expect_refused(alibi_attention(&c_q, &c_k, &c_v, &options, &c_out, nullptr),
                 "log_decay_count is 78, expected pages * page rows * heads, 80");
  options.block_table_pages = -1;
  expect_refused(alibi_attention(&c_q, &c_k, &c_v, &options, &c_out, nullptr), "block_table_pages is -1");
  expect_refused(alibi_append_keys(&new_k, &new_v, used, 2, table, 1, &c_k, &c_v), "block_table");
  expect_refused(alibi_append_keys(&new_k, &new_v, nullptr, 2, table, 1, &c_k, &c_v), "cache_seqlens is null");
}

TEST_F(CInterface, BackwardNeedsItsState) {
  std::vector<float> dq_data(24), dk_data(40), dv_data(40), extra(64);
  const alibi_tensor dq = view(dq_data, 3), dk = view(dk_data, 5), dv = view(dv_data, 5);
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, nullptr, nullptr, &dq, &dk, &dv, nullptr, nullptr,
                                          nullptr, nullptr),
                 "[alibi_attention_backward] state is null");
  alibi_attention_state* state = nullptr;
  ASSERT_EQ(alibi_attention_state_create(&state), ALIBI_OK);
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dq, &dk, &dv, nullptr, nullptr,
                                          nullptr, nullptr),
                 "state");
  ASSERT_EQ(alibi_attention(&q, &k, &v, nullptr, &out, state), ALIBI_OK);
  EXPECT_EQ(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dq, &dk, &dv, nullptr, nullptr, nullptr,
                                     nullptr),
            ALIBI_OK);
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dq, &dk, &dv, extra.data(), nullptr,
                                          nullptr, nullptr),
                 "dbuckets is given");
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dq, &dk, &dv, nullptr, extra.data(),
                                          nullptr, nullptr),
                 "dslopes is given");
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dq, &dk, &dv, nullptr, nullptr,
                                          extra.data(), nullptr),
                 "dsinks is given");
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dq, &dk, &dv, nullptr, nullptr,
                                          nullptr, extra.data()),
                 "dlog_decay is given");
  options.log_decay = extra.data();
  options.log_decay_count = 9;
  expect_refused(forward(), "log_decay_count is 9");
  options.log_decay_count = 12;
  expect_refused(forward(), "log_decay has shape [1, 6, 2]");
  expect_refused(alibi_attention_backward(&out, &q, &k, &v, &out, state, nullptr, &dk, &dk, &dv, nullptr, nullptr,
                                          nullptr, nullptr),
                 "dq has shape");
  int32_t blocks = 0;
  expect_refused(alibi_attention_state_restore(state, &q, extra.data(), extra.data(), &blocks, SIZE_MAX),
                 "words is 18446744073709551615, expected alibi_attention_state_words()");
  alibi_attention_state_destroy(state);
  alibi_attention_state_destroy(nullptr);
}

TEST_F(CInterface, CountsTheBlocksThatWereVisited) {
  std::vector<float> long_data(1000 * 8, 0.5f), long_out(1000 * 8);
  const alibi_tensor in = view(long_data, 1000), to = view(long_out, 1000);
  const float slopes[] = {1, 1};
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = 2;
  alibi_attention_state* state = nullptr;
  ASSERT_EQ(alibi_attention_state_create(&state), ALIBI_OK);
  const auto blocks = [&](float tolerance) {
    options.tolerance = tolerance;
    EXPECT_EQ(alibi_attention(&in, &in, &in, &options, &to, state), ALIBI_OK);
    std::pair<int64_t, int64_t> visited_of_total;
    EXPECT_EQ(alibi_attention_state_blocks(state, &visited_of_total.first, &visited_of_total.second), ALIBI_OK);
    return visited_of_total;
  };
  const auto all = blocks(0), some = blocks(0.01f);
  EXPECT_EQ(all.first, all.second);
  EXPECT_EQ(some.second, all.second);
  EXPECT_TRUE(some.first > 0 && some.first < some.second / 2) << some.first << " of " << some.second;
  alibi_attention_state_destroy(state);
}

TEST_F(CInterface, BucketsReachTheKernel) {
  // A table that is very negative beyond distance 0 leaves each row its own value.
  std::vector<float> table(8, -1000.0f), dtable(8, 0.0f);
  table[0] = table[1] = 0;
  for (size_t i = 0; i < v_data.size(); ++i) v_data[i] = static_cast<float>(i);
  options.buckets = table.data();
  options.num_buckets = 4;
  options.max_distance = 16;
  options.query_offset = 0;
  ASSERT_EQ(forward(), ALIBI_OK);
  for (size_t i = 0; i < out_data.size(); ++i) EXPECT_EQ(out_data[i], v_data[i]);
}

TEST_F(CInterface, MergesHalves) {
  std::vector<float> a(24), b(24), lse_a(6), lse_b(6), lse(6);
  alibi_tensor part_a = view(a, 3), part_b = view(b, 3), near = k, far = k;
  for (size_t i = 0; i < k_data.size(); ++i) k_data[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < v_data.size(); ++i) v_data[i] = std::cos(static_cast<float>(i));
  const float slopes[] = {0.5f, 0.01f};
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = 2;
  options.query_offset = 2;
  alibi_attention_state* state = nullptr;
  ASSERT_EQ(alibi_attention_state_create(&state), ALIBI_OK);
  ASSERT_EQ(forward(), ALIBI_OK);
  alibi_tensor near_v = v, far_v = v;
  far.shape[1] = far_v.shape[1] = 3;
  near.shape[1] = near_v.shape[1] = 2;
  near.data = k_data.data() + 24;
  near_v.data = v_data.data() + 24;
  ASSERT_EQ(alibi_attention(&q, &far, &far_v, &options, &part_a, state), ALIBI_OK);
  ASSERT_EQ(alibi_attention_state_lse(state, lse_a.data(), 6), ALIBI_OK);
  options.query_offset = 2 - 3;
  ASSERT_EQ(alibi_attention(&q, &near, &near_v, &options, &part_b, state), ALIBI_OK);
  ASSERT_EQ(alibi_attention_state_lse(state, lse_b.data(), 6), ALIBI_OK);
  ASSERT_EQ(alibi_attention_merge(&part_a, lse_a.data(), &part_b, lse_b.data(), &part_a, lse.data()), ALIBI_OK);
  EXPECT_TRUE(max_abs_diff(a, out_data) <= 1e-6);
  expect_refused(alibi_attention_merge(&part_a, nullptr, &part_b, lse_b.data(), &part_a, lse.data()), "lse_a is null");
  expect_refused(alibi_attention_merge(&part_a, lse_a.data(), &k, lse_b.data(), &part_a, lse.data()), "out_b");
  alibi_attention_state_destroy(state);
}

TEST_F(CInterface, TheCacheChecksItsArguments) {
  alibi_kv_cache* cache = nullptr;
  expect_refused(alibi_kv_cache_create(1, 2, 4, ALIBI_FLOAT32, nullptr), "cache is null");
  expect_refused(alibi_kv_cache_create(1, 2, 4, 5, &cache), "dtype is 5");
  expect_refused(alibi_kv_cache_create(1, 0, 4, ALIBI_FLOAT32, &cache), "kv_heads is 0");
  expect_refused(alibi_kv_cache_append(nullptr, &k, &v), "cache is null");
  expect_refused(alibi_attention_decode(&q, nullptr, nullptr, &out, nullptr), "cache is null");
  expect_refused(alibi_kv_cache_truncate(nullptr, 0), "cache is null");
  EXPECT_EQ(alibi_kv_cache_length(nullptr), -1);
  EXPECT_EQ(cache, nullptr);
  ASSERT_EQ(alibi_kv_cache_create(1, 2, 4, ALIBI_BFLOAT16, &cache), ALIBI_OK);
  expect_refused(alibi_kv_cache_append(cache, &k, nullptr), "[alibi_kv_cache_append] v is null");
  const float gates[5 * 2] = {};  // of 0: as without gates
  expect_refused(alibi_kv_cache_append_gated(cache, &k, &v, nullptr, 0), "log_decay is null");
  expect_refused(alibi_kv_cache_append_gated(cache, &k, &v, gates, 1), "log_decay_count is 1, expected");
  ASSERT_EQ(alibi_kv_cache_append(cache, &k, &v), ALIBI_OK);
  EXPECT_EQ(alibi_kv_cache_length(cache), 5);
  EXPECT_EQ(alibi_attention_decode(&q, cache, nullptr, &out, nullptr), ALIBI_OK);
  for (const float x : out_data) EXPECT_TRUE(std::abs(x - 1) <= 1e-6f);
  options.dropout_p = 0.5f;
  expect_refused(alibi_attention_decode(&q, cache, &options, &out, nullptr), "dropout_p");
  alibi_kv_cache_destroy(cache);
  ASSERT_EQ(alibi_kv_cache_create(1, 2, 4, ALIBI_FLOAT32, &cache), ALIBI_OK);
  ASSERT_EQ(alibi_kv_cache_append_gated(cache, &k, &v, gates, 10), ALIBI_OK) << alibi_last_error();
  EXPECT_EQ(alibi_attention_decode(&q, cache, nullptr, &out, nullptr), ALIBI_OK);
  for (const float x : out_data) EXPECT_TRUE(std::abs(x - 1) <= 1e-6f);
  alibi_kv_cache_destroy(cache);
  alibi_kv_cache_destroy(nullptr);
}

TEST_F(CInterface, MessagesBelongToTheirThread) {
  expect_refused(alibi_attention(&q, nullptr, &v, nullptr, &out, nullptr), "k is null");
  std::string other = "unset";
  std::thread([&] { other = alibi_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_EQ(forward(), ALIBI_OK);
  EXPECT_NE(std::string(alibi_last_error()).find("k is null"), std::string::npos);
}

TEST_F(CInterface, OtherArguments) {
  expect_refused(alibi_set_threads(0), "[threads]");
  expect_refused(alibi_slopes(0, 8, q_data.data()), "slopes");
  expect_refused(alibi_slopes(2, 8, nullptr), "slopes is null");
  expect_refused(alibi_attention_state_create(nullptr), "state is null");
  expect_refused(alibi_attention_state_lse(nullptr, nullptr, 0), "state is null");
  expect_refused(alibi_attention_state_blocks(nullptr, nullptr, nullptr), "state is null");
}

}  // namespace
}  // namespace alibi::test
