// Hidden states of a text that is too long for the memory: one layer after the other, in chunks.
//
// A layer reads the states that the layer before it has stored, first to measure the keys, then chunk by chunk with the
// queries, keys and values of the tokens around the chunk. The skip rule's bound tells how many are enough
// (attention/skip/far_keys.h). So the memory is that of a few chunks and of the keys within reach of one chunk. The
// states of the text between two layers are in memory, or in temporary files if they are large.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "alibi/language_model.h"

namespace alibi::model {

/// Whether far keys have a bound in this model: ALiBi with a tolerance, on the CPU, without a short convolution and
/// without layers that have no positions.
bool has_long_texts(const LanguageModel& model);

struct LongText {
  std::span<const int32_t> ids;    ///< at least one, valid
  std::span<const int32_t> types;  ///< token types, or empty: all are 0
  int64_t chunk = 4096;            ///< tokens that are computed together; rounded up to whole blocks of keys
  int64_t memory = 256 << 20;      ///< stored states of more bytes than this are kept in temporary files
};

/// Calls use(first, states [n, C] float32) with the final states of the tokens from `first` on, in order, and
/// progress(share) with the share of the work that is done. Returns the largest number of tokens whose keys were in
/// memory. Throws Error unless has_long_texts(), and if there is no room for temporary files.
int64_t each_state(const LanguageModel& model, const LongText& text,
                   const std::function<void(int64_t first, const Tensor& states)>& use,
                   const std::function<void(double share)>& progress = {});

}  // namespace alibi::model
