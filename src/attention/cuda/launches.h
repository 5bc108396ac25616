// The launches of all kernels: on GPUs (launches.cu), or emulated in tests.
#pragma once

#include "attention/cuda/both_gradients.h"
#include "attention/cuda/bounds.h"
#include "attention/cuda/cached_keys.h"
#include "attention/cuda/decode.h"
#include "attention/cuda/decode_near.h"
#include "attention/cuda/forward.h"
#include "attention/cuda/key_gradients.h"
#include "attention/cuda/query_gradients.h"

ALIBI_LANES_BEGIN

/// Selects the kernel for rows of head_dim values, which are padded with zeros. head_dim is at most `most`.
template <template <Type, int> class Kernel, Type type, int most, class Arguments>
int launch_for_columns(const Arguments& a, int64_t blocks, void* stream) {
  if (a.call.head_dim <= 32) return launch<Kernel<type, 32>>(blocks, a, stream);
  if (a.call.head_dim <= 64) return launch<Kernel<type, 64>>(blocks, a, stream);
  if constexpr (most > 128) {
    if (a.call.head_dim > 128) return launch<Kernel<type, 256>>(blocks, a, stream);
  }
  return launch < Kernel<type, most<128 ? most : 128>>(blocks, a, stream);
}
template <template <Type, int> class Kernel, int most = 256, class Arguments>
int launch_for(const Arguments& a, int64_t blocks, Type type, void* stream) {
  return type == Type::bfloat16 ? launch_for_columns<Kernel, Type::bfloat16, most>(a, blocks, stream)
                                : launch_for_columns<Kernel, Type::float16, most>(a, blocks, stream);
}
template <template <Type> class Kernel, class Arguments>
int launch_for(const Arguments& a, int64_t blocks, Type type, void* stream) {
  return type == Type::bfloat16 ? launch<Kernel<Type::bfloat16>>(blocks, a, stream)
                                : launch<Kernel<Type::float16>>(blocks, a, stream);
}
/// Launches a kernel that reads no 16-bit values.
template <class Kernel, class Arguments>
int launch_for_any(const Arguments& a, int64_t blocks, Type /*type*/, void* stream) {
  return launch<Kernel>(blocks, a, stream);
}

/// The kernels of a form of biases.
template <Form form>
struct KernelsOf {
  template <Type type>
  using MeasureKeys = Measure<type, form>;
  template <Type type, int columns>
  using ForwardPass = Forward<type, columns, form>;
  template <Type type, int columns>
  using OfQueries = QueryGradients<type, columns, form>;
  template <Type type, int columns>
  using OfKeys = KeyGradients<type, columns, form>;
  template <Type type, int columns>
  using NearKeys = DecodeNear<type, columns, form>;
  template <Type type, int columns>
  using Splits = DecodeSplits<type, columns, form>;
};

template <Form form>
Launches launches_for() {
  using Of = KernelsOf<form>;
  Launches all = {};
  all.store = [](const StoreArguments& a, void* stream) { return launch<Store>(1, a, stream); };
  all.centres = launch_for<Centres>;
  all.measure = launch_for<Of::template MeasureKeys>;
  all.accumulate = launch_for_any<Accumulate<form>>;
  all.forward = launch_for<Of::template ForwardPass>;
  all.row_terms = [](const BackwardArguments& a, int64_t rows, Type type, void* stream) {
    constexpr int64_t of_block = RowTermsKernel<Type::bfloat16>::rows_of_block;
    return launch_for<RowTermsKernel>(a, (rows + of_block - 1) / of_block, type, stream);
  };
  all.add_sinks = launch_for_any<AddSinks>;
  all.visiting_tiles = launch_for_any<FindVisitingTiles<form>>;
  all.query_gradients = launch_for<Of::template OfQueries>;
  all.key_gradients = launch_for<Of::template OfKeys>;
  all.add_slopes = launch_for_any<AddSlopes>;
  all.decode_near = launch_for<Of::template NearKeys>;
  all.decode_splits = launch_for<Of::template Splits>;
  all.decode_merge = launch_for<DecodeMerge>;
  if constexpr (form == Form::gates) {
    all.sum_gates = launch_for_any<SumGates>;
    all.sum_gate_blocks = launch_for_any<SumGateBlocks>;
    all.add_gates = launch_for_any<AddGates>;
  } else {
    all.both_gradients = [](const BackwardArguments& a, int64_t blocks, Type type, void* stream) {
      return a.both_rows == 128 ? launch_for<BothGradientsOf128Rows, 64>(a, blocks, type, stream)
                                : launch_for<BothGradientsOf64Rows, 128>(a, blocks, type, stream);
    };
    all.cached_centres = launch_for<CachedCentres>;
    all.measure_cached = launch_for<MeasureCached>;
    all.raise_nodes = launch_for_any<RaiseNodes>;
  }
  return all;
}

ALIBI_LANES_END
