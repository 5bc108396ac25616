// The program whose instructions bench/instructions.py counts: one forward pass of attention, then CALLS times the pass
// that is named, on one thread. Causal, one head, every key visited.
//   instructions forward|backward LENGTH HEAD_DIM CALLS
#include <alibi/attention.h>
#include <alibi/runtime.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

int main(int count, char** arguments) {
  if (count != 5) return 2;
  const bool backward = std::string_view(arguments[1]) == "backward";
  const alibi::Shape shape = {1, std::atoll(arguments[2]), 1, std::atoll(arguments[3])};
  alibi::set_threads(1);
  alibi::Tensor q(shape), out(shape), dq(shape), dk(shape), dv(shape);
  for (int64_t i = 0; i < q.elements(); ++i) q.data<float>()[i] = std::sin(static_cast<float>(i % 997));
  alibi::AttentionOptions options;
  options.alibi_slopes = {0.0625F};
  options.tolerance = 0;
  alibi::AttentionState state;
  alibi::attention(q, q, q, options, out, &state);
  for (int call = 0; call < std::atoi(arguments[4]); ++call) {
    if (backward) {
      alibi::attention_backward(q, q, q, q, out, state, options, dq, dk, dv);
    } else {
      alibi::attention(q, q, q, options, out, &state);
    }
  }
}
