// Attention's options as the package's own Python passes them.
#pragma once

#include "alibi/attention.h"
#include "arrays.h"

namespace alibi::python {

/// (slopes, slopes_after, causal, window, softmax_scale, dropout_p, dropout_seed, query_offset, cu_seqlens_q,
/// cu_seqlens_k, tolerance), as alibi/_options.py makes it; None: the default. Throws TypeError that names what is of
/// the wrong type.
AttentionOptions options_of(const nb::tuple& given, const char* operation);

}  // namespace alibi::python
