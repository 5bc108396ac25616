/* The C interface on a GPU, from C: both passes in a stream of its own against the same calls on the CPU. On a machine
 * without a GPU: the error that says so. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alibi/c.h"
#include "capi/expect.h"

enum { LENGTH = 300, HEADS = 4, HEAD_DIM = 64, SIZE = LENGTH * HEADS * HEAD_DIM, TENSORS = 8 };
enum { Q, K, V, DOUT, OUT, DQ, DK, DV };

static uint16_t here[TENSORS][SIZE], back[TENSORS][SIZE];

static alibi_tensor view(void* data) {
  alibi_tensor tensor = {data, ALIBI_BFLOAT16, {1, LENGTH, HEADS, HEAD_DIM}, {0, 0, 0, 0}};
  return tensor;
}

static float value(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float result;
  memcpy(&result, &wide, sizeof result);
  return result;
}

static uint16_t rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static alibi_status both(uint16_t* const data[TENSORS], const alibi_attention_options* options,
                         alibi_attention_state* state) {
  alibi_tensor t[TENSORS];
  for (int i = 0; i < TENSORS; ++i) t[i] = view(data[i]);
  const alibi_status status = alibi_attention(&t[Q], &t[K], &t[V], options, &t[OUT], state);
  if (status != ALIBI_OK) return status;
  return alibi_attention_backward(&t[DOUT], &t[Q], &t[K], &t[V], &t[OUT], state, options, &t[DQ], &t[DK], &t[DV], NULL,
                                  NULL, NULL, NULL);
}

static void on_a_gpu(alibi_attention_options options, alibi_attention_state* state) {
  static const char* const names[TENSORS] = {"q", "k", "v", "dout", "out", "dq", "dk", "dv"};
  static float lse[HEADS * LENGTH], lse_there[HEADS * LENGTH];
  uint16_t *cpu[TENSORS], *there[TENSORS];
  cudaStream_t stream;
  for (int i = 0; i < TENSORS; ++i) cpu[i] = here[i];
  EXPECT(both(cpu, &options, state) == ALIBI_OK);
  EXPECT(alibi_attention_state_lse(state, lse, HEADS * LENGTH) == ALIBI_OK);
  EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  for (int i = 0; i < TENSORS; ++i) {
    EXPECT(cudaMalloc((void**)&there[i], sizeof here[i]) == cudaSuccess);
    EXPECT(cudaMemcpyAsync(there[i], here[i], sizeof here[i], cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  options.device = ALIBI_DEVICE_CUDA;
  options.stream = stream;
  EXPECT(both(there, &options, state) == ALIBI_OK);
  EXPECT(alibi_attention_state_lse(state, lse_there, HEADS * LENGTH) == ALIBI_OK);
  for (int i = 0; i < HEADS * LENGTH; ++i) EXPECT(fabsf(lse[i] - lse_there[i]) <= 1e-3f);
  for (int i = OUT; i < TENSORS; ++i) {
    float worst = 0, most = 0;
    EXPECT(cudaMemcpyAsync(back[i], there[i], sizeof back[i], cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
    for (int n = 0; n < SIZE; ++n) {
      const float diff = fabsf(value(here[i][n]) - value(back[i][n]));
      if (!(diff <= worst)) worst = diff;
      most = fmaxf(most, fabsf(value(here[i][n])));
    }
    printf("%s: %g of %g\n", names[i], (double)worst, (double)most);
    EXPECT(worst <= 0.03f * most);
  }
  alibi_attention_state_destroy(state); /* before its stream */
  for (int i = 0; i < TENSORS; ++i) EXPECT(cudaFree(there[i]) == cudaSuccess);
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
}

int main(void) {
  uint32_t seed = 1;
  float slopes[HEADS];
  alibi_attention_state* state = NULL;
  alibi_attention_options options = alibi_attention_options_default();
  int count = 0;
  for (int i = Q; i <= DOUT; ++i) {
    for (int n = 0; n < SIZE; ++n) {
      seed = seed * 1664525u + 1013904223u;
      here[i][n] = rounded(4 * ((float)(seed >> 8) / 16777216.0f - 0.5f));
    }
  }
  EXPECT(alibi_slopes(HEADS, 8, slopes) == ALIBI_OK);
  EXPECT(alibi_attention_state_create(&state) == ALIBI_OK);
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = HEADS;
  options.tolerance = 0x1p-11f;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    on_a_gpu(options, state);
  } else {
    uint16_t* data[TENSORS];
    for (int i = 0; i < TENSORS; ++i) data[i] = here[i];
    EXPECT(both(data, &options, state) == ALIBI_OK);
    options.device = ALIBI_DEVICE_CUDA;
    EXPECT(both(data, &options, state) == ALIBI_ERROR);
    EXPECT(strstr(alibi_last_error(), "CUDA finds no GPU on this machine") != NULL);
    printf("%s\n", alibi_last_error());
    alibi_attention_state_destroy(state);
  }
  if (failures == 0) printf("the C interface: as expected, %s\n", count > 0 ? "on a GPU" : "without a GPU");
  return failures == 0 ? 0 : 1;
}
