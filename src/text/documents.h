// Text from files, folders and standard input.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "alibi/training_data.h"
#include "text/document.h"

namespace alibi::text {

/// Reads each input in the given order: a file, a folder or "-" (standard input), to see that it is text. What comes
/// through a pipe, was compressed (gzip, Zstandard) or lies in records (.jsonl: the string `field` of each line, which
/// is a document of its own) stays in memory, all else in its file.
/// Of a folder every text file below it is read, in the bytewise order of the relative paths; what is hidden (a name
/// that begins with a dot), empty, not text (see text_encoding.h) or not a regular file is skipped. Links are
/// followed, loops end, and a file that is reached twice is read once.
/// Throws Error for an input that is missing, unreadable, empty or not text, and for a folder without any text;
/// UsageError for no input, or for "-" given twice.
std::vector<Document> read_documents(const std::vector<std::string>& inputs, std::istream& standard_input = std::cin,
                                     const std::string& field = kTextField);

/// Sum of the lengths of the texts.
int64_t bytes_of(const std::vector<Document>& documents);

}  // namespace alibi::text
