// Estimates how much of one text is in another, word for word, from a sketch of a few kilobytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace alibi::text {

/// A sample of the passages of a stream of tokens: the hashes of those whose hash is at most `most`. Equal passages
/// have equal hashes, so a passage is in the sample of every stream that it is in, or in none.
struct TextSketch {
  uint64_t most = 0;
  std::vector<uint64_t> hashes;  ///< rising
};

/// Tokens of a passage. Common phrases of a language are shorter, also in bytes.
inline constexpr int64_t kPassage = 128;

/// Hashes of about 16,000 evenly drawn passages, or of all if there are fewer.
TextSketch sketch_of(std::span<const int32_t> tokens);

/// Estimated fraction of the passages of `tokens` that are in the sketched stream. Nothing if fewer than eight sampled
/// passages are found: the text is short, or less than about a two-thousandth of the other.
std::optional<double> part_in(const TextSketch& sketch, std::span<const int32_t> tokens);

/// The reverse: the fraction of the sketched stream's passages, each counted once, that are in `tokens`. Nothing if the
/// sketch has fewer than eight. Needs no memory besides the sketch.
std::optional<double> part_found(const TextSketch& sketch, std::span<const int32_t> tokens);

}  // namespace alibi::text
