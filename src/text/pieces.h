// Processes documents in pieces in parallel, and returns the results in order, with bounded memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "text/documents.h"
#include "text/units.h"

namespace alibi::text {

struct TextPiece {
  OpenText owner;
  std::string_view text;  ///< whole units
  bool last = false;      ///< whether it is the last piece of its document
};

/// Produces the pieces of documents, one after the other.
class TextPieces {
 public:
  /// With `whole`, each document is one piece, however long it is.
  explicit TextPieces(const std::vector<Document>& documents, bool whole = false)
      : documents_(documents), piece_bytes_(whole ? SIZE_MAX : kPieceBytes) {}

  /// The next pieces: enough work for the threads, within a memory limit. Empty at the end.
  std::vector<TextPiece> next_wave() {
    std::vector<TextPiece> wave;
    for (size_t bytes = 0; bytes < kWaveBytes && wave.size() < kWavePieces && next_ < documents_.size();) {
      if (at_ == 0) open_ = documents_[next_].open();
      const std::string_view rest = open_.view().substr(at_);
      const size_t length = units_length(rest, piece_bytes_);
      const bool last = length == rest.size();
      wave.push_back({open_, rest.substr(0, length), last});
      bytes += length;
      at_ = last ? 0 : at_ + length;
      if (last) open_ = {}, ++next_;
    }
    return wave;
  }

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 18;
  static constexpr size_t kWaveBytes = size_t{1} << 24;
  static constexpr size_t kWavePieces = 1024;

  const std::vector<Document>& documents_;
  const size_t piece_bytes_;
  size_t next_ = 0;  // index of the document
  size_t at_ = 0;    // byte offset in it
  OpenText open_;
};

/// Calls `work(text)` for pieces of the documents in parallel, and `take(result, piece)` for each piece in order in
/// this thread. With `whole`, each document is one piece.
template <class Work, class Take>
void for_pieces(const std::vector<Document>& documents, const Work& work, const Take& take, bool whole = false) {
  TextPieces pieces(documents, whole);
  for (std::vector<TextPiece> wave = pieces.next_wave(); !wave.empty(); wave = pieces.next_wave()) {
    std::vector<decltype(work(std::string_view()))> results(wave.size());
    core::parallel_for(static_cast<int64_t>(wave.size()), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      results[at] = work(wave[at].text);
    });
    for (size_t i = 0; i < wave.size(); ++i) take(std::move(results[i]), wave[i]);
  }
}

}  // namespace alibi::text
