// Finds the strings of a vocabulary that are prefixes of a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace alibi::text::tokenizers {

class Trie {
 public:
  /// Empty keys are ignored. Of equal keys, the first one is kept.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> entries) {
    std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
    const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
    const auto equal = [](const auto& a, const auto& b) { return a.first == b.first; };
    std::stable_sort(entries.begin(), entries.end(), before);
    entries.erase(std::unique(entries.begin(), entries.end(), equal), entries.end());
    struct EntryRange {
      size_t node, begin, end, depth;
    };
    nodes_.push_back({});
    bytes_.push_back(0);
    std::vector<EntryRange> open = {{0, 0, entries.size(), 0}};
    for (size_t next = 0; next < open.size(); ++next) {  // by depth, so that the children of a node are adjacent
      auto [node, begin, end, depth] = open[next];
      nodes_[node].children = static_cast<uint32_t>(nodes_.size());
      if (begin < end && entries[begin].first.size() == depth) nodes_[node].value = entries[begin++].second;
      while (begin < end) {
        const char byte = entries[begin].first[depth];
        size_t last = begin;
        while (last < end && entries[last].first[depth] == byte) ++last;
        open.push_back({nodes_.size(), begin, last, depth + 1});
        nodes_.push_back({});
        bytes_.push_back(static_cast<unsigned char>(byte));
        ++nodes_[node].count;
        begin = last;
      }
      if (next > 4096 && next * 2 > open.size()) {  // frees the finished part
        open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(next) + 1);
        next = SIZE_MAX;
      }
    }
  }

  /// Calls take(length, value) for each key that is a prefix of `text`, shortest first.
  template <class Take>
  void for_prefixes(std::string_view text, const Take& take) const {
    size_t node = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(nodes_[node].children);
      const auto last = first + nodes_[node].count;
      const auto byte = static_cast<unsigned char>(text[at]);
      const auto found = std::lower_bound(first, last, byte);
      if (found == last || *found != byte) return;
      node = static_cast<size_t>(found - bytes_.begin());
      if (nodes_[node].value >= 0) take(at + 1, nodes_[node].value);
    }
  }

  /// Length and value of the longest such key. The length is 0 if there is none.
  std::pair<size_t, int32_t> longest(std::string_view text) const {
    std::pair<size_t, int32_t> found = {0, -1};
    for_prefixes(text, [&](size_t length, int32_t value) { found = {length, value}; });
    return found;
  }

 private:
  struct Node {
    uint32_t children = 0;
    int32_t value = -1;
    uint16_t count = 0;
  };

  std::vector<Node> nodes_;
  std::vector<unsigned char> bytes_;  ///< the byte that leads to a node from its parent
};

}  // namespace alibi::text::tokenizers
