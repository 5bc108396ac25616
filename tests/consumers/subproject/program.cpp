#include <alibi/attention.h>
#ifdef WITH_MODELS
#include <alibi/language_model.h>
#endif

#include <cstdio>

int main() {
  alibi::AttentionOptions options;
  options.alibi_slopes = alibi::slopes(2);
  const alibi::Tensor x({1, 3, 2, 8});
  alibi::Tensor out(x.shape());
  alibi::attention(x, x, x, options, out);
  std::printf("%s\n", alibi::to_string(out.shape()).c_str());
#ifdef WITH_MODELS
  std::printf("%lld parameters\n", static_cast<long long>(alibi::preset("tiny").parameter_count()));
#endif
}
