#include "compare/defaults.h"

#include <algorithm>

namespace alibi::comparison {

std::vector<int64_t> lengths_to_measure(int64_t train_length) {
  std::vector<int64_t> lengths;
  for (const int64_t quarters : {4, 5, 6, 8, 12, 16, 24, 32, 64}) lengths.push_back((train_length * quarters + 2) / 4);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

int64_t tokens_to_score(const std::string& preset, int64_t longest) {
  const bool is_small = preset == "small" || preset == "wikitext103";
  const int64_t of_preset = preset == "tiny" ? 1 << 16 : is_small ? 1 << 18 : 1 << 20;
  return std::max(of_preset, 16 * longest);
}

}  // namespace alibi::comparison
