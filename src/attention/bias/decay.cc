#include "attention/bias/decay.h"

#include <cmath>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

/// Of a gate, so that the pairs of float64 hold sums of 2^31 gates with an error below 2^-30.
constexpr float max_decay = 0x1p40f;
constexpr int64_t grain = 4;  // heads in a task

}  // namespace

void HeadDecay::sums(int64_t from, int64_t first, int64_t count, double unit, float* values) const {
  const int64_t begin = std::clamp<int64_t>(first_ - first, 0, count),
                end = std::clamp<int64_t>(keys_ - first, begin, count);
  const double high = high_[key_of(from) - first_], low = low_[key_of(from) - first_];
  const auto value = [&](int64_t i) { return static_cast<float>(unit * ((high_[i] - high) + (low_[i] - low))); };
  std::fill_n(values, begin, value(0));
  for (int64_t i = begin; i < end; ++i) values[i] = value(first - first_ + i);
  std::fill_n(values + end, count - end, value(keys_ - 1 - first_));
}

Decays::Decays(const char* operation, const Tensor& log_decay, const std::vector<KeyRows>& sequences) {
  add(operation, log_decay, sequences);
}

void Decays::append(const char* operation, const Tensor& log_decay) {
  std::vector<KeyRows> rows;
  for (int64_t b = 0; b < log_decay.size(0); ++b) rows.push_back({b, 0, log_decay.size(1)});
  add(operation, log_decay, rows);
}

void Decays::add(const char* operation, const Tensor& log_decay, const std::vector<KeyRows>& sequences) {
  const int64_t heads = log_decay.size(2), tasks = std::ssize(sequences) * heads;
  const float* const values = log_decay.data<float>();
  const int64_t batch_stride = log_decay.stride(0), stride = log_decay.stride(1), head_stride = log_decay.stride(2);
  const auto first_of = [&](int64_t task) {
    const KeyRows& rows = sequences[static_cast<size_t>(task / heads)];
    return values + rows.batch * batch_stride + rows.first * stride + task % heads * head_stride;
  };
  const auto count_of = [&](int64_t task) { return sequences[static_cast<size_t>(task / heads)].count; };
  std::vector<int64_t> refused(static_cast<size_t>(tasks), -1);
  core::parallel_ranges(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const float* const gates = first_of(task);
      for (int64_t key = count_of(task); key-- > 0;) {
        const float value = gates[key * stride];
        if (value != -HUGE_VALF && !(value <= 0 && value >= -max_decay)) refused[static_cast<size_t>(task)] = key;
      }
    }
  });
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t key = refused[static_cast<size_t>(task)];
    if (key < 0) continue;
    const KeyRows& rows = sequences[static_cast<size_t>(task / heads)];
    fail_usage("[{}] log_decay[{}][{}][{}] is {}, expected -2^40 to 0, or -infinity where a document begins", operation,
               rows.batch, rows.first + key, task % heads, first_of(task)[key * stride]);
  }
  heads_ = heads;
  all_.resize(static_cast<size_t>(tasks));
  core::parallel_ranges(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      Head& of = all_[static_cast<size_t>(task)];
      double high = of.high.empty() ? 0 : of.high.back(), low = of.low.empty() ? 0 : of.low.back();
      int32_t document = of.documents.empty() ? 0 : of.documents.back();
      const float* const gates = first_of(task);
      const size_t before = of.high.size(), count = static_cast<size_t>(count_of(task));
      of.high.resize(before + count);
      of.low.resize(before + count);
      of.documents.resize(before + count);
      for (size_t key = 0; key < count; ++key) {
        const float value = gates[static_cast<int64_t>(key) * stride];
        if (value == -HUGE_VALF) {
          document = static_cast<int32_t>(first_ + static_cast<int64_t>(before + key));
        } else {  // two-sum: high + low is the sum
          const auto next = static_cast<double>(value);
          const double sum = high + next, part = sum - high;
          low += (high - (sum - part)) + (next - part);
          high = sum;
        }
        of.high[before + key] = high;
        of.low[before + key] = low;
        of.documents[before + key] = document;
      }
    }
  });
}

void Decays::truncate(int64_t keys) {
  for (Head& of : all_) {
    of.high.resize(static_cast<size_t>(keys - first_));
    of.low.resize(static_cast<size_t>(keys - first_));
    of.documents.resize(static_cast<size_t>(keys - first_));
  }
}

void Decays::evict(int64_t first) {
  if (first <= first_) return;
  for (Head& of : all_) {
    of.high.erase(of.high.begin(), of.high.begin() + (first - first_));
    of.low.erase(of.low.begin(), of.low.begin() + (first - first_));
    of.documents.erase(of.documents.begin(), of.documents.begin() + (first - first_));
    of.high.shrink_to_fit();
    of.low.shrink_to_fit();
    of.documents.shrink_to_fit();
  }
  first_ = first;
}

Tensor Decays::gates(int64_t first) const {
  const int64_t keys = first_ + std::ssize(all_.front().high);
  Tensor result({std::ssize(all_) / heads_, keys - first, heads_});
  for (int64_t i = 0; i < std::ssize(all_); ++i) {
    const HeadDecay decay = head(i / heads_, i % heads_);
    for (int64_t key = first + 1; key < keys; ++key) {
      const bool begins = decay.document(key) == key;
      result.data<float>()[(i / heads_ * (keys - first) + key - first) * heads_ + i % heads_] =
          begins ? -HUGE_VALF : static_cast<float>(decay.sum(key - 1, key));
    }
  }
  return result;
}

int64_t Decays::bytes() const {
  int64_t sum = 0;
  for (const Head& of : all_) sum += static_cast<int64_t>(of.high.capacity() * (2 * sizeof(double) + sizeof(int32_t)));
  return sum;
}

}  // namespace alibi::kernels
