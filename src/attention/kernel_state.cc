#include "attention/kernel_state.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace {

/// The first two words are the kernel and the number of blocks.
constexpr int64_t header_words = 2;

}  // namespace

KernelState::KernelState() : state_(std::make_shared<State>()) {}
KernelState::~KernelState() = default;
KernelState::KernelState(const KernelState&) = default;
KernelState& KernelState::operator=(const KernelState&) = default;

int64_t KernelState::saved_words(int64_t batch, int64_t queries, int64_t heads, const AttentionOptions& options) {
  check(batch >= 0 && queries >= 0 && heads >= 0, "[attention] the state is for batch {}, {} queries and {} heads",
        batch, queries, heads);
  if (!(options.tolerance > 0)) return header_words;
  int64_t blocks = 0;
  if (options.cu_seqlens_q.empty()) blocks = batch * core::ceil_div(queries, State::min_query_rows);
  for (size_t i = 1; i < options.cu_seqlens_q.size(); ++i) {
    blocks += core::ceil_div(int64_t{options.cu_seqlens_q[i]} - options.cu_seqlens_q[i - 1], State::min_query_rows);
  }
  return header_words + 2 * heads * blocks;
}

Tensor KernelState::saved_lse() const { return state_->lse; }

Tensor KernelState::saved_blocks() const {
  check(!state_->caller_blocks.defined(), "[attention] a state in the caller's memory is saved by keeping that memory");
  std::vector<int32_t> first = state_->first_block, last = state_->last_block;
  if (state_->device_blocks.defined() && state_->kernel != State::Kernel::none) {
    first = state_->device_blocks.slice(0, 0, 1).to_ints();
    last = state_->device_blocks.slice(0, 1, 2).to_ints();
  }
  const auto count = static_cast<int64_t>(first.size());
  Tensor saved({std::max(state_->words, header_words + 2 * count)}, DType::int32);
  auto* words = saved.data<int32_t>();
  words[0] = static_cast<int32_t>(state_->kernel);
  words[1] = static_cast<int32_t>(count);
  std::copy(first.begin(), first.end(), words + header_words);
  std::copy(last.begin(), last.end(), words + header_words + count);
  return saved;
}

KernelState KernelState::restore(const Tensor& lse, const Tensor& blocks) {
  check(lse.defined() && lse.axes() == 3 && lse.dtype() == DType::float32 && lse.contiguous(),
        "[attention] saved lse is {} {}, expected a contiguous float32 [batch, heads, queries]", name_of(lse.dtype()),
        lse.shape());
  check(blocks.defined() && blocks.axes() == 1 && blocks.dtype() == DType::int32 && blocks.contiguous() &&
            blocks.elements() >= header_words,
        "[attention] saved blocks are {} {}, expected contiguous int32 [words], at least {}", name_of(blocks.dtype()),
        blocks.shape(), header_words);
  const auto* words = blocks.data<int32_t>();
  const int64_t kernel = words[0], count = words[1];
  check(kernel >= 0 && kernel <= static_cast<int64_t>(State::Kernel::cuda) && count >= 0 &&
            header_words + 2 * count <= blocks.elements(),
        "[attention] saved blocks begin with {} and {} and have {} words, expected the words that saved_blocks() "
        "returned",
        kernel, count, blocks.elements());
  KernelState state;
  State& kept = *state.state_;
  kept.kernel = static_cast<State::Kernel>(kernel);
  kept.lse = lse;
  kept.first_block.assign(words + header_words, words + header_words + count);
  kept.last_block.assign(words + header_words + count, words + header_words + 2 * count);
  kept.words = blocks.elements();
  return state;
}

KernelState KernelState::in_memory(const Tensor& lse, const Tensor& blocks) {
  check(lse.defined() && lse.axes() == 3 && lse.dtype() == DType::float32 && lse.contiguous(),
        "[attention] the state's lse is {} {}, expected a contiguous float32 [batch, heads, queries]",
        name_of(lse.dtype()), lse.shape());
  check(blocks.defined() && blocks.axes() == 1 && blocks.dtype() == DType::int32 && blocks.contiguous(),
        "[attention] the state's blocks are {} {}, expected contiguous int32 [words]", name_of(blocks.dtype()),
        blocks.shape());
  check(lse.device() != Device::cpu && lse.device() == blocks.device(),
        "[attention] the state's memory is on '{}' and '{}', expected one device, not the CPU", name_of(lse.device()),
        name_of(blocks.device()));
  KernelState state;
  state.state_->lse = lse;
  state.state_->caller_blocks = blocks;
  return state;
}

Tensor kernels::caller_blocks_of(const core::StateOf<KernelState>& state, int64_t query_blocks) {
  check(state.caller_blocks.elements() >= 2 * query_blocks,
        "[attention] the state's blocks have {} words, expected at least {}", state.caller_blocks.elements(),
        2 * query_blocks);
  return state.caller_blocks.slice(0, 0, 2 * query_blocks).reshape({2, query_blocks});
}

AttentionStats kernels::count_device_blocks(const core::StateOf<KernelState>& state) {
  check(!state.caller_blocks.defined(), "[attention] blocks are not counted in a state in the caller's memory");
  const std::vector<int32_t> words = state.device_blocks.to_ints();
  const size_t third = words.size() / 3;
  AttentionStats stats;
  for (size_t i = 0; i < third; ++i) {
    stats.blocks_visited += words[third + i] - words[i];
    stats.blocks_total += words[2 * third + i];
  }
  return stats;
}

void kernels::check_blocks(const core::StateOf<KernelState>& state, core::StateOf<KernelState>::Kernel kernel,
                           int64_t query_blocks) {
  const bool there = state.device_blocks.defined();
  const int64_t found = there ? state.device_blocks.size(1) : static_cast<int64_t>(state.first_block.size());
  check(!(there || state.is_of(kernel)) || found == query_blocks,
        "[attention_backward] state has {} query blocks, expected {}; the state must come from the forward call with "
        "the same inputs and options",
        found, query_blocks);
}

}  // namespace alibi
