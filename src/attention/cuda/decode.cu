#include "attention/cuda/decode.h"

#include "attention/cuda/decode_near.h"
#include "attention/cuda/launches.h"

namespace alibi::kernels::cuda {

int launch_decode_near(const DecodeArguments& arguments, int64_t tiles, Type type, void* stream) {
  return start_decode_near(arguments, tiles, type, stream);
}
int launch_decode_splits(const DecodeArguments& arguments, int64_t splits, Type type, void* stream) {
  return start_decode_splits(arguments, splits, type, stream);
}
int launch_decode_merge(const DecodeArguments& arguments, int64_t rows, Type type, void* stream) {
  return start_decode_merge(arguments, rows, type, stream);
}

}  // namespace alibi::kernels::cuda
