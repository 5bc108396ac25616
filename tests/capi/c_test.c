/* The C interface from C: forward against a plain loop, decoding against forward, gradients by differences, errors. */
#include "alibi/c.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/expect.h"

enum { BATCH = 2, LENGTH = 70, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8 };
enum { Q_SIZE = BATCH * LENGTH * HEADS * HEAD_DIM, K_SIZE = BATCH * LENGTH * KV_HEADS * HEAD_DIM };

static float q[Q_SIZE], k[K_SIZE], v[K_SIZE], out[Q_SIZE], dout[Q_SIZE];
static float slopes[HEADS], sinks[HEADS] = {0.5f, -1.0f, 2.0f, -INFINITY};
static float gates[BATCH * LENGTH * HEADS]; /* of linear(), while gate_count is their number */
static size_t gate_count;

static void fill(float* values, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 16777216.0f - 0.5f;
  }
}

static alibi_tensor view(float* data, int64_t length, int64_t heads) {
  alibi_tensor tensor = {data, ALIBI_FLOAT32, {BATCH, length, heads, HEAD_DIM}, {0, 0, 0, 0}};
  return tensor;
}

static alibi_attention_options linear(void) {
  alibi_attention_options options = alibi_attention_options_default();
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = HEADS;
  options.sinks = sinks;
  options.sinks_count = HEADS;
  options.log_decay = gate_count > 0 ? gates : NULL;
  options.log_decay_count = gate_count;
  return options;
}

/* out of one row, in double */
static void reference_row(int b, int i, int h, double* result) {
  double weights[LENGTH], max = (double)sinks[h], sum;
  const float* qi = q + ((b * LENGTH + i) * HEADS + h) * HEAD_DIM;
  for (int j = 0; j <= i; ++j) {
    const float* kj = k + ((b * LENGTH + j) * KV_HEADS + h / (HEADS / KV_HEADS)) * HEAD_DIM;
    double dot = 0;
    for (int d = 0; d < HEAD_DIM; ++d) dot += (double)qi[d] * (double)kj[d];
    weights[j] = dot / sqrt(HEAD_DIM) - (double)slopes[h] * (i - j);
    if (weights[j] > max) max = weights[j];
  }
  for (int d = 0; d < HEAD_DIM; ++d) result[d] = 0;
  sum = exp((double)sinks[h] - max);
  for (int j = 0; j <= i; ++j) sum += weights[j] = exp(weights[j] - max);
  for (int j = 0; j <= i; ++j) {
    const float* vj = v + ((b * LENGTH + j) * KV_HEADS + h / (HEADS / KV_HEADS)) * HEAD_DIM;
    for (int d = 0; d < HEAD_DIM; ++d) result[d] += weights[j] / sum * (double)vj[d];
  }
}

static void test_forward(void) {
  const alibi_tensor tq = view(q, LENGTH, HEADS), tk = view(k, LENGTH, KV_HEADS), tv = view(v, LENGTH, KV_HEADS);
  const alibi_tensor to = view(out, LENGTH, HEADS);
  const alibi_attention_options options = linear();
  double worst = 0;
  EXPECT(alibi_attention(&tq, &tk, &tv, &options, &to, NULL) == ALIBI_OK);
  for (int b = 0; b < BATCH; ++b) {
    for (int i = 0; i < LENGTH; ++i) {
      for (int h = 0; h < HEADS; ++h) {
        double expected[HEAD_DIM];
        reference_row(b, i, h, expected);
        for (int d = 0; d < HEAD_DIM; ++d) {
          const double diff = fabs((double)out[((b * LENGTH + i) * HEADS + h) * HEAD_DIM + d] - expected[d]);
          if (!(diff <= worst)) worst = diff;
        }
      }
    }
  }
  EXPECT(worst <= 1e-6);
}

/* Token by token over a cache gives the rows of the forward pass. */
static void test_decode(void) {
  alibi_kv_cache* cache = NULL;
  const alibi_attention_options options = linear();
  double worst = 0;
  EXPECT(alibi_kv_cache_create(BATCH, KV_HEADS, HEAD_DIM, ALIBI_FLOAT32, &cache) == ALIBI_OK);
  for (int i = 0; i < LENGTH; ++i) {
    float row[BATCH * HEADS * HEAD_DIM];
    alibi_tensor tq = view(q + i * HEADS * HEAD_DIM, 1, HEADS), to = view(row, 1, HEADS);
    alibi_tensor tk = view(k + i * KV_HEADS * HEAD_DIM, 1, KV_HEADS),
                 tv = view(v + i * KV_HEADS * HEAD_DIM, 1, KV_HEADS);
    const int64_t q_strides[4] = {LENGTH * HEADS * HEAD_DIM, HEADS * HEAD_DIM, HEAD_DIM, 1};
    const int64_t k_strides[4] = {LENGTH * KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, HEAD_DIM, 1};
    for (int axis = 0; axis < 4; ++axis) {
      tq.strides[axis] = q_strides[axis];
      tk.strides[axis] = tv.strides[axis] = k_strides[axis];
    }
    EXPECT(alibi_kv_cache_append(cache, &tk, &tv) == ALIBI_OK);
    EXPECT(alibi_kv_cache_length(cache) == i + 1);
    EXPECT(alibi_attention_decode(&tq, cache, &options, &to, NULL) == ALIBI_OK);
    for (int b = 0; b < BATCH; ++b) {
      for (int n = 0; n < HEADS * HEAD_DIM; ++n) {
        const double diff =
            fabs((double)row[b * HEADS * HEAD_DIM + n] - (double)out[(b * LENGTH + i) * HEADS * HEAD_DIM + n]);
        if (!(diff <= worst)) worst = diff;
      }
    }
  }
  EXPECT(worst <= 1e-6);
  EXPECT(alibi_kv_cache_truncate(cache, 5) == ALIBI_OK && alibi_kv_cache_length(cache) == 5);
  EXPECT(alibi_kv_cache_truncate(cache, 6) == ALIBI_ERROR);
  alibi_kv_cache_destroy(cache);
}

static double loss(void) {
  const alibi_tensor tq = view(q, LENGTH, HEADS), tk = view(k, LENGTH, KV_HEADS), tv = view(v, LENGTH, KV_HEADS);
  const alibi_tensor to = view(out, LENGTH, HEADS);
  const alibi_attention_options options = linear();
  double sum = 0;
  EXPECT(alibi_attention(&tq, &tk, &tv, &options, &to, NULL) == ALIBI_OK);
  for (int i = 0; i < Q_SIZE; ++i) sum += (double)out[i] * (double)dout[i];
  return sum;
}

/* The derivative along one input, by differences, against the gradient. */
static void expect_gradient(float* at, float step, double gradient) {
  const float value = *at;
  *at = value + step;
  const double above = loss();
  *at = value - step;
  const double below = loss();
  *at = value;
  const double difference = (above - below) / (2 * (double)step);
  EXPECT(fabs(difference - gradient) <= 1e-3 * (1 + fabs(gradient)));
  EXPECT(gradient != 0);
}

static void test_backward(void) {
  static float dq[Q_SIZE], dk[K_SIZE], dv[K_SIZE], dslopes[HEADS], dsinks[HEADS];
  static float dgates[BATCH * LENGTH * HEADS], lse[BATCH * HEADS * LENGTH];
  const alibi_tensor tq = view(q, LENGTH, HEADS), tk = view(k, LENGTH, KV_HEADS), tv = view(v, LENGTH, KV_HEADS);
  const alibi_tensor to = view(out, LENGTH, HEADS), tdout = view(dout, LENGTH, HEADS);
  const alibi_tensor tdq = view(dq, LENGTH, HEADS), tdk = view(dk, LENGTH, KV_HEADS), tdv = view(dv, LENGTH, KV_HEADS);
  gate_count = sizeof gates / sizeof *gates;
  for (size_t i = 0; i < gate_count; ++i) gates[i] = -0.05f;
  const alibi_attention_options options = linear();
  alibi_attention_state* state = NULL;
  int64_t visited = 0, total = 0;
  EXPECT(alibi_attention_state_create(&state) == ALIBI_OK);
  EXPECT(alibi_attention_state_lse(state, lse, sizeof lse / sizeof *lse) == ALIBI_ERROR);
  EXPECT(alibi_attention(&tq, &tk, &tv, &options, &to, state) == ALIBI_OK);
  EXPECT(alibi_attention_state_lse(state, lse, 1) == ALIBI_ERROR);
  EXPECT(alibi_attention_state_lse(state, lse, sizeof lse / sizeof *lse) == ALIBI_OK);
  EXPECT(isfinite(lse[0]) && lse[0] != 0);
  EXPECT(alibi_attention_state_blocks(state, &visited, &total) == ALIBI_OK && visited > 0 && visited <= total);
  EXPECT(alibi_attention_backward(&tdout, &tq, &tk, &tv, &to, state, &options, &tdq, &tdk, &tdv, NULL, dslopes, dsinks,
                                  dgates) == ALIBI_OK);
  alibi_attention_state_destroy(state);
  expect_gradient(q + Q_SIZE - 3, 0.01f, (double)dq[Q_SIZE - 3]);
  expect_gradient(k + 37, 0.01f, (double)dk[37]);
  expect_gradient(v + K_SIZE / 2, 0.01f, (double)dv[K_SIZE / 2]);
  expect_gradient(slopes + 3, 0.002f, (double)dslopes[3]);
  expect_gradient(sinks + 2, 0.01f, (double)dsinks[2]);
  expect_gradient(gates + 5 * HEADS + 1, 0.01f, (double)dgates[5 * HEADS + 1]);
  gate_count = 0;
}

/* As arrays and back, the state serves the backward pass to the same bits. */
static void test_saved_state(void) {
  static float lse[BATCH * HEADS * LENGTH], kernel_lse[BATCH * HEADS * LENGTH];
  static float dq[Q_SIZE], dk[K_SIZE], dv[K_SIZE], dq_again[Q_SIZE];
  static int32_t blocks[4096];
  const size_t count = sizeof lse / sizeof *lse;
  const alibi_tensor tq = view(q, LENGTH, HEADS), tk = view(k, LENGTH, KV_HEADS), tv = view(v, LENGTH, KV_HEADS);
  const alibi_tensor to = view(out, LENGTH, HEADS), tdout = view(dout, LENGTH, HEADS);
  const alibi_tensor tdq = view(dq, LENGTH, HEADS), tdk = view(dk, LENGTH, KV_HEADS), tdv = view(dv, LENGTH, KV_HEADS);
  const alibi_tensor again = view(dq_again, LENGTH, HEADS);
  const alibi_attention_options options = linear();
  alibi_attention_state *state = NULL, *restored = NULL;
  size_t words = 0;
  EXPECT(alibi_attention_state_words(&tq, &options, &words) == ALIBI_OK);
  EXPECT(words <= sizeof blocks / sizeof *blocks);
  EXPECT(alibi_attention_state_create(&state) == ALIBI_OK && alibi_attention_state_create(&restored) == ALIBI_OK);
  EXPECT(alibi_attention(&tq, &tk, &tv, &options, &to, state) == ALIBI_OK);
  EXPECT(alibi_attention_state_save(state, lse, kernel_lse, count, blocks, words + 1) == ALIBI_ERROR);
  EXPECT(alibi_attention_state_save(state, lse, kernel_lse, count, blocks, words) == ALIBI_OK);
  EXPECT(alibi_attention_state_restore(restored, &tq, lse, kernel_lse, blocks, ((size_t)1 << 40) + 1) == ALIBI_ERROR);
  EXPECT(strstr(alibi_last_error(), "words is 1099511627777, expected alibi_attention_state_words()") != NULL);
  EXPECT(alibi_attention_state_restore(restored, &tq, lse, kernel_lse, blocks, words) == ALIBI_OK);
  EXPECT(alibi_attention_backward(&tdout, &tq, &tk, &tv, &to, state, &options, &tdq, &tdk, &tdv, NULL, NULL, NULL,
                                  NULL) == ALIBI_OK);
  EXPECT(alibi_attention_backward(&tdout, &tq, &tk, &tv, &to, restored, &options, &again, &tdk, &tdv, NULL, NULL, NULL,
                                  NULL) == ALIBI_OK);
  EXPECT(memcmp(dq, dq_again, sizeof dq) == 0);
  alibi_attention_state_destroy(state);
  alibi_attention_state_destroy(restored);
}

static void test_errors(void) {
  alibi_tensor tq = view(q, LENGTH, HEADS), tk = view(k, LENGTH, KV_HEADS);
  const alibi_tensor to = view(out, LENGTH, HEADS);
  EXPECT(alibi_attention(&tq, NULL, &tk, NULL, &to, NULL) == ALIBI_ERROR);
  EXPECT(strstr(alibi_last_error(), "k is null") != NULL);
  tq.data = NULL;
  EXPECT(alibi_attention(&tq, &tk, &tk, NULL, &to, NULL) == ALIBI_ERROR);
  EXPECT(strstr(alibi_last_error(), "q.data is null") != NULL);
}

/* Scores and merged sums that underflow, and refused calls: no function changes errno. */
static void test_errno(void) {
  enum { KEPT = 12345 }; /* no error of the system */
  static float far_q[Q_SIZE], far_k[K_SIZE], dq[Q_SIZE], dk[K_SIZE], dv[K_SIZE], again[Q_SIZE];
  static float lse[BATCH * HEADS * LENGTH], far_lse[BATCH * HEADS * LENGTH], kernel_lse[BATCH * HEADS * LENGTH];
  static int32_t blocks[4096];
  const size_t count = sizeof lse / sizeof *lse;
  const alibi_tensor tq = view(far_q, LENGTH, HEADS), tk = view(far_k, LENGTH, KV_HEADS);
  const alibi_tensor tv = view(v, LENGTH, KV_HEADS), to = view(out, LENGTH, HEADS), tdout = view(dout, LENGTH, HEADS);
  const alibi_tensor tdq = view(dq, LENGTH, HEADS), tdk = view(dk, LENGTH, KV_HEADS), tdv = view(dv, LENGTH, KV_HEADS);
  const alibi_tensor merged = view(again, LENGTH, HEADS), last = view(far_q, 1, HEADS),
                     last_out = view(again, 1, HEADS);
  alibi_attention_options options = linear();
  alibi_attention_state* state = NULL;
  alibi_kv_cache* cache = NULL;
  int64_t visited = 0, total = 0;
  size_t words = 0;
  options.tolerance = 1e-6f;
  for (int i = 0; i < Q_SIZE; ++i) far_q[i] = 1000 * q[i];
  for (int i = 0; i < K_SIZE; ++i) far_k[i] = 1000 * k[i];

#define KEEPS_ERRNO(call)                                          \
  do {                                                             \
    errno = KEPT;                                                  \
    EXPECT(call);                                                  \
    if (errno != KEPT) {                                           \
      fprintf(stderr, "%s sets errno to %d\n", #call, (int)errno); \
      ++failures;                                                  \
    }                                                              \
  } while (0)
  KEEPS_ERRNO(alibi_set_threads(2) == ALIBI_OK);
  KEEPS_ERRNO(alibi_slopes(HEADS, 8, slopes) == ALIBI_OK);
  KEEPS_ERRNO(alibi_slopes(HEADS, 1e300, far_lse) != ALIBI_OK || far_lse[0] >= 0);
  KEEPS_ERRNO(alibi_attention_state_create(&state) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_state_words(&tq, &options, &words) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention(&tq, &tk, &tv, &options, &to, state) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention(&last, &tk, &tv, &options, &last_out, NULL) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_state_lse(state, lse, count) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_state_blocks(state, &visited, &total) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_state_save(state, lse, kernel_lse, count, blocks, words) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_state_restore(state, &tq, lse, kernel_lse, blocks, words) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_backward(&tdout, &tq, &tk, &tv, &to, state, &options, &tdq, &tdk, &tdv, NULL, NULL, NULL,
                                       NULL) == ALIBI_OK);
  for (size_t i = 0; i < count; ++i) far_lse[i] = lse[i] - 1000;
  KEEPS_ERRNO(alibi_attention_merge(&to, lse, &to, far_lse, &merged, lse) == ALIBI_OK);
  KEEPS_ERRNO(alibi_kv_cache_create(BATCH, KV_HEADS, HEAD_DIM, ALIBI_FLOAT32, &cache) == ALIBI_OK);
  KEEPS_ERRNO(alibi_kv_cache_append(cache, &tk, &tv) == ALIBI_OK);
  KEEPS_ERRNO(alibi_attention_decode(&last, cache, &options, &last_out, NULL) == ALIBI_OK);
  KEEPS_ERRNO(alibi_kv_cache_length(cache) == LENGTH);
  KEEPS_ERRNO(alibi_kv_cache_truncate(cache, 5) == ALIBI_OK);
  KEEPS_ERRNO(alibi_kv_cache_truncate(cache, 6) == ALIBI_ERROR);
  KEEPS_ERRNO((alibi_kv_cache_destroy(cache), 1));
  cache = NULL;
  KEEPS_ERRNO(alibi_kv_cache_create_on(BATCH, KV_HEADS, HEAD_DIM, ALIBI_FLOAT32, ALIBI_DEVICE_CPU, NULL, &cache) ==
              ALIBI_OK);
  KEEPS_ERRNO((alibi_kv_cache_destroy(cache), 1));
  KEEPS_ERRNO((alibi_attention_state_destroy(state), 1));
  KEEPS_ERRNO(alibi_attention(&tq, NULL, &tv, &options, &to, NULL) == ALIBI_ERROR);
  KEEPS_ERRNO(alibi_attention_options_default().bidirectional == 0 && alibi_last_error() != NULL &&
              alibi_version() != NULL);
#undef KEEPS_ERRNO
}

int main(void) {
  printf("alibi %s\n", alibi_version());
  EXPECT(strcmp(alibi_last_error(), "") == 0);
  fill(q, Q_SIZE, 1);
  fill(k, K_SIZE, 2);
  fill(v, K_SIZE, 3);
  fill(dout, Q_SIZE, 4);
  EXPECT(alibi_slopes(HEADS, 8, slopes) == ALIBI_OK);
  EXPECT(slopes[0] == 0.25f && slopes[3] == 0.00390625f);
  test_forward();
  test_decode();
  test_backward();
  test_saved_state();
  test_errors();
  test_errno();
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
