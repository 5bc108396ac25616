// Estimates what share of one text occurs in another, word for word, from a sketch of a few kilobytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace alibi::text {

/// A sample of the passages of a stream of tokens: the hashes that are at most `most`. Equal passages have equal
/// hashes, so a passage is in the sample of every stream that contains it, or of none.
struct TextSketch {
  uint64_t most = 0;
  std::vector<uint64_t> hashes;  ///< rising
};

/// Number of tokens in a passage. Common phrases of a language are shorter, also in bytes.
inline constexpr int64_t kPassage = 128;

/// Hashes of about 16,000 evenly distributed passages, or of all if there are fewer.
TextSketch sketch_of(std::span<const int32_t> tokens);

/// Estimated fraction of the passages of `tokens` that occur in the sketched stream. Returns nothing if fewer than
/// eight sampled passages are found: the text is too short, or less than about a two-thousandth of the other.
std::optional<double> part_in(const TextSketch& sketch, std::span<const int32_t> tokens);

/// The reverse: the fraction of the sketched stream's distinct passages that occur in `tokens`. Returns nothing if the
/// sketch has fewer than eight. Needs no memory other than the sketch.
std::optional<double> part_found(const TextSketch& sketch, std::span<const int32_t> tokens);

}  // namespace alibi::text
