// Token files: ids on disk, mapped into memory when they are read. docs/text.md has the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "alibi/training_data.h"

namespace alibi::text {

/// What the 64 bytes at the beginning say.
struct TokenFileHeader {
  int32_t vocab_size = 0;
  int32_t end_of_text = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;         ///< of the text behind the tokens
  uint64_t fingerprint = 0;  ///< of the tokenizer
  uint64_t checksum = 0;     ///< of the ids
};

/// FNV-1a over 32-bit words. `hash` continues an earlier one.
uint64_t checksum_of(std::span<const int32_t> ids, uint64_t hash);

/// Takes ids and how many bytes of text they stand for.
using AppendTokens = std::function<void(std::span<const int32_t> ids, int64_t bytes)>;

/// Writes what `write` appends, beside and renamed; gives the header.
TokenFileHeader write_token_file(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                 const std::function<void(const AppendTokens& append)>& write);

/// A file that is mapped as long as its stream lives.
struct TokenFile {
  TokenFileHeader header;
  TokenStream stream;
};

/// Throws Error if the file cannot be read, is of another kind or version, or has not the size its header tells. The
/// ids are not looked at: see check_tokens().
TokenFile read_token_file(const std::filesystem::path& path);

/// Reads all ids. Throws Error if they do not have the header's checksum or one is not in the vocabulary. `progress`
/// gets the fraction done.
void check_tokens(const TokenFile& file, const std::filesystem::path& path,
                  const std::function<void(double)>& progress = {});

}  // namespace alibi::text
