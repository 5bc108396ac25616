#include "attention/bias/decay.h"

#include <cmath>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

/// Of a gate, so that the pairs of float64 hold sums of 2^31 gates with an error below 2^-30.
constexpr float most_decay = 0x1p40f;

}  // namespace

void HeadDecay::sums(int64_t from, int64_t first, int64_t count, double unit, float* values) const {
  const int64_t begin = std::clamp<int64_t>(-first, 0, count), end = std::clamp<int64_t>(keys_ - first, begin, count);
  const double high = high_[key_of(from)], low = low_[key_of(from)];
  const auto value = [&](int64_t i) { return static_cast<float>(unit * ((high_[i] - high) + (low_[i] - low))); };
  std::fill_n(values, begin, value(0));
  for (int64_t i = begin; i < end; ++i) values[i] = value(first + i);
  std::fill_n(values + end, count - end, value(keys_ - 1));
}

Decays::Decays(const char* operation, const Tensor& log_decay, const std::vector<Rows>& sequences) {
  const int64_t heads = log_decay.size(2);
  size_t size = 0;
  for (const Rows& rows : sequences) {
    base_.push_back(size);
    counts_.push_back(rows.count);
    size += static_cast<size_t>(heads * rows.count);
  }
  high_.resize(size + 1);  // one more, so that a sequence without keys has an address
  low_.resize(size + 1);
  documents_.resize(size + 1);
  const auto gate = [&](const Rows& rows, int64_t key, int64_t head) {
    return log_decay.data<float>()[rows.batch * log_decay.stride(0) + (rows.first + key) * log_decay.stride(1) +
                                   head * log_decay.stride(2)];
  };
  std::vector<int64_t> refused(sequences.size() * static_cast<size_t>(heads), -1);
  core::parallel_for(std::ssize(refused), [&](int64_t task) {
    const auto s = static_cast<size_t>(task / heads);
    const int64_t head = task % heads;
    const size_t at = base_[s] + static_cast<size_t>(head * counts_[s]);
    double high = 0, low = 0;
    int32_t document = 0;
    for (int64_t key = 0; key < counts_[s]; ++key) {
      const float value = gate(sequences[s], key, head);
      if (value == -HUGE_VALF) {
        document = static_cast<int32_t>(key);
      } else if (!(value <= 0 && value >= -most_decay)) {
        refused[static_cast<size_t>(task)] = key;
        return;
      } else {  // two-sum: high + low is the sum
        const auto next = static_cast<double>(value);
        const double sum = high + next, part = sum - high;
        low += (high - (sum - part)) + (next - part);
        high = sum;
      }
      const size_t i = at + static_cast<size_t>(key);
      high_[i] = high;
      low_[i] = low;
      documents_[i] = document;
    }
  });
  for (size_t task = 0; task < refused.size(); ++task) {
    if (refused[task] < 0) continue;
    const Rows& rows = sequences[task / static_cast<size_t>(heads)];
    const auto head = static_cast<int64_t>(task) % heads;
    fail_usage("[{}] log_decay[{}][{}][{}] is {}, expected -2^40 to 0, or -infinity where a document begins", operation,
               rows.batch, rows.first + refused[task], head, gate(rows, refused[task], head));
  }
}

}  // namespace alibi::kernels
