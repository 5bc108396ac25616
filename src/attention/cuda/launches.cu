#include "attention/cuda/launches.h"

const alibi::kernels::cuda::Launches& alibi::kernels::cuda::gpu_launches() {
  static const Launches all = all_launches();
  return all;
}
