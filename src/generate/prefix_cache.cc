#include "generate/prefix_cache.h"

#include <algorithm>

namespace alibi::generation {

int64_t PrefixCache::common(std::span<const int32_t> a, std::span<const int32_t> b) const {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return (end - a.begin()) / chunk_ * chunk_;
}

void PrefixCache::keep(std::span<const int32_t> ids, const Context& context) {
  if (!keeps_any() || context.bytes() > max_bytes_) return;
  const auto is_part = [&](const Entry& entry) {
    return entry.ids.size() <= ids.size() && std::equal(entry.ids.begin(), entry.ids.end(), ids.begin()) &&
           (!evicts_ || entry.ids.size() == ids.size());
  };
  entries_.remove_if(is_part);  // the new context serves the same prompts
  entries_.push_front({{ids.begin(), ids.end()}, context.fork()});
  while (bytes() > max_bytes_) entries_.pop_back();
}

std::optional<Context> PrefixCache::find(std::span<const int32_t> ids) {
  const std::span<const int32_t> usable = ids.first(ids.empty() ? 0 : ids.size() - 1);
  auto best = entries_.end();
  int64_t most = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t shared = common(entry->ids, usable);
    if (shared <= most || (evicts_ && shared < std::ssize(entry->ids))) continue;
    most = shared;
    best = entry;
  }
  if (best == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, best);
  Context context = best->context.fork();
  if (context.position() > most) context.rewind(most);
  return context;
}

int64_t PrefixCache::bytes() const {
  int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.context.bytes();
  return sum;
}

}  // namespace alibi::generation
