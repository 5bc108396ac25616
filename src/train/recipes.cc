// What each preset is trained with when the user says nothing.
#include "alibi/train.h"
#include "core/check.h"

namespace alibi {
namespace {

struct Recipe {
  const char* preset;
  int64_t tokens, batch_tokens, length;
  double learning_rate;
};

// paper-1.3b: the paper's 50,000 updates; their rate is that of GPT-3 1.3B (Brown et al. 2020, table 2.1), their size
// half of it.
constexpr Recipe recipes[] = {
    {"tiny", 1'000'000, 2048, 128, 4e-3},        {"small", 20'000'000, 16384, 128, 1e-3},
    {"base", 200'000'000, 65536, 128, 6e-4},     {"medium", 500'000'000, 131072, 128, 3e-4},
    {"large", 1'000'000'000, 262144, 128, 2e-4}, {"paper-1.3b", int64_t{50'000} << 19, 1 << 19, 1024, 2e-4},
};

}  // namespace

TrainOptions training_defaults(std::string_view name) {
  const LanguageModelConfig known = preset(name);  // throws with the names to choose from
  if (known.adaptive) return paper_recipe();
  TrainOptions options;
  for (const Recipe& recipe : recipes) {
    if (name != recipe.preset) continue;
    options.tokens = recipe.tokens;
    options.batch_tokens = recipe.batch_tokens;
    options.length = recipe.length;
    options.learning_rate = recipe.learning_rate;
    return options;
  }
  fail("[train] the preset '{}' has no training defaults", name);
}

}  // namespace alibi
