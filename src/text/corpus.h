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
  std::string split_rule;  ///< a sentence for reports about what is held out, and by which rule
};

/// Holds out whole files: those whose name hashes into the lowest tenth, and further ones in the order of the hash
/// until a hundredth of the bytes is held out, but never the largest file. The order and the location of the documents
/// do not matter. Copies of a file (the same bytes) count as one file. A single file is cut: its last tenth, from the
/// beginning of a line, is held out. Throws Error if there is too little text.
Corpus split_corpus(std::vector<Document> documents);

/// Holds out `valid` and trains on the documents that are not in it, neither by path nor by content.
/// Throws Error if none is left.
Corpus split_corpus(std::vector<Document> documents, std::vector<Document> valid);

/// Reads both like read_documents() and splits them. Without inputs it uses the default corpus, and without valid
/// inputs the rule above.
Corpus read_corpus(std::vector<std::string> inputs, const std::vector<std::string>& valid_inputs = {},
                   std::istream& standard_input = std::cin, const std::string& field = kTextField);

/// Default inputs: the C++ standard library's headers of this machine (of the newest compiler that has them). Throws
/// UsageError if there are none. `root` is for tests: another root of the file system.
std::vector<std::string> default_corpus(const std::filesystem::path& root = "/");

}  // namespace alibi::text
