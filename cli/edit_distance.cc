#include "edit_distance.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace alibi::cli {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances from the letters of a read so far to each prefix of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  // "--sliding" is nearer to "--sliding-window" than to "--clip".
  const auto rank = [&](const std::string& name) { return std::pair(!name.starts_with(word), distance(word, name)); };
  return *std::min_element(names.begin(), names.end(),
                           [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
}

}  // namespace alibi::cli
