// Random numbers for generators of sequences.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/random.h"

namespace alibi::comparison {

/// Random numbers in the order of the calls.
class Dice {
 public:
  explicit Dice(uint64_t seed, uint64_t stream) : random_(seed, stream) {}
  /// Integer in [0, n).
  int64_t below(int64_t n) { return static_cast<int64_t>(random_.below(next_++, static_cast<uint64_t>(n))); }
  /// Integer in [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool is_true(double probability) { return static_cast<double>(below(1 << 20)) < probability * (1 << 20); }
  char one_of(std::string_view choices) { return choices[static_cast<size_t>(below(std::ssize(choices)))]; }
  template <class List>
  void shuffle(List& list) {
    for (auto i = std::ssize(list); i > 1; --i) {
      std::swap(list[static_cast<size_t>(i - 1)], list[static_cast<size_t>(below(i))]);
    }
  }
  /// `count` different bytes of the choices.
  std::string different(std::string_view choices, int64_t count) {
    std::string all(choices);
    shuffle(all);
    return all.substr(0, static_cast<size_t>(count));
  }

 private:
  core::Random random_;
  uint64_t next_ = 0;
};

}  // namespace alibi::comparison
