// The text of a run, split into training text and held-out text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "text/documents.h"

namespace alibi::text {

struct Corpus {
  std::vector<Document> train;
  std::vector<Document> valid;
  int64_t train_bytes = 0;
  int64_t valid_bytes = 0;
  std::string split_rule;  ///< a sentence for reports: what is held out, and by which rule
  FilesRead files;
};

/// Holds out whole files: those whose name hashes into the lowest tenth, and further ones in the order of the hash
/// until a hundredth of the bytes is held out. The largest file is never held out. The order and the location of the
/// documents do not matter. Copies of a file (the same bytes) count as one file. Of a single file, the last tenth is
/// held out, from the beginning of a line. Throws Error if there is too little text.
Corpus split_corpus(std::vector<Document> documents);

/// Holds out `valid` and trains on the documents that do not occur in it, by path or by content. Throws Error if no
/// document is left.
Corpus split_corpus(std::vector<Document> documents, std::vector<Document> valid);

/// Reads both inputs like read_documents() and splits them. Without inputs it uses the default corpus. Without valid
/// inputs it uses the rule above.
Corpus read_corpus(std::vector<std::string> inputs, const std::vector<std::string>& valid_inputs = {},
                   std::istream& standard_input = std::cin, const std::string& field = kTextField);

/// Default inputs: the C++ standard library's headers on this machine, of the newest compiler that has them. Throws
/// UsageError if there are none. `root` replaces the root of the file system in tests.
std::vector<std::string> default_corpus(const std::filesystem::path& root = "/");

}  // namespace alibi::text
