// The operator: attention with linear biases, forward and backward, at a length no L x L matrix would allow.
#include <alibi/alibi.h>

#include <cstdio>
#include <random>

namespace {

alibi::Tensor random_tensor(const alibi::Shape& shape, unsigned seed) {
  alibi::Tensor tensor(shape);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  float* values = tensor.data<float>();
  for (int64_t i = 0; i < tensor.elements(); ++i) values[i] = normal(engine);
  return tensor;
}

}  // namespace

int main() {
  const int64_t batch = 1, length = 8192, heads = 8, kv_heads = 2, head_dim = 64;
  const alibi::Tensor q = random_tensor({batch, length, heads, head_dim}, 1);
  const alibi::Tensor k = random_tensor({batch, length, kv_heads, head_dim}, 2);  // shared by 4 query heads each
  const alibi::Tensor v = random_tensor({batch, length, kv_heads, head_dim}, 3);

  alibi::AttentionOptions options;
  options.alibi_slopes = alibi::slopes(heads);  // causal by default
  options.tolerance = 0x1p-24f;                 // keys that cannot matter within float32 are not visited

  alibi::Tensor out(q.shape());
  alibi::AttentionState state;  // what the backward pass needs
  alibi::attention(q, k, v, options, out, &state);
  std::printf("out %s, first value %.4f; %lld of %lld blocks visited\n", alibi::to_string(out.shape()).c_str(),
              static_cast<double>(out.data<float>()[0]), static_cast<long long>(state.stats.blocks_visited),
              static_cast<long long>(state.stats.blocks_total));

  const alibi::Tensor dout = random_tensor(out.shape(), 4);
  alibi::Tensor dq(q.shape()), dk(k.shape()), dv(v.shape());
  alibi::attention_backward(dout, q, k, v, out, state, options, dq, dk, dv);
  std::printf("dq %s, dk %s; %.1f MiB at most in tensors (the scores alone would be %.0f MiB)\n",
              alibi::to_string(dq.shape()).c_str(), alibi::to_string(dk.shape()).c_str(),
              static_cast<double>(alibi::peak_tensor_bytes()) / (1 << 20),
              static_cast<double>(heads * length * length) * sizeof(float) / (1 << 20));
  return 0;
}
