// Every bad argument gives an Error that begins with the operation and names the argument.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "alibi/attention_positions.h"
#include "alibi/error.h"
#include "attention/cases.h"
#include "attention/problem.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// Runs the call and expects an error that holds all of the words.
void expect_error(const std::function<void()>& call, const std::vector<std::string>& words) {
  const std::string message = message_of(call);
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << message << " lacks " << word;
}

struct Call {
  AttentionTensors tensors{AttentionCase{.batch = 2, .queries = 5, .keys = 7, .heads = 4, .kv_heads = 2}};
  AttentionOptions options = {};
};

void expect_forward_error(const std::function<void(Call&)>& change, std::vector<std::string> words) {
  Call call;
  change(call);
  words.emplace_back("[attention] ");
  expect_error([&] { call.tensors.forward(call.options); }, words);
}

TEST(AttentionErrors, ShapesAndTypes) {
  expect_forward_error([](Call& c) { c.tensors.q = Tensor(); }, {"q has shape"});
  expect_forward_error([](Call& c) { c.tensors.q = Tensor({2, 5, 64}); }, {"q has shape [2, 5, 64]"});
  expect_forward_error([](Call& c) { c.tensors.q = Tensor({2, 5, 4, 16}, DType::int32); }, {"q is int32"});
  expect_forward_error([](Call& c) { c.tensors.k = Tensor({2, 7, 3, 16}); }, {"k has 3 heads and q has 4"});
  expect_forward_error([](Call& c) { c.tensors.k = Tensor({1, 7, 2, 16}); }, {"k has batch 1, expected 2"});
  expect_forward_error([](Call& c) { c.tensors.k = Tensor({2, 7, 2, 8}); }, {"k has head_dim 8, expected 16"});
  expect_forward_error([](Call& c) { c.tensors.k = Tensor({2, 7, 2, 16}, DType::bfloat16); }, {"k is bfloat16"});
  expect_forward_error([](Call& c) { c.tensors.v = Tensor({2, 8, 2, 16}); }, {"v has shape"});
  expect_forward_error([](Call& c) { c.tensors.out = Tensor({2, 5, 4, 8}); }, {"out has shape"});
  expect_forward_error([](Call& c) { c.tensors.q = Tensor({2, 5, 0, 16}); }, {"q has shape"});
  expect_forward_error([](Call& c) { c.tensors.k = Tensor({2, 7, 2, 16}, DType::float16); }, {"k is float16"});
}

TEST(AttentionErrors, Strides) {
  expect_forward_error(
      [](Call& c) {
        c.tensors.v = Tensor::view(c.tensors.v.raw(), {2, 7, 2, 16}, DType::float32, {224, 32, 1, 2});
      },
      {"v has strides", "unit inner stride"});
  expect_forward_error(
      [](Call& c) {
        c.tensors.out = Tensor::view(c.tensors.out.raw(), {2, 5, 4, 16}, DType::float32, {0, 64, 16, 1});
      },
      {"out has strides", "overlap"});
}

TEST(AttentionErrors, Options) {
  const auto bad = [](std::function<void(AttentionOptions&)> change, const std::string& name) {
    expect_forward_error([&](Call& c) { change(c.options); }, {name});
  };
  bad([](AttentionOptions& o) { o.alibi_slopes = {1, 2, 3}; }, "alibi_slopes has 3 values");
  bad([](AttentionOptions& o) { o.alibi_slopes = {1, 2, -3, 4}; }, "alibi_slopes[2] is -3");
  bad([](AttentionOptions& o) { o.alibi_slopes = {1, 2, 3e38f, 4}; }, "alibi_slopes[2] is 3e+38, expected 0 to 2^126");
  bad([](AttentionOptions& o) { o.alibi_slopes = {1, 2, 3, std::nanf("")}; }, "alibi_slopes[3]");
  bad([](AttentionOptions& o) { o.alibi_slopes = o.alibi_slopes_after = {1, 2, 3, 4}; }, "alibi_slopes_after");
  bad([](AttentionOptions& o) { o.causal = false, o.alibi_slopes_after = {1, 2, 3, 4}; }, "alibi_slopes_after");
  bad([](AttentionOptions& o) { o.buckets = random_buckets(3, 1); }, "buckets.table has 3 heads");
  bad([](AttentionOptions& o) { o.buckets = random_buckets(4, 1, 7); }, "buckets.table has 7 buckets");
  bad([](AttentionOptions& o) { o.buckets = random_buckets(4, 1, 32, 16); }, "buckets.max_distance");
  bad([](AttentionOptions& o) { o.bias_by_distance = Tensor({9, 3}); }, "bias_by_distance has 3 heads");
  bad([](AttentionOptions& o) { o.bias_by_distance = Tensor({9}); }, "bias_by_distance has shape [9]");
  bad([](AttentionOptions& o) { o.bias_by_distance = Tensor({0, 4}); }, "bias_by_distance has 0 rows");
  bad([](AttentionOptions& o) { o.bias_by_distance = Tensor({9, 4}, DType::bfloat16); }, "bias_by_distance");
  bad(
      [](AttentionOptions& o) {
        o.causal = false, o.bias_by_distance = Tensor({8, 4});
      },
      "bias_by_distance has 8 rows");
  bad([](AttentionOptions& o) { o.softmax_scale = INFINITY; }, "softmax_scale");
  bad([](AttentionOptions& o) { o.sliding_window = -1; }, "sliding_window");
  bad([](AttentionOptions& o) { o.causal = false, o.sliding_window_after = -2; }, "sliding_window_after is -2");
  bad([](AttentionOptions& o) { o.sliding_window_after = 3; }, "sliding_window_after is 3, but causal");
  bad([](AttentionOptions& o) { o.sinks = {1, 2, 3}; }, "sinks has 3 numbers, expected 4, one for each head");
  bad([](AttentionOptions& o) { o.sinks = {1, 2, 3, std::nanf("")}; }, "sinks has nan");
  bad([](AttentionOptions& o) { o.sinks = {1, 2, 3, INFINITY}; }, "sinks has inf");
  bad([](AttentionOptions& o) { o.softcap = -1; }, "softcap is -1");
  bad([](AttentionOptions& o) { o.softcap = std::nanf(""); }, "softcap");
  bad([](AttentionOptions& o) { o.softcap = 1e-9f; }, "softcap");
  bad([](AttentionOptions& o) { o.dropout_p = 1; }, "dropout_p");
  bad([](AttentionOptions& o) { o.dropout_p = std::nanf(""); }, "dropout_p");
  bad([](AttentionOptions& o) { o.tolerance = -0.5f; }, "tolerance");
  bad([](AttentionOptions& o) { o.query_offset = int64_t{1} << 50; }, "query_offset");
  expect_forward_error(
      [](Call& c) {
        c.options.alibi_slopes = slopes(4);
        c.options.buckets = random_buckets(4, 1);
      },
      {"2 of slopes, buckets and bias_by_distance"});
}

TEST(AttentionErrors, PackedSequences) {
  const auto bad = [](std::vector<int32_t> q_offsets, std::vector<int32_t> k_offsets, const std::string& word) {
    AttentionTensors t(AttentionCase{.queries = 5, .keys = 7});
    AttentionOptions options;
    options.cu_seqlens_q = std::move(q_offsets);
    options.cu_seqlens_k = std::move(k_offsets);
    expect_error([&] { t.forward(options); }, {"[attention] ", word});
  };
  bad({0, 5}, {}, "cu_seqlens_k");
  bad({0, 4}, {0, 7}, "cu_seqlens_q");
  bad({1, 5}, {0, 7}, "cu_seqlens_q");
  bad({0, 3, 2, 5}, {0, 1, 2, 7}, "cu_seqlens_q[2]");
  bad({0, 2, 5}, {0, 7}, "cu_seqlens_q has 3 offsets but cu_seqlens_k has 2");
  expect_forward_error(
      [](Call& c) {
        c.options.cu_seqlens_q = {0, 5}, c.options.cu_seqlens_k = {0, 7};
      },
      {"batch is 2"});
}

TEST(AttentionErrors, Backward) {
  const auto bad = [](const std::function<void(Call&)>& change, const std::string& word) {
    Call call;
    call.options.alibi_slopes = slopes(4);
    call.tensors.forward(call.options);
    change(call);
    expect_error([&] { call.tensors.backward(call.options); }, {"[attention_backward] ", word});
  };
  bad([](Call& c) { c.tensors.dout = Tensor({2, 5, 4, 8}); }, "dout has shape");
  bad([](Call& c) { c.tensors.dq = Tensor({2, 5, 4, 16}, DType::bfloat16); }, "dq is bfloat16");
  bad([](Call& c) { c.tensors.dk = Tensor({2, 5, 2, 16}); }, "dk has shape");
  bad([](Call& c) { c.tensors.dv = Tensor(); }, "dv has shape");
  // Elements that share memory: all queries of a head, all heads, two rows that overlap.
  const Tensor memory({2, 7, 4, 16});
  const auto overlapping = [&](Tensor& tensor, Shape strides) {
    tensor = Tensor::view(memory.raw(), tensor.shape(), tensor.dtype(), std::move(strides));
  };
  bad([&](Call& c) { overlapping(c.tensors.dq, {320, 0, 16, 1}); }, "dq has strides [320, 0, 16, 1]");
  bad([&](Call& c) { overlapping(c.tensors.dk, {224, 32, 0, 1}); }, "dk has strides [224, 32, 0, 1]");
  bad([&](Call& c) { overlapping(c.tensors.dv, {224, 31, 16, 1}); }, "its elements overlap");
  bad([](Call& c) { c.tensors.state = {}; }, "state");
  bad([](Call& c) { c.tensors.dq = c.tensors.q; }, "dq shares memory with q");
  bad([](Call& c) { c.tensors.dq = c.tensors.dout; }, "dq shares memory with dout");
  bad([](Call& c) { c.tensors.dv = c.tensors.dk; }, "dv shares memory with dk");
  Call call;
  call.options.alibi_slopes = slopes(4);
  call.tensors.forward(call.options);
  Tensor wrong({3});
  expect_error([&] { call.tensors.backward(call.options, {.dslopes = &wrong}); }, {"dslopes has shape [3]"});
  expect_error([&] { call.tensors.backward(call.options, {.dtable = &wrong}); }, {"dtable"});
}

/// A view with random shape and strides of either sign, of the numbers after `memory`.
Tensor random_view(float* memory, std::mt19937& random) {
  const auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random()) % (high - low + 1); };
  Shape shape, strides;
  int64_t first = draw(0, 30);
  for (int axis = 0; axis < 3; ++axis) {
    shape.push_back(draw(1, 4));
    strides.push_back(draw(-13, 13));
    if (strides.back() < 0) first -= (shape.back() - 1) * strides.back();
  }
  return Tensor::view(memory + first, shape, DType::float32, strides);
}

std::set<const float*> elements_of(const Tensor& tensor) {
  std::set<const float*> elements;
  const auto* const begin = static_cast<const float*>(tensor.raw());
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    for (int64_t j = 0; j < tensor.size(1); ++j) {
      for (int64_t k = 0; k < tensor.size(2); ++k) {
        elements.insert(begin + i * tensor.stride(0) + j * tensor.stride(1) + k * tensor.stride(2));
      }
    }
  }
  return elements;
}

TEST(AttentionErrors, SharedMemoryIsFoundForAllStrides) {
  std::vector<float> memory(400);
  std::mt19937 random(1);
  int shared = 0;
  constexpr int pairs = 20000;
  for (int i = 0; i < pairs; ++i) {
    const Tensor a = random_view(memory.data(), random), b = random_view(memory.data(), random);
    const std::set<const float*> of_a = elements_of(a), of_b = elements_of(b);
    const bool expected =
        std::any_of(of_a.begin(), of_a.end(), [&](const float* element) { return of_b.contains(element); });
    ASSERT_EQ(share_memory(a, b), expected)
        << to_string(a.shape()) << to_string(a.strides()) << to_string(b.shape()) << to_string(b.strides());
    shared += expected ? 1 : 0;
  }
  EXPECT_GT(shared, pairs / 4);
  EXPECT_LT(shared, pairs * 3 / 4);
  const Tensor halves = Tensor::view(memory.data(), {10}, DType::bfloat16);  // 20 bytes
  EXPECT_TRUE(share_memory(halves, Tensor::view(memory.data() + 4, {1})));
  EXPECT_FALSE(share_memory(halves, Tensor::view(memory.data() + 5, {1})));
}

TEST(AttentionErrors, OutputsOverStridedInputs) {
  constexpr int64_t length = 20, heads = 2, head_dim = 16, row = heads * head_dim;
  Tensor buffer = random_tensor({2, length + 1, 4, row}, 1);
  // Part 0 to 3 of the rows from `first` on.
  const auto part = [&](int64_t number, int64_t first) {
    float* const begin = buffer.data<float>() + (first * 4 + number) * row;
    return Tensor::view(begin, {2, length, heads, head_dim}, DType::float32,
                        {(length + 1) * 4 * row, 4 * row, head_dim, 1});
  };
  const Tensor q = part(0, 0), k = part(1, 0), v = part(2, 0);
  const std::vector<float> before = buffer.to_floats();
  for (const auto& [number, name] : {std::pair{0, "q"}, {1, "k"}, {2, "v"}}) {
    Tensor out = part(number, 1);
    const std::string message = std::string("[attention] out shares memory with ") + name;
    expect_error([&] { attention(q, k, v, {}, out); }, {message});
    expect_error([&] { check_attention(q, k, v, {}, out); }, {message});
    AttentionState state;
    Tensor apart = part(3, 0), dq = part(3, 1), dk = Tensor::empty(q.shape()), dv = Tensor::empty(q.shape());
    attention(q, k, v, {}, apart, &state);
    expect_error([&] { attention_backward(apart, q, k, v, apart, state, {}, dq, dk, dv); },
                 {"dq shares memory with dout"});
    expect_error([&] { attention_backward(q, q, k, v, apart, state, {}, out, dk, dv); },
                 {std::string("dq shares memory with ") + (number == 0 ? "dout" : name)});
    apart.fill(0);
  }
  Tensor out = part(3, 0);
  attention(q, k, v, {}, out);  // interleaved with the inputs
  EXPECT_TRUE(same_bits(out.clone(), attention(q.clone(), k.clone(), v.clone())));
  const Tensor points = Tensor::view(buffer.data<float>() + 3 * row, {1, length, 2});
  Tensor over_points = part(3, 0);
  expect_error([&] { attention_positions(q, k, v, {.q = points}, {}, over_points); },
               {"[attention_positions] out shares memory with positions_q"});
}

}  // namespace
}  // namespace alibi::kernels
