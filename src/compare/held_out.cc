#include "compare/held_out.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "evaluate/checks.h"
#include "generate/generated_text.h"

namespace alibi::comparison {
namespace {

constexpr int64_t kGroup = 16;  // targets per group

/// Number of bytes that the tokens decode to at their place. A tokenizer may decode the beginning of a text
/// differently.
int64_t decoded_size(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Segment& segment) {
  const auto decoded = [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>(end - begin);
    return static_cast<int64_t>(tokenizer.decode(tokens.subspan(static_cast<size_t>(begin), count)).size());
  };
  if (segment.begin == 0) return decoded(0, segment.end);
  return decoded(segment.begin - 1, segment.end) - decoded(segment.begin - 1, segment.begin);
}

/// Ratio of the bytes of the text to the bytes of its decoded tokens.
double bytes_per_decoded(const Tokenizer& tokenizer, std::span<const int32_t> tokens, int64_t bytes) {
  if (tokenizer.kind() == "byte") return 1;
  return static_cast<double>(bytes) / static_cast<double>(tokenizer.decode(tokens).size());
}

Segment overlap(const Segment& a, const Segment& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

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

HeldOutPlan plan_held_out(int64_t stream, int64_t wanted, int64_t train_length, int64_t longest) {
  HeldOutPlan plan;
  plan.blocks = evaluation::spread_blocks(stream, wanted, longest);
  plan.tokens = evaluation::size_of(plan.blocks);
  for (int64_t context = kGroup; context <= longest; context *= 2) plan.contexts.push_back(context);
  for (const int64_t context : {train_length, longest}) plan.contexts.push_back(context);
  std::sort(plan.contexts.begin(), plan.contexts.end());
  plan.contexts.erase(std::unique(plan.contexts.begin(), plan.contexts.end()), plan.contexts.end());
  // Every group needs the longest context before it, and at least half of the stream must be left for groups.
  std::erase_if(plan.contexts, [&](int64_t context) { return context < kGroup || context > stream / 2; });
  if (plan.contexts.empty()) return plan;
  const int64_t first = plan.contexts.back();
  // With this number of groups the whole curve costs about as much as two or three evaluations.
  const int64_t affordable = std::clamp<int64_t>(2 * plan.tokens / first, 8, 64);
  const int64_t groups = std::min(affordable, (stream - first) / kGroup);
  plan.groups = evaluation::spread(std::vector<int64_t>(static_cast<size_t>(groups), kGroup), first, stream);
  return plan;
}

HeldOut describe(const TrainingData& data, const std::vector<Segment>& blocks) {
  HeldOut held_out;
  held_out.bytes = bytes_of(*data.tokenizer, data.valid.tokens, data.valid_bytes, blocks);
  for (const Segment& block : blocks) held_out.block_tokens.push_back(block.size());
  const double factor = bytes_per_decoded(*data.tokenizer, data.valid.tokens, data.valid_bytes);
  int64_t begin = 0;
  size_t next = 0;  // the first block that may overlap the file
  for (const TextPart& part : data.valid_parts) {
    const Segment tokens{begin, begin + part.tokens};
    begin = tokens.end;
    while (next < blocks.size() && blocks[next].end <= tokens.begin) ++next;
    double bytes = 0;
    int64_t scored = 0;
    for (size_t i = next; i < blocks.size() && blocks[i].begin < tokens.end; ++i) {
      const Segment both = overlap(blocks[i], tokens);
      if (both.size() == 0) continue;
      bytes += factor * static_cast<double>(decoded_size(*data.tokenizer, data.valid.tokens, both));
      scored += both.size();
    }
    held_out.files.push_back({part.name, part.bytes, scored == part.tokens ? part.bytes : std::llround(bytes)});
  }
  return held_out;
}

int64_t bytes_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens, int64_t all,
                 const std::vector<Segment>& segments) {
  if (segments.empty() || evaluation::size_of(segments) == std::ssize(tokens)) return all;
  double bytes = 0;
  for (const Segment& segment : segments) bytes += static_cast<double>(decoded_size(tokenizer, tokens, segment));
  return std::llround(bytes_per_decoded(tokenizer, tokens, all) * bytes);
}

std::string beginning_of(const Tokenizer& tokenizer, std::span<const int32_t> stream, int64_t count) {
  std::span<const int32_t> first = stream.first(std::min(stream.size(), static_cast<size_t>(count)));
  if (!tokenizer.end_of_text_ends_lines()) {
    const auto end = std::find(first.begin(), first.end(), tokenizer.end_of_text());
    first = first.first(static_cast<size_t>(end - first.begin()));
  }
  const std::string text = tokenizer.decode(first);
  return text.substr(0, generation::whole_characters(text, 0));
}

}  // namespace alibi::comparison
