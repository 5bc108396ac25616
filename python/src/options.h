// Attention's options as the package's own Python passes them.
#pragma once

#include "alibi/attention.h"
#include "arrays.h"

namespace alibi::python {

/// None: 0, the default of C++. 0 itself is refused.
float scale_of(nb::handle softmax_scale, const char* operation);

/// (slopes, slopes_after, causal, window, softmax_scale, dropout_p, dropout_seed, query_offset, cu_seqlens_q,
/// cu_seqlens_k, tolerance, window_after, softcap), as the package makes it; None: the default. Throws TypeError that
/// names what is of the wrong type, UsageError for slopes that do not fit the batch and the heads.
AttentionOptions options_of(const nb::tuple& given, const char* operation, int64_t batch, int64_t heads);
/// Those that are no arrays.
AttentionOptions plain_options_of(const nb::tuple& given, const char* operation);

}  // namespace alibi::python
