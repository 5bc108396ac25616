#include "model/long_text.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "attention/skip/far_keys.h"
#include "core/check.h"
#include "core/temporary_file.h"
#include "model/transformer_state.h"
#include "nn/norm.h"
#include "nn/products.h"

// Dimension letters: N tokens of the text, C d_model, H heads, K key/value heads, D head_dim.

namespace alibi::model {
namespace {

using kernels::FarKeys;
using kernels::Range;

/// The states [N, C] between two layers, float32.
class StoredStates {
 public:
  StoredStates(int64_t rows, int64_t width, bool in_memory) : row_bytes_(width * int64_t{sizeof(float)}) {
    if (in_memory) {
      rows_ = Tensor::empty({rows, width});
    } else {
      file_ = std::make_unique<core::TemporaryFile>(rows * row_bytes_);
    }
  }

  /// The rows from `first` on.
  void read(int64_t first, Tensor& y) const {
    if (!file_) return y.copy_from(rows_.slice(0, first, first + y.size(0)));
    file_->read(y.raw(), y.bytes(), first * row_bytes_);
  }
  void write(int64_t first, const Tensor& x) {
    if (!file_) return rows_.slice(0, first, first + x.size(0)).copy_from(x);
    file_->write(x.raw(), x.bytes(), first * row_bytes_);
  }

 private:
  int64_t row_bytes_;
  Tensor rows_;                                // in memory
  std::unique_ptr<core::TemporaryFile> file_;  // or in this file
};

/// A text on its way through the layers.
class LongPass {
 public:
  LongPass(const LanguageModel& model, const LongText& text)
      : model_(model),
        transformer_(core::state_of(transformer_of(model))),
        config_(transformer_.config),
        length_(std::ssize(text.ids)),
        chunk_(kernels::round_up(std::max<int64_t>(1, text.chunk), FarKeys::block_rows)),
        is_in_memory_(2 * length_ * config_.d_model * int64_t{sizeof(float)} <= text.memory),
        stored_(length_, config_.d_model, is_in_memory_),
        next_(length_, config_.d_model, is_in_memory_) {
    session_.position_scale = position_scale(model, length_);
    session_.biases = biases_of(*transformer_.positions.bias, config_, session_, length_);
  }

  /// Calls run(first) for each chunk, with the memory of the pass for its rows.
  template <class Run>
  void each_chunk(const Run& run) {
    for (int64_t first = 0; first < length_; first += chunk_) {
      prepare(std::min(chunk_, length_ - first));
      run(first);
    }
  }

  void embed(const LongText& text) {
    each_chunk([&](int64_t first) {
      Tensor& x = pass_.memory.stream;
      const auto rows = static_cast<size_t>(x.size(0)), begin = static_cast<size_t>(first);
      const auto part = [&](std::span<const int32_t> of) {
        return of.empty() ? Tensor() : Tensor::from(of.subspan(begin, rows), {x.size(0)});
      };
      const Tensor types = part(text.types);
      embed_ids(model_, part(text.ids), types.defined() ? &types : nullptr, x);
      Tensor entered = x.reshape({1, x.size(0), x.size(1)});
      transformer_.positions.input->enter(entered, first, entered);
      if (config_.embedding.norm) {
        nn::norm(x, transformer_.embedding_norm.parameters(), x, pass_.memory.entry.statistics);
      }
      stored_.write(first, x);
    });
  }

  void measure(const Block& block, FarKeys& far) {
    each_chunk([&](int64_t first) {
      load(first, block);
      const int64_t rows = pass_.memory.length, heads = config_.key_heads();
      Tensor keys = Tensor::empty({rows, heads * config_.head_dim()}, pass_.memory.mode.type());
      block.project_keys(pass_, keys);
      keys = keys.reshape({1, rows, heads, config_.head_dim()});
      rotate(keys, first);
      far.add(keys);
    });
  }

  /// Computes the layer and calls finished(first, stream).
  template <class Finished>
  void run(const Block& block, const Finished& finished) {
    FarKeys far(block.attention_options(pass_), config_.attention.heads, config_.key_heads(), config_.head_dim());
    measure(block, far);
    held_ = {0, 0};
    base_ = 0;
    each_chunk([&](int64_t first) {
      const Range chunk{first, first + pass_.memory.length};
      const Tensor attended = attend(block, far, chunk);
      prepare(chunk.size());
      ResidualStream stream = load(first, block);
      block.project_gate(pass_);
      block.finish(stream, attended, pass_);
      finished(first, stream);
    });
  }

  /// The stream is the input of the next layer.
  void store(int64_t first, ResidualStream& stream) {
    stream.end(pass_.memory.last, pass_.memory.stream);
    next_.write(first, pass_.memory.stream);
  }
  void begin_next_layer() { std::swap(stored_, next_); }

  Tensor final_states(ResidualStream& stream) {
    Tensor y = Tensor::empty(pass_.memory.stream.shape());
    config_.head.final_norm ? stream.normalize(transformer_.final_norm, pass_.memory.last, y)
                            : stream.end(pass_.memory.last, y);
    return y;
  }

  const std::vector<Block>& blocks() const { return transformer_.blocks; }
  int64_t length() const { return length_; }
  int64_t max_keys() const { return max_keys_; }

 private:
  void prepare(int64_t rows) { pass_.memory.prepare(config_, {transformer_.precision, Keep::nothing}, 1, rows); }

  /// The stream of the chunk at `first`, with its norm in scratch.normed.
  ResidualStream load(int64_t first, const Block& block) {
    PassMemory& memory = pass_.memory;
    stored_.read(first, memory.stream);
    ResidualStream stream(memory.stream, memory.branch, config_.block.residual, memory.stream);
    block.normalize(stream, pass_);
    return stream;
  }

  /// Attention of the queries of a chunk, [n, C]. Reads more keys until no others matter.
  Tensor attend(const Block& block, FarKeys& far, const Range& chunk) {
    Range range = far.expected(chunk);
    while (true) {
      hold(block, range);
      const Tensor q = parts(chunk).slice(2, 0, config_.attention.heads);
      const Tensor all = parts(range);
      const int64_t keys = config_.attention.heads, values = keys + config_.key_heads();
      AttentionState state;
      Tensor attended = attention(q, all.slice(2, keys, values), all.slice(2, values, values + config_.key_heads()),
                                  far.options_within(chunk.begin, range), &state);
      const Range needed = far.needed(q, chunk.begin, state.lse);
      if (range.begin <= needed.begin && needed.end <= range.end) {
        return attended.reshape({chunk.size(), config_.d_model});
      }
      range = {std::min(range.begin, needed.begin), std::max(range.end, needed.end)};
    }
  }

  /// Queries, keys and values of some of the tokens that are held: [1, n, H + 2K, D].
  Tensor parts(const Range& range) const {
    const int64_t heads = config_.attention.heads + 2 * config_.key_heads();
    return held_rows_.slice(0, range.begin - base_, range.end - base_)
        .reshape({1, range.size(), heads, config_.head_dim()});
  }

  /// Computes the queries, keys and values of the tokens of a range that are not held yet. Drops those before it.
  void hold(const Block& block, const Range& range) {
    if (range.begin < held_.begin || range.begin > held_.end) held_ = {range.begin, range.begin};
    held_.begin = range.begin;
    make_room(std::min(length_, range.end + chunk_));  // the last rows may be a whole chunk
    while (held_.end < range.end) {
      const int64_t rows = std::min(chunk_, length_ - held_.end);
      prepare(rows);
      load(held_.end, block);
      Tensor qkv = held_rows_.slice(0, held_.end - base_, held_.end - base_ + rows);
      block.project(pass_, qkv);
      Tensor rotated = parts({held_.end, held_.end + rows}).slice(2, 0, config_.attention.heads + config_.key_heads());
      rotate(rotated, held_.end);
      held_.end += rows;
    }
    max_keys_ = std::max(max_keys_, held_.end - held_.begin);
  }

  void rotate(Tensor& x, int64_t first) const {
    transformer_.positions.rotation->rotate(x, first, session_.position_scale);
  }

  /// Moves the rows that are held so that those before `end` have room after them.
  void make_room(int64_t end) {
    const int64_t room = held_rows_.defined() ? held_rows_.size(0) : 0;
    const int64_t count = held_.end - held_.begin;
    if (held_.begin >= base_ && end - base_ <= room) return;
    const auto rows = [&](const Tensor& of, int64_t at, int64_t n) { return of.slice(0, at, at + n); };
    const int64_t from = held_.begin - base_;
    base_ = held_.begin;
    if (end - held_.begin > room) {
      const int64_t heads = config_.attention.heads + 2 * config_.key_heads();
      // Two chunks more, so that rows are not moved for every chunk.
      Tensor larger = Tensor::empty({std::min(length_, end - held_.begin + 2 * chunk_), heads * config_.head_dim()},
                                    pass_.memory.mode.type());
      if (count > 0) rows(larger, 0, count).copy_from(rows(held_rows_, from, count));
      held_rows_ = std::move(larger);
      return;
    }
    for (int64_t at = 0; at < count; at += from) {  // parts that do not overlap
      const int64_t n = std::min(from, count - at);
      rows(held_rows_, at, n).copy_from(rows(held_rows_, from + at, n));
    }
  }

  const LanguageModel& model_;
  const core::StateOf<Transformer>& transformer_;
  const TransformerConfig& config_;
  int64_t length_, chunk_;
  bool is_in_memory_;
  StoredStates stored_, next_;
  Pass pass_;
  Session& session_ = pass_.sequences.together;
  Tensor held_rows_;  // [rows, (H + 2K) * D]: queries, keys and values of the tokens from base_ on
  int64_t base_ = 0;
  Range held_;  // tokens whose rows are computed
  int64_t max_keys_ = 0;
};

}  // namespace

bool has_long_texts(const LanguageModel& model) {
  const TransformerConfig& config = model.config().transformer;
  if (config.layers == 0 || config.attention.canon_kernel > 0 || config.attention.ssmax > 0 ||
      config.attention.nope_layer_interval > 0 || config.attention.full_attention_interval > 0) {
    return false;
  }
  const auto& state = core::state_of(transformer_of(model));
  if (!state.positions.bias->bounds_far_keys()) return false;
  const std::vector<AttentionOptions> biases = biases_of(*state.positions.bias, config, Session(), 1);
  return std::all_of(biases.begin(), biases.end(), FarKeys::are_bounded);
}

int64_t each_state(const LanguageModel& model, const LongText& text,
                   const std::function<void(int64_t first, const Tensor& states)>& use,
                   const std::function<void(double share)>& progress) {
  check(has_long_texts(model),
        "[long text] the model's far keys have no bound, expected a bias like ALiBi's and a tolerance");
  const core::KeepMemory keep;
  const kernels::ReuseBiases reuse;
  const nn::IntegerProducts integers(model.quantized_activations());
  LongPass pass(model, text);
  pass.embed(text);
  const auto layers = static_cast<double>(pass.blocks().size()), length = static_cast<double>(pass.length());
  for (size_t layer = 0; layer < pass.blocks().size(); ++layer) {
    const bool is_last = layer + 1 == pass.blocks().size();
    pass.run(pass.blocks()[layer], [&](int64_t first, ResidualStream& stream) {
      if (is_last) {
        use(first, pass.final_states(stream));
      } else {
        pass.store(first, stream);
      }
      if (progress) progress((static_cast<double>(layer) + static_cast<double>(first) / length) / layers);
    });
    pass.begin_next_layer();
  }
  return pass.max_keys();
}

}  // namespace alibi::model
