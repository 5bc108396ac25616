#include "attention/cuda/launches.h"

const alibi::kernels::cuda::Launches& alibi::kernels::cuda::gpu_launches(Form form) {
  static const Launches of_slopes = launches_for<Form::slopes>(), of_gates = launches_for<Form::gates>();
  return form == Form::gates ? of_gates : of_slopes;
}
