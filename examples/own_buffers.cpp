// Attention on memory that the program owns: forward, then the gradients of q, k and v.
#include <alibi/attention.h>

#include <cstdio>
#include <vector>

int main() {
  const alibi::Shape shape = {1, 1024, 8, 64};  // batch, length, heads, head_dim
  const size_t size = 1 * 1024 * 8 * 64;
  std::vector<float> q(size, 0.1F), k(size, 0.2F), v(size, 0.3F), out(size);

  alibi::AttentionOptions options;
  options.alibi_slopes = alibi::slopes(8);  // the published slopes of 8 heads; attention is causal by default
  options.tolerance = 0x1p-24F;             // skip keys that cannot change a float32 result

  const alibi::Tensor query = alibi::Tensor::view(q.data(), shape);
  const alibi::Tensor key = alibi::Tensor::view(k.data(), shape);
  const alibi::Tensor value = alibi::Tensor::view(v.data(), shape);
  alibi::Tensor result = alibi::Tensor::view(out.data(), shape);
  alibi::AttentionState state;  // what the backward pass needs
  alibi::attention(query, key, value, options, result, &state);
  std::printf("out[0] = %.3f\n", static_cast<double>(out[0]));

  std::vector<float> dout(size, 1.0F), dq(size), dk(size), dv(size);
  alibi::Tensor query_gradient = alibi::Tensor::view(dq.data(), shape);
  alibi::Tensor key_gradient = alibi::Tensor::view(dk.data(), shape);
  alibi::Tensor value_gradient = alibi::Tensor::view(dv.data(), shape);
  alibi::attention_backward(alibi::Tensor::view(dout.data(), shape), query, key, value, result, state, options,
                            query_gradient, key_gradient, value_gradient);
  std::printf("dv[0] = %.3f\n", static_cast<double>(dv[0]));
}
