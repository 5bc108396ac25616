// Token files: ids on disk, mapped into memory. docs/reference/text.md describes the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "alibi/training_data.h"

namespace alibi::text {

/// A part of the 64 bytes of the header, in the order of the file.
struct TokenFileHeader {
  int64_t tokens = 0;
  int64_t bytes = 0;         ///< size of the text that the tokens represent
  uint64_t fingerprint = 0;  ///< fingerprint of the tokenizer
  uint64_t checksum = 0;     ///< checksum of the ids
  int32_t vocab_size = 0;
  int32_t end_of_text = 0;
};

/// FNV-1a over 32-bit words. `hash` continues an earlier one.
uint64_t checksum_of(std::span<const int32_t> ids, uint64_t hash);

/// Receives ids and the number of bytes of text that they encode.
using AppendTokens = std::function<void(std::span<const int32_t> ids, int64_t bytes)>;

/// Writes the ids that `write` appends. The file is written atomically. Returns the header.
TokenFileHeader write_token_file(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                 const std::function<void(const AppendTokens& append)>& write);

/// A token file that stays mapped as long as its stream exists.
struct TokenFile {
  TokenFileHeader header;
  TokenStream stream;
};

/// Throws Error if the file cannot be read, is of another kind or version, or does not have the size in its header. The
/// ids are not checked; call check_tokens() for that.
TokenFile read_token_file(const std::filesystem::path& path);

/// Checks all ids. Throws Error if their checksum is not the header's or if one is outside the vocabulary. `progress`
/// receives the finished fraction.
void check_tokens(const TokenFile& file, const std::filesystem::path& path,
                  const std::function<void(double)>& progress = {});

}  // namespace alibi::text
