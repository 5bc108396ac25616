#include "attention/cuda/query_gradients.h"

#include "attention/cuda/launches.h"

namespace alibi::kernels::cuda {

int launch_row_terms(const BackwardArguments& arguments, int64_t rows, Type type, void* stream) {
  return start_row_terms(arguments, rows, type, stream);
}
int launch_reaches(const BackwardArguments& arguments, int64_t heads, Type type, void* stream) {
  return start_reaches(arguments, heads, type, stream);
}
int launch_query_gradients(const BackwardArguments& arguments, int64_t tasks, Type type, void* stream) {
  return start_query_gradients(arguments, tasks, type, stream);
}
int launch_add_slopes(const BackwardArguments& arguments, int64_t slopes, Type type, void* stream) {
  return start_add_slopes(arguments, slopes, type, stream);
}

}  // namespace alibi::kernels::cuda
