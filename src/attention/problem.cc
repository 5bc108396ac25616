#include "attention/problem.h"

#include <cmath>
#include <string>
#include <utility>

#include "attention/kernel_state.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

constexpr int64_t max_rows = (int64_t{1} << 31) - 4096;  // distances within a tile must fit 32 bits

void check_tensor(const char* operation, const char* name, const Tensor& tensor, DType dtype, Device device) {
  check_usage(tensor.defined() && tensor.axes() == 4, "[{}] {} has shape {}, expected [batch, length, heads, head_dim]",
              operation, name, tensor.shape());
  check_usage(tensor.dtype() == dtype, "[{}] {} is {}, expected {} like q", operation, name, name_of(tensor.dtype()),
              name_of(dtype));
  check_usage(tensor.size(3) <= 1 || tensor.stride(3) == 1, "[{}] {} has strides {}, expected a unit inner stride",
              operation, name, tensor.strides());
  check_usage(tensor.device() == device, "[{}] {} is on '{}', but q is on '{}'; copy one of them with to(Device)",
              operation, name, name_of(tensor.device()), name_of(device));
}

void check_shape(const char* operation, const char* name, const Tensor& tensor, const Shape& shape, const char* like) {
  check_usage(tensor.shape() == shape, "[{}] {} has shape {}, expected {} like {}", operation, name, tensor.shape(),
              shape, like);
}

void check_offsets(const char* operation, const char* name, const std::vector<int32_t>& offsets, int64_t rows) {
  check_usage(offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == rows,
              "[{}] {} has {} offsets, expected at least 2, from 0 to {} (all rows)", operation, name, offsets.size(),
              rows);
  for (size_t i = 1; i < offsets.size(); ++i) {
    check_usage(offsets[i] >= offsets[i - 1], "[{}] {}[{}] is {}, expected at least the offset before it, {}",
                operation, name, i, offsets[i], offsets[i - 1]);
  }
}

/// The entry of an option with one number for each sequence, or `absent`.
int64_t entry_of(const std::vector<int32_t>& of_sequences, int64_t sequence, int64_t absent) {
  return of_sequences.empty() ? absent : of_sequences[static_cast<size_t>(sequence)];
}

void check_counts(const char* operation, const char* name, const std::vector<int32_t>& counts, int64_t sequences) {
  check_usage(counts.empty() || std::ssize(counts) == sequences,
              "[{}] {} has {} values, expected {}, one for each batch entry or sequence of cu_seqlens_q", operation,
              name, counts.size(), sequences);
}

/// Adds a sequence that uses `used` rows of keys from key_begin on, less those before its first key.
void add_sequence(const char* operation, const AttentionOptions& options, Sequence sequence, int64_t used,
                  Problem& problem) {
  const int64_t padding = entry_of(options.leftpad_k, sequence.number, 0);
  check_usage(padding >= 0 && padding <= used, "[{}] leftpad_k[{}] is {}, expected 0 to {}, the rows of the keys",
              operation, sequence.number, padding, used);
  sequence.key_begin += padding;
  sequence.keys = used - padding;
  sequence.first_query_drawn = sequence.query_begin;
  sequence.first_key_drawn = sequence.key_begin;
  sequence.query_offset = options.query_offset.value_or(sequence.keys - sequence.queries);
  if (problem.block_table.defined()) {
    const int64_t pages = problem.block_table.size(1);
    sequence.pages = problem.block_table.data<int32_t>() + sequence.number * pages;
    check_pages(operation, sequence.pages, pages, used, problem.page_rows, problem.k_pages, sequence.number);
  }
  problem.sequences.push_back(sequence);
}

void set_sequences(const char* operation, const AttentionOptions& options, Problem& problem) {
  const auto& q_offsets = options.cu_seqlens_q;
  const auto& k_offsets = options.cu_seqlens_k;
  const bool packed = !q_offsets.empty() || !k_offsets.empty(), paged = problem.block_table.defined();
  const int64_t count = packed ? std::max<int64_t>(std::ssize(q_offsets) - 1, 0) : problem.batch;
  check_counts(operation, "seqused_k", options.seqused_k, count);
  check_counts(operation, "leftpad_k", options.leftpad_k, count);
  check_usage(!paged || problem.block_table.size(0) == count,
              "[{}] block_table has {} rows, expected {}, one for each batch entry or sequence of cu_seqlens_q",
              operation, paged ? problem.block_table.size(0) : 0, count);
  if (!packed) {
    check_usage(!paged || !options.seqused_k.empty() || count == 0,
                "[{}] block_table is set without seqused_k, expected the number of keys of each batch entry",
                operation);
    for (int64_t b = 0; b < problem.batch; ++b) {
      const int64_t used = entry_of(options.seqused_k, b, problem.keys);
      check_usage(used >= 0 && (paged || used <= problem.keys), "[{}] seqused_k[{}] is {}, expected 0 to {}", operation,
                  b, used, problem.keys);
      add_sequence(operation, options, {.number = b, .batch = b, .queries = problem.queries}, used, problem);
    }
    return;
  }
  check_usage(problem.batch == 1, "[{}] batch is {}, expected 1 with packed sequences", operation, problem.batch);
  check_offsets(operation, "cu_seqlens_q", q_offsets, problem.queries);
  check_offsets(operation, "cu_seqlens_k", k_offsets, paged && !k_offsets.empty() ? k_offsets.back() : problem.keys);
  check_usage(q_offsets.size() == k_offsets.size(),
              "[{}] cu_seqlens_q has {} offsets but cu_seqlens_k has {}, expected equal numbers", operation,
              q_offsets.size(), k_offsets.size());
  for (size_t i = 1; i < q_offsets.size(); ++i) {
    const int64_t rows = int64_t{k_offsets[i]} - k_offsets[i - 1];
    Sequence sequence{.number = static_cast<int64_t>(i) - 1,
                      .query_begin = q_offsets[i - 1],
                      .queries = q_offsets[i] - q_offsets[i - 1],
                      .key_begin = paged ? 0 : k_offsets[i - 1]};
    const int64_t used = entry_of(options.seqused_k, sequence.number, rows);
    check_usage(used >= 0 && used <= rows, "[{}] seqused_k[{}] is {}, expected 0 to {}, the rows of the sequence",
                operation, i - 1, used, rows);
    add_sequence(operation, options, sequence, used, problem);
  }
}

void set_options(const char* operation, const AttentionOptions& options, Problem& problem) {
  check_usage(std::isfinite(options.softmax_scale), "[{}] softmax_scale is {}, expected a finite number", operation,
              options.softmax_scale);
  problem.scale =
      options.softmax_scale != 0 ? options.softmax_scale : 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
  constexpr float min_cap = 0x1p-20f, max_cap = 0x1p20f;
  check_usage(options.softcap == 0 || (options.softcap >= min_cap && options.softcap <= max_cap &&
                                       std::isfinite(problem.scale / options.softcap)),
              "[{}] softcap is {}, expected 0 (no cap) or 2^-20 to 2^20", operation, options.softcap);
  problem.softcap = options.softcap;
  constexpr int64_t max_offset = int64_t{1} << 40;
  const int64_t offset = options.query_offset.value_or(0);
  check_usage(-max_offset <= offset && offset <= max_offset, "[{}] query_offset is {}, expected at most 2^40",
              operation, offset);
  problem.causal = options.causal;
  check_usage(options.sliding_window >= 0, "[{}] sliding_window is {}, expected >= 0", operation,
              options.sliding_window);
  check_usage(options.sliding_window_after >= -1, "[{}] sliding_window_after is {}, expected >= -1", operation,
              options.sliding_window_after);
  check_usage(!options.causal || options.sliding_window_after == 0,
              "[{}] sliding_window_after is {}, but causal attention sees no keys after the query; expected 0",
              operation, options.sliding_window_after);
  const auto limit = [](int64_t window) { return window > 0 ? std::min(window, unbounded) : unbounded; };
  problem.window_before = limit(options.sliding_window);
  problem.window_after =
      options.sliding_window_after == 0 ? problem.window_before : limit(options.sliding_window_after);
  check_usage(options.dropout_p >= 0 && options.dropout_p < 1, "[{}] dropout_p is {}, expected 0 <= p < 1", operation,
              options.dropout_p);
  problem.dropout = options.dropout_p;
  problem.dropout_seed = options.dropout_seed;
  check_usage(options.tolerance >= 0 && options.tolerance < 1, "[{}] tolerance is {}, expected 0 <= t < 1", operation,
              options.tolerance);
  problem.tolerance = options.tolerance;
  check_usage(options.sinks.empty() || std::ssize(options.sinks) == problem.heads,
              "[{}] sinks has {} numbers, expected {}, one for each head", operation, options.sinks.size(),
              problem.heads);
  for (const float sink : options.sinks) {
    check_usage(sink < std::numeric_limits<float>::infinity(),
                "[{}] sinks has {}, expected finite numbers, or -infinity for a head without a sink", operation, sink);
  }
  problem.sinks = options.sinks;
}

/// Gates that lie in pages as those of keys in one piece, [sequences, keys, heads].
Tensor gates_in_one_piece(const Problem& problem, const Tensor& gates) {
  int64_t most = 0;
  for (const Sequence& sequence : problem.sequences) most = std::max(most, sequence.keys);
  Tensor result({std::ssize(problem.sequences), most, problem.heads});
  core::parallel_for(std::ssize(problem.sequences), [&](int64_t i) {
    const Sequence& sequence = problem.sequences[static_cast<size_t>(i)];
    float* to = result.data<float>() + i * most * problem.heads;
    for (int64_t key = 0; key < sequence.keys; ++key) {
      const KeyRow at = problem.key_row(sequence, key);
      const float* const from = gates.data<float>() + at.batch * gates.stride(0) + at.row * gates.stride(1);
      for (int64_t head = 0; head < problem.heads; ++head) *to++ = from[head * gates.stride(2)];
    }
  });
  return result;
}

void set_decays(const char* operation, const AttentionOptions& options, Problem& problem) {
  if (!options.log_decay) return;
  const Tensor& gates = *options.log_decay;
  check_usage(options.causal, "[{}] log_decay is set, but attention is not causal; expected causal", operation);
  const bool paged = problem.block_table.defined();
  const Shape shape = {paged ? problem.k_pages : problem.batch, problem.keys, problem.heads};
  check_usage(
      gates.defined() && gates.shape() == shape && gates.dtype() == DType::float32 && gates.device() == problem.device,
      "[{}] log_decay has shape {}, expected float32 {} (the rows of k, and the heads of q) on '{}'", operation,
      gates.shape(), shape, name_of(problem.device));
  if (problem.device != Device::cpu) {
    problem.log_decay = gates;
    return;
  }
  std::vector<Decays::KeyRows> rows;
  for (const Sequence& s : problem.sequences) {
    rows.push_back(paged ? Decays::KeyRows{s.number, 0, s.keys} : Decays::KeyRows{s.batch, s.key_begin, s.keys});
  }
  problem.decays = std::make_shared<const Decays>(operation, paged ? gates_in_one_piece(problem, gates) : gates, rows);
}

}  // namespace

Problem make_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const AttentionOptions& options) {
  check_usage(q.dtype() != DType::int32, "[{}] q is {}, expected float32, bfloat16 or float16", operation,
              name_of(q.dtype()));
  for (const auto& [name, tensor] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}, {"out", &out}}) {
    check_tensor(operation, name, *tensor, q.dtype(), q.device());
  }
  Problem problem;
  problem.dtype = q.dtype();
  problem.device = q.device();
  problem.batch = q.size(0);
  problem.queries = q.size(1);
  problem.heads = q.size(2);
  problem.head_dim = q.size(3);
  problem.keys = k.size(1);
  problem.kv_heads = k.size(2);
  if (options.block_table) {
    problem.block_table = checked_block_table(operation, *options.block_table);
    problem.page_rows = k.size(1);
    problem.k_pages = k.size(0);
    check_usage(problem.page_rows > 0, "[{}] k has shape {}, expected pages with rows", operation, k.shape());
  } else {
    check_usage(k.size(0) == problem.batch, "[{}] k has batch {}, expected {}, the batch of q", operation, k.size(0),
                problem.batch);
  }
  check_usage(k.size(3) == problem.head_dim, "[{}] k has head_dim {}, expected {}, the head_dim of q", operation,
              k.size(3), problem.head_dim);
  check_usage(problem.heads > 0 && problem.head_dim > 0, "[{}] q has shape {}, expected heads and head_dim above 0",
              operation, q.shape());
  check_usage(problem.kv_heads > 0 && problem.heads % problem.kv_heads == 0,
              "[{}] k has {} heads and q has {}, expected the heads of q to be a multiple of the heads of k", operation,
              problem.kv_heads, problem.heads);
  check_usage(problem.queries <= max_rows && problem.keys <= max_rows,
              "[{}] there are {} queries and {} keys, expected at most {} of each", operation, problem.queries,
              problem.keys, max_rows);
  check_shape(operation, "v", v, k.shape(), "k");
  check_shape(operation, "out", out, q.shape(), "q");
  check_writable(operation, "out", out);
  problem.q = view_of(q);
  problem.k = view_of(k);
  problem.v = view_of(v);
  problem.out = view_of(out);
  set_options(operation, options, problem);
  set_sequences(operation, options, problem);
  problem.biases = biases_of(operation, options, std::ssize(problem.sequences), problem.heads);
  set_decays(operation, options, problem);
  return problem;
}

Tensor checked_block_table(const char* operation, const Tensor& table) {
  check_usage(
      table.defined() && table.axes() == 2 && table.dtype() == DType::int32 && table.contiguous() &&
          table.device() == Device::cpu,
      "[{}] block_table has shape {}, expected contiguous int32 [sequences, pages of a sequence] in the CPU's memory",
      operation, table.shape());
  return table;
}

void check_pages(const char* operation, const int32_t* pages, int64_t count, int64_t rows, int64_t page_rows,
                 int64_t all_pages, int64_t sequence) {
  check_usage(rows <= count * page_rows,
              "[{}] block_table has {} pages of {} rows for sequence {}, which has {} rows; expected more pages",
              operation, count, page_rows, sequence, rows);
  for (int64_t i = 0; i * page_rows < rows; ++i) {
    check_usage(pages[i] >= 0 && pages[i] < all_pages, "[{}] block_table[{}][{}] is {}, expected 0 to {}, a page of k",
                operation, sequence, i, pages[i], all_pages - 1);
  }
}

BiasSums add_gradients(const char* operation, Problem& problem, const Tensor& dout, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const AttentionState& state, Tensor& dq, Tensor& dk,
                       Tensor& dv, const AttentionBiasGradients& bias_gradients) {
  check_usage(problem.page_rows == 0, "[{}] block_table is set, but keys in pages have no gradient", operation);
  const Tensor* const likes[] = {&q, &q, &k, &v};
  const char* const like_names[] = {"q", "q", "k", "v"};
  size_t i = 0;
  for (const auto& [name, tensor] :
       {std::pair<const char*, const Tensor*>{"dout", &dout}, {"dq", &dq}, {"dk", &dk}, {"dv", &dv}}) {
    check_tensor(operation, name, *tensor, problem.dtype, problem.device);
    check_shape(operation, name, *tensor, likes[i]->shape(), like_names[i]);
    ++i;
  }
  for (const auto& [name, output] : {std::pair{"dq", &dq}, {"dk", &dk}, {"dv", &dv}}) {
    check_writable(operation, name, *output);
  }
  problem.dout = view_of(dout);
  problem.dq = view_of(dq);
  problem.dk = view_of(dk);
  problem.dv = view_of(dv);
  const Shape lse_shape = {problem.batch, problem.heads, problem.queries};
  const Tensor& near = core::state_of(state.kernel).lse;
  for (const Tensor& lse : {state.lse, near}) {
    check_usage(
        lse.defined() && lse.shape() == lse_shape && lse.dtype() == DType::float32 && lse.contiguous() &&
            lse.device() == problem.device,
        "[{}] state.lse has shape {}, expected {}; the state must come from the forward call with the same inputs and "
        "options",
        operation, lse.shape(), lse_shape);
  }
  // With `any_shape` only the number of elements counts.
  const auto bias_gradient = [&](const char* name, const Tensor* tensor, bool has_input, const char* missing,
                                 const Shape& shape, bool any_shape = false) -> float* {
    if (tensor == nullptr) return nullptr;
    check_usage(has_input, "[{}] {} is given, but {}; set both or neither", operation, name, missing);
    const bool fits = any_shape ? tensor->elements() == shape.front() : tensor->shape() == shape;
    check_usage(tensor->defined() && fits && tensor->dtype() == DType::float32 && tensor->contiguous() &&
                    tensor->device() == problem.device,
                "[{}] {} has shape {}, expected a contiguous float32 {} on '{}'", operation, name, tensor->shape(),
                shape, name_of(problem.device));
    return static_cast<float*>(tensor->raw());
  };
  const int64_t table_rows = problem.has_table() ? problem.biases->table->rows() : 0;
  const BiasSums sums = {.dtable = bias_gradient("dtable", bias_gradients.dtable, problem.has_table(),
                                                 "options has no table", {table_rows, problem.heads}),
                         .dslopes = bias_gradient("dslopes", bias_gradients.dslopes, !problem.has_table(),
                                                  "alibi_slopes is not", {problem.dslopes_size()}, true),
                         .dsinks = bias_gradient("dsinks", bias_gradients.dsinks, !problem.sinks.empty(),
                                                 "sinks is not", {problem.heads})};
  problem.dlog_decay = bias_gradient("dlog_decay", bias_gradients.dlog_decay, problem.has_gates(), "log_decay is not",
                                     {problem.batch, problem.keys, problem.heads});
  const std::pair<const char*, const Tensor*> outputs[] = {{"dq", &dq},
                                                           {"dk", &dk},
                                                           {"dv", &dv},
                                                           {"dtable", bias_gradients.dtable},
                                                           {"dslopes", bias_gradients.dslopes},
                                                           {"dsinks", bias_gradients.dsinks},
                                                           {"dlog_decay", bias_gradients.dlog_decay}};
  const std::pair<const char*, const Tensor*> inputs[] = {
      {"dout", &dout}, {"q", &q}, {"k", &k}, {"v", &v}, {"out", &out}, {"state.lse", &state.lse}, {"state", &near}};
  for (const auto& [name, output] : outputs) {
    if (output == nullptr) continue;
    for (const auto& [input_name, input] : inputs) check_apart(operation, name, *output, input_name, *input);
    for (const auto& [other_name, other] : outputs) {
      if (other == output) break;
      if (other != nullptr) check_apart(operation, name, *output, other_name, *other);
    }
  }
  return sums;
}

}  // namespace alibi::kernels
