/* The operator from C, linked as C is: attention with linear biases against the formula written plainly. */
#include <alibi/c.h>
#include <math.h>
#include <stdio.h>

enum { heads = 2, length = 5, head_dim = 8 };

/* [1, length, heads, head_dim] */
static float q[length * heads * head_dim], k[length * heads * head_dim], v[length * heads * head_dim];
static float out[length * heads * head_dim];

static size_t at(int row, int head, int i) { return (size_t)((row * heads + head) * head_dim + i); }

static alibi_tensor tensor(float* data) {
  const alibi_tensor described = {data, ALIBI_FLOAT32, {1, length, heads, head_dim}, {0, 0, 0, 0}};
  return described;
}

/* Element i of the output for one query, causal. */
static double expected(int row, int head, double slope, int i) {
  double weighted = 0, sum = 0;
  for (int key = 0; key <= row; ++key) {
    double score = 0;
    for (int j = 0; j < head_dim; ++j) score += (double)q[at(row, head, j)] * k[at(key, head, j)];
    const double weight = exp(score / sqrt(head_dim) - slope * (row - key));
    weighted += weight * v[at(key, head, i)];
    sum += weight;
  }
  return weighted / sum;
}

int main(void) {
  for (size_t i = 0; i < length * heads * head_dim; ++i) {
    q[i] = (float)sin(0.7 * (double)i);
    k[i] = (float)cos(1.3 * (double)i);
    v[i] = (float)sin(2.9 * (double)i + 1);
  }
  float slopes[heads];
  alibi_attention_options options = alibi_attention_options_default();
  options.alibi_slopes = slopes;
  options.alibi_slopes_count = heads;
  const alibi_tensor tq = tensor(q), tk = tensor(k), tv = tensor(v), tout = tensor(out);
  if (alibi_slopes(heads, 8, slopes) != ALIBI_OK || alibi_attention(&tq, &tk, &tv, &options, &tout, NULL) != ALIBI_OK) {
    fprintf(stderr, "%s\n", alibi_last_error());
    return 1;
  }
  double worst = 0;
  for (int row = 0; row < length; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (int i = 0; i < head_dim; ++i) {
        const double difference = fabs(out[at(row, head, i)] - expected(row, head, slopes[head], i));
        if (!(difference <= worst)) worst = difference;
      }
    }
  }
  printf("alibi %s from C: largest difference to the formula %.1e\n", alibi_version(), worst);
  /* An error inside comes out as a status, also where nothing else is C++. */
  options.alibi_slopes_count = heads + 1;
  const int refused = alibi_attention(&tq, &tk, &tv, &options, &tout, NULL) == ALIBI_ERROR && *alibi_last_error();
  return worst <= 1e-6 && refused ? 0 : 1;
}
