// What the library for C++ computes from arrays that Python wrote: out, dq, dk, dv.
//   attention_bits LENGTH HEADS HEAD_DIM TOLERANCE <q,k,v,dout >out,dq,dk,dv
#include <alibi/attention.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const alibi::Shape shape = {1, std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3])};
  std::vector<alibi::Tensor> in, out;
  for (int i = 0; i < 4; ++i) {
    in.emplace_back(shape);
    out.emplace_back(shape);
    if (std::fread(in.back().raw(), 1, in.back().bytes(), stdin) != in.back().bytes()) return 1;
  }
  alibi::AttentionOptions options;
  options.alibi_slopes = alibi::slopes(static_cast<int>(shape[2]));
  options.tolerance = static_cast<float>(std::atof(argv[4]));
  alibi::AttentionState state;
  alibi::attention(in[0], in[1], in[2], options, out[0], &state);
  alibi::attention_backward(in[3], in[0], in[1], in[2], out[0], state, options, out[1], out[2], out[3]);
  for (const alibi::Tensor& tensor : out) {
    if (std::fwrite(tensor.raw(), 1, tensor.bytes(), stdout) != tensor.bytes()) return 1;
  }
  return 0;
}
