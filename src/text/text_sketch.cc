#include "text/text_sketch.h"

#include <algorithm>
#include <atomic>

#include "core/parallel.h"
#include "core/random.h"

namespace alibi::text {
namespace {

constexpr int64_t kSampled = 1 << 14;
constexpr size_t kFewest = 8;
constexpr int64_t kChunk = 1 << 18;
/// Odd, so that no token's bits are shifted out of the sum over a passage.
constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;

int64_t passages_in(std::span<const int32_t> tokens) {
  return std::max<int64_t>(0, static_cast<int64_t>(tokens.size()) - kPassage + 1);
}

int64_t chunks_in(std::span<const int32_t> tokens) { return core::ceil_div(passages_in(tokens), kChunk); }

/// Calls use(chunk, hash) for each passage whose hash is at most `most`. Within a chunk the calls are in the order of
/// the text. Chunks may be processed in any thread.
template <class Use>
void each_hash(std::span<const int32_t> tokens, uint64_t most, const Use& use) {
  uint64_t first_weight = 1;  // weight of a passage's first token
  for (int64_t i = 1; i < kPassage; ++i) first_weight *= kFactor;
  const int64_t passages = passages_in(tokens);
  core::parallel_for(chunks_in(tokens), [&](int64_t chunk) {
    const auto id = [&](int64_t at) { return uint64_t{static_cast<uint32_t>(tokens[static_cast<size_t>(at)])} + 1; };
    const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, passages);
    uint64_t sum = 0;
    for (int64_t at = begin; at < begin + kPassage - 1; ++at) sum = sum * kFactor + id(at);
    for (int64_t at = begin; at < end; ++at) {
      sum = sum * kFactor + id(at + kPassage - 1);
      const uint64_t hash = core::mix(sum, 0);
      if (hash <= most) use(chunk, hash);
      sum -= id(at) * first_weight;
    }
  });
}

/// All such hashes, in the order of the text.
std::vector<uint64_t> hashes_of(std::span<const int32_t> tokens, uint64_t most) {
  std::vector<std::vector<uint64_t>> found(static_cast<size_t>(chunks_in(tokens)));
  each_hash(tokens, most, [&](int64_t chunk, uint64_t hash) { found[static_cast<size_t>(chunk)].push_back(hash); });
  std::vector<uint64_t> all;
  for (const auto& some : found) all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace

TextSketch sketch_of(std::span<const int32_t> tokens) {
  TextSketch sketch;
  const int64_t passages = passages_in(tokens);
  sketch.most = passages <= kSampled ? UINT64_MAX : UINT64_MAX / static_cast<uint64_t>(passages) * kSampled;
  sketch.hashes = hashes_of(tokens, sketch.most);
  std::sort(sketch.hashes.begin(), sketch.hashes.end());
  sketch.hashes.erase(std::unique(sketch.hashes.begin(), sketch.hashes.end()), sketch.hashes.end());
  return sketch;
}

std::optional<double> part_in(const TextSketch& sketch, std::span<const int32_t> tokens) {
  const std::vector<uint64_t> sampled = hashes_of(tokens, sketch.most);
  if (sampled.size() < kFewest) return std::nullopt;
  const auto is_known = [&](uint64_t hash) {
    return std::binary_search(sketch.hashes.begin(), sketch.hashes.end(), hash);
  };
  const auto known = std::count_if(sampled.begin(), sampled.end(), is_known);
  return static_cast<double>(known) / static_cast<double>(sampled.size());
}

std::optional<double> part_found(const TextSketch& sketch, std::span<const int32_t> tokens) {
  if (sketch.hashes.size() < kFewest) return std::nullopt;
  std::vector<std::atomic<bool>> found(sketch.hashes.size());
  each_hash(tokens, sketch.most, [&](int64_t, uint64_t hash) {
    const auto at = std::lower_bound(sketch.hashes.begin(), sketch.hashes.end(), hash);
    if (at == sketch.hashes.end() || *at != hash) return;
    found[static_cast<size_t>(at - sketch.hashes.begin())].store(true, std::memory_order_relaxed);
  });
  const auto known = std::count(found.begin(), found.end(), true);
  return static_cast<double>(known) / static_cast<double>(found.size());
}

}  // namespace alibi::text
